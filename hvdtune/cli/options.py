"""The options of `hvdtune run`, by noun: one row for each, with its parser, help and value.

Rows with `behind` may stand behind a script, too. The rows of `OF_HOROVOD` are options of
horovodrun, whose effects are in `hvdtune.horovod.vocabulary`; rows with `hidden` do nothing here.
A row without a parser has that of its field's type: a number is at least 1.
"""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import click

import hvdtune
from hvdtune import parse
from hvdtune.cli.parameters import (
    Argument,
    Number,
    WholeNumber,
    flag,
    option,
    required,
    rows_of,
    switch,
)
from hvdtune.errors import UsageError
from hvdtune.horovod.vocabulary import KNOBS, log_level
from hvdtune.workflows.requests import StudyRequest

if TYPE_CHECKING:
    from hvdtune.tuner.space.tune_options import SamplerName

# In a parser's context: the entries of the configuration file.
CONFIG_FILE: Final = "hvdtune.config_file"

_DURATION: Final = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")

Options = TypeVar("Options")


def parse_duration(text: str) -> float:
    """Return the seconds in `90`, `90s`, `8m` or `1h30m`.

    Raises BadParameter for 0 and for 60 or more of a smaller unit, as in `1h90m`, which is probably
    a slip.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0, 0, 0)
    total = hours * 3600 + minutes * 60 + seconds
    is_carried = (hours and minutes >= 60) or ((hours or minutes) and seconds >= 60)
    if total <= 0 or is_carried:
        raise click.BadParameter(f"'{text}' is not a time such as 90, 90s, 8m or 1h30m")
    return total


def parse_text(text: str) -> str:
    """Return the text. Raises BadParameter for an empty one, as of an unset variable."""
    if not text.strip():
        raise click.BadParameter("it is empty")
    return text


def parse_path(text: str) -> Path:
    """Return a path with `~` expanded. Raises BadParameter for an empty one."""
    return Path(parse_text(text)).expanduser()


def _cores(text: str) -> str:
    try:
        parse.wholes(text)
    except ValueError:
        raise click.BadParameter(f"'{text}' does not list cores, as 0,2 does") from None
    return text


def _steps(text: str) -> str:
    if not text:
        raise click.BadParameter("it is empty: name steps, as in 100:120 or ::50")
    try:
        parse.step_window(text)
    except ValueError as error:
        raise click.BadParameter(f"'{text}' {error}") from None
    return text


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def _regex(text: str) -> str:
    from hvdtune.launcher.measured import Metric

    try:
        return Metric(text).pattern
    except UsageError as error:
        fault = str(error).removeprefix(f"--metric-regex {text}: ")
        raise click.BadParameter(f"'{text}': {fault}") from None


def _log_level(text: str) -> str:
    try:
        return log_level(text)
    except ValueError as error:
        raise click.BadParameter(f"'{text}' {error}") from None


def show_version(ctx: click.Context, _: click.Parameter, wanted: bool | None) -> None:
    """Print the version and end the command."""
    if wanted:
        print(f"hvdtune {hvdtune.__version__}")
        ctx.exit()


def _show_build(ctx: click.Context, _: click.Parameter, wanted: bool | None) -> None:
    if wanted:
        from hvdtune.cli.check_build import render

        print(render())
        ctx.exit()


def _read_file(ctx: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
    if path is not None:
        from hvdtune.cli.config_file import read_config_file

        leaves = read_config_file(path)
        ctx.meta[CONFIG_FILE] = leaves
        ctx.default_map = {name: str(leaf.value) for name, leaf in leaves.items()}
    return path


# Rows that horovodrun lacks, next to those of a study and of restarts.
_OWN_ROWS: Final = frozenset({
    "command", "output_dir", "workbench_python", "as_json", "heartbeat_timeout", "transport",
    "profile", "fix", "timeline_max_mb", "timeline_when_full", "timeline_steps", "timeline_format",
    "controller", "resume",
})  # fmt: skip
_silent = partial(option, hidden=True)
duration = partial(option, type=parse_duration, metavar="TIME")
_silent_switch = partial(switch, hidden=True)


@dataclass(frozen=True, kw_only=True)
class PlacementOptions:
    """Hosts of the ranks, and the way to them."""

    num_proc: int | None = option(
        "--num-proc",
        "-np",
        behind=True,
        help="Number of processes. [default: all slots of -H, else 1; with --trials the GPUs or "
        "cores of this host]",
    )
    hosts: str | None = option("--hosts", "-H", behind=True, help="Hosts and slots, as in a:2,b:2.")
    hostfile: Path | None = option(
        "--hostfile", "-hostfile", behind=True, help="File with a line 'host slots=N' per host."
    )
    slots_per_host: int | None = option(
        help="Slots of each host that is listed without a number of slots. [default: 1; with one "
        "`hvdtune run` on each node, its GPUs]"
    )
    ssh_port: int | None = option(
        "--ssh-port", "-p", type=WholeNumber(1, 65535), help="Port of ssh on the other hosts."
    )
    ssh_identity_file: str | None = option(
        "--ssh-identity-file", "-i", help="Private key for ssh to the other hosts."
    )


@dataclass(frozen=True, kw_only=True)
class OutputOptions:
    """Files and messages of a run, and the Python that writes them."""

    output_dir: Path | None = option(
        "--output-dir",
        "-o",
        help="Folder for the run's files. With --trials, a study in it is continued. "
        "[default with --trials: the latest unfinished run of this script, else runs/SCRIPT-TIME]",
    )
    workbench_python: Path | None = option(
        type=parse_path,
        metavar="PATH",
        behind=True,
        help="Python of another environment with hvdtune[workbench], in which hvdtune tunes "
        "and merges timelines. [default: HVDTUNE_WORKBENCH_PYTHON, else this Python]",
    )
    verbose: bool = flag(
        help="Report the start of each rank and its processors and, when tuning, show its output."
    )
    as_json: bool = flag(
        "--json", help="Print the verdict as JSON on stdout and everything else on stderr."
    )
    output_filename: Path | None = option(
        metavar="DIR", help="Also write each rank's output to DIR/rank.N/stdout and stderr."
    )
    prefix_output_with_timestamp: bool = flag(
        "--prefix-output-with-timestamp",
        "-prefix-timestamp",
        help="Put the time before every line of the ranks' output.",
    )


@dataclass(frozen=True, kw_only=True)
class RankOptions:
    """Timeouts, network, threads and log of the ranks."""

    start_timeout: float | None = option(
        behind=True, help="Seconds that ranks in hvd.init() wait for the last one. [default: 30]"
    )
    heartbeat_timeout: float | None = option(
        type=Number(1, 86400),
        behind=True,
        help="Seconds of silence after which a rank counts as lost. [default: 2]",
    )
    transport: Literal["auto", "tcp"] | None = option(
        behind=True, help="auto: shared memory within a host, TCP between hosts. [default: auto]"
    )
    disable_cache: bool = flag(hidden=True)
    network_interfaces: str | None = option(
        "--network-interfaces",
        "--network-interface",
        metavar="A,B",
        help="Network interface to listen on; only the first of a list is used. "
        "[default: loopback]",
    )
    stall_check: bool | None = switch(
        help="Explain operations that wait long, and end the job if they do not finish."
    )
    stall_check_warning_time_seconds: float | None = option(
        type=Number(0),
        help="Seconds until a waiting operation is explained; 0: never. [default: 5]",
    )
    stall_check_shutdown_time_seconds: float | None = option(
        type=Number(0),
        help="Seconds until a waiting operation ends the job; 0: never. [default: 600]",
    )
    mpi_threads_disable: bool | None = _silent_switch()
    num_nccl_streams: int | None = _silent()
    thread_affinity: str | None = option(
        type=_cores,
        metavar="CORE,...",
        help="CPU cores for hvdtune's threads, one for each rank of a host.",
    )
    gloo_timeout_seconds: float | None = option(
        help="Same as --start-timeout. If both are given, --start-timeout is used."
    )
    log_level: str | None = option(
        type=_log_level,
        metavar="LEVEL",
        help="One of trace, debug, info, warning, error and fatal. [default: warning]",
    )
    log_timestamp: bool | None = _silent_switch("--log-with-timestamp/--log-without-timestamp")
    log_hide_timestamp: bool | None = _silent_switch()


def _with_knobs(options: type[Options]) -> type[Options]:
    """Add the options of knobs that only horovodrun has, each made from its row."""
    for term in KNOBS:
        if term.help:
            options.__annotations__[term.option] = bool | None
            setattr(options, term.option, switch(help=term.help))
    return options


@dataclass(frozen=True, kw_only=True)
@_with_knobs
class KnobOptions:
    """Values of knobs."""

    fusion_threshold_mb: float | None = option(
        type=Number(0), behind=True, help="Largest bucket in MiB; 0: reduce each tensor alone."
    )
    cycle_time_ms: float | None = option(
        type=Number(0),
        behind=True,
        help="Milliseconds to collect tensors before they are announced together.",
    )
    cache_capacity: int | None = option(
        type=WholeNumber(0),
        behind=True,
        help="Number of tensors that the response cache remembers.",
    )
    hierarchical_allreduce: bool | None = switch(behind=True, help="Reduce within each host first.")
    profile: Path | None = option(help="Use the setting in this file, a study's profile.yaml.")
    fix: tuple[str, ...] = option(
        default=(),
        metavar="KNOB=VALUE",
        behind=True,
        help="Set a knob and keep it out of the search; may be repeated.",
    )


@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """The trace of all ranks."""

    timeline_filename: Path | None = option(
        behind=True, help="Write a trace of all ranks to this file, for `hvdtune timeline view`."
    )
    timeline_max_mb: float | None = option(
        behind=True, help="MiB of raw trace to keep per rank. [default: all; 16 with --trials]"
    )
    timeline_when_full: Literal["ring", "stop"] | None = option(
        behind=True,
        help="Action when the trace reaches --timeline-max-mb. ring: drop the oldest records; "
        "stop: stop recording. [default: ring]",
    )
    timeline_steps: str | None = option(
        type=_steps,
        metavar="FIRST:END",
        behind=True,
        help="Record only these steps, as in 100:120; ::50 means every 50th. [default: all]",
    )
    timeline_format: Literal["chrome", "horovod"] | None = option(
        behind=True,
        help="Format of the trace. chrome: all ranks, for Perfetto and `hvdtune timeline`; "
        "horovod: Horovod's own. [default: chrome; horovod if HOROVOD_TIMELINE names the file]",
    )
    timeline_mark_cycles: bool | None = switch(
        help="Show cycles in a trace of Horovod's format; other traces always show them."
    )


@dataclass(frozen=True, kw_only=True)
class StudyOptions(StudyRequest):
    """The search for a faster setting."""

    trials: int | None = option(behind=True, help="Number of settings to try.")
    time_budget_s: float | None = duration(
        "--time-budget", behind=True, help="Time limit of the study, as in 8m."
    )
    knobs: tuple[str, ...] | None = option(
        type=_names,
        metavar="A,B",
        behind=True,
        help="Search only these knobs. `live` means all that can change in a live run: "
        "`live,ddp_bucket_cap_mb` tunes these first, then DDP's.",
    )
    seed: int = option(type=WholeNumber(0), default=0, help="Seed of the search.")
    space: Path | None = option(
        metavar="FILE", help="YAML file with the range or choices of each knob."
    )
    objective: tuple[str, ...] = option(
        default=("step_time",),
        show_default=False,
        metavar="NAME",
        help="step_time, samples_per_s, exposed_communication or cpu_time; may be repeated. "
        "Several objectives give a Pareto set, and only the first objective is verified. "
        "[default: step_time]",
    )
    sampler: "SamplerName | None" = option(
        type=click.Choice(["tpe", "gp", "cmaes", "random", "grid", "noisy_gp"]),
        help="Algorithm that proposes settings. [default: noisy_gp; tpe with several objectives]",
    )
    step_budget: int | None = option(help="Maximum number of steps of the study.")
    train_steps: int | None = option(
        help="Steps of the whole training. Tuning stops when the remaining steps can no longer "
        "repay a trial."
    )
    storage: str | None = option(
        metavar="URL",
        help="Database of a study shared by several tuners. [default: HVDTUNE_STORAGE, else a "
        "file in the run folder]",
    )
    study_name: str | None = option(
        help="Name of the shared study. [default: derived from the job]"
    )
    keep_timelines: int | None = option(
        type=WholeNumber(0),
        help="Number of latest trials whose timelines are kept, in addition to the best trial's; "
        "0: keep no timeline. [default: 3]",
    )
    no_drift: bool = flag(
        help="Do not test the setting again after the verdict, even if the step time changes."
    )
    ignore_earlier: bool = flag(help="Ignore results of earlier launches of this job.")
    probe_share: float | None = option(
        type=Number(0, 0.5),
        help="Fraction of training time spent re-testing an unproven setting against the default "
        "(0 disables). [default: 0.02]",
    )


@dataclass(frozen=True, kw_only=True)
class AutotuneOptions:
    """The search during one run of the script, as Horovod's autotuner does it."""

    autotune: bool | None = switch(help="Tune during one run of the script.")
    autotune_log_file: Path | None = option(help="Write a table of the trials to this CSV file.")
    autotune_warmup_samples: int | None = _silent(type=WholeNumber(0))
    autotune_steps_per_sample: int | None = _silent()
    autotune_bayes_opt_max_samples: int | None = option(
        help="Number of settings --autotune tries. [default: 20]"
    )
    autotune_gaussian_process_noise: float | None = _silent(type=Number(0, 1))


@dataclass(frozen=True, kw_only=True)
class RestartOptions:
    """Measurements that start the command again."""

    mode: Literal["live", "restart"] | None = option(
        help="live: change settings while the script runs. restart: start any command once per "
        "measurement. [default: live]"
    )
    adapter: Literal["hvdtune", "horovod", "ddp", "command"] | None = option(
        help="Runtime to tune with --mode restart. horovod: by Horovod's variables; ddp: torch's "
        "DistributedDataParallel; command: only by the variables of --vary. [default: hvdtune]"
    )
    vary: tuple[str, ...] = option(
        default=(),
        metavar="NAME=A,B",
        help="Tune an environment variable in --mode restart; NAME=LOW..HIGH gives a range. May be "
        "repeated.",
    )
    metric_regex: str | None = option(
        type=_regex,
        metavar="REGEX",
        help="Read a step's seconds from the output, as in 'step_time: ([0-9.]+)', or a rate, as "
        "in '(?P<rate>[0-9.]+) img/s'. [default: the ranks' steps, else the command's wall time]",
    )
    launch_time: float | None = duration(
        help="Time to measure in each launch when every setting has its own launch. [default: 3s]"
    )


@dataclass(frozen=True, kw_only=True)
class ElasticOptions:
    """Jobs whose ranks come and go."""

    min_num_proc: int | None = option(
        "--min-np", "--min-num-proc", help="Elastic: minimum number of ranks. [default: -np, or 1]"
    )
    max_num_proc: int | None = option(
        "--max-np",
        "--max-num-proc",
        help="Elastic: maximum number of ranks. [default: -np, all with a discovery script]",
    )
    host_discovery_script: str | None = option(
        metavar="COMMAND",
        help="Elastic: command to run every second. It must print a line 'host' or 'host:slots' "
        "for each host.",
    )
    elastic_timeout: float | None = option(
        help="Elastic: seconds to wait while there are too few ranks. [default: 600]"
    )
    reset_limit: int | None = option(
        type=WholeNumber(0),
        help="Elastic: maximum number of resets; one more ends the job. [default: none]",
    )
    blacklist_cooldown_range: tuple[int, int] | None = option(
        type=WholeNumber(1, 3600),
        nargs=2,
        metavar="FIRST MOST",
        help="Elastic: seconds until a slot whose process failed is used again: FIRST after the "
        "first failure, doubled after each further failure, at most MOST. [default: never]",
    )
    resume: bool = flag(
        help="Elastic: continue the job in the folder given with -o, after the job's launcher was "
        "killed."
    )


@dataclass(frozen=True, kw_only=True)
class MpiOptions:
    """The launcher of the ranks: hvdtune's own or mpirun."""

    mpi_args: str | None = option(help="Further arguments for mpirun, with --mpi.")
    tcp: bool = flag(help="Let MPI use TCP only, with --mpi.")
    binding_args: str | None = option(
        help="Arguments for mpirun that bind ranks to cores. "
        "[default of Open MPI: --bind-to none --map-by slot]"
    )
    # A key of the configuration file; the flags below override it.
    controller: Literal["gloo", "mpi"] | None = option(hidden=True)
    gloo: bool = flag(help="Start the ranks with hvdtune's own launcher. [default]")
    mpi: bool = flag(help="Start the ranks with mpirun.")
    jsrun: bool = flag(hidden=True)


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Options that print something and end, and the configuration file."""

    version: bool = flag(
        "--version", "-v", is_eager=True, callback=show_version, help="Print the version."
    )
    check_build: bool = flag(
        "--check-build",
        "-cb",
        is_eager=True,
        callback=_show_build,
        help="Show frameworks, controllers and operations.",
    )
    config_file: Path | None = option(
        is_eager=True,
        callback=_read_file,
        help="Read options from a YAML file in Horovod's format; the command line overrides the "
        "file.",
    )


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Run a script on several processes; with --trials, tune its knobs while it runs.

    Options may stand before or after a script. After a *.py script, the options listed here from
    --num-proc to --knobs are hvdtune's, and all others are the script's own. After any other
    command word (python, bash, ...) everything belongs to the command. `--` ends hvdtune's
    options. All options of horovodrun are known; docs/horovodrun.md explains each of them.

    \b
    hvdtune run -np 2 train.py --lr 0.1 --trials 40
    hvdtune run -np 2 -- train.py --seed 7
    hvdtune run -H 127.0.0.1:2,127.0.0.2:2 python train.py --lr 0.1
    """

    command: list[str] = required(
        Argument, nargs=-1, metavar="SCRIPT", help="Script or command, and its arguments."
    )
    placement: PlacementOptions = PlacementOptions()
    ranks: RankOptions = RankOptions()
    output: OutputOptions = OutputOptions()
    knobs: KnobOptions = KnobOptions()
    timeline: TraceOptions = TraceOptions()
    study: StudyOptions = StudyOptions()
    autotune: AutotuneOptions = AutotuneOptions()
    restart: RestartOptions = RestartOptions()
    elastic: ElasticOptions = ElasticOptions()
    mpi: MpiOptions = MpiOptions()
    pages: PageOptions = PageOptions()


OF_HOROVOD: Final = frozenset(rows_of(RunOptions)).difference(
    _OWN_ROWS, rows_of(StudyOptions), rows_of(RestartOptions)
)
