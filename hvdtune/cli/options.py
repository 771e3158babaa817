"""The options of `hvdtune run`: one row each, which is the parser, the help and the value.

Options that only horovodrun has are in `horovod_options.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from hvdtune.cli.horovod_options import CONFIG_FILE, HorovodOptions
from hvdtune.cli.parameters import (
    Argument,
    CliCommand,
    Number,
    WholeNumber,
    flag,
    option,
    parameters_of,
    required,
    switch,
)
from hvdtune.cli.split import split_command
from hvdtune.errors import UsageError

if TYPE_CHECKING:
    from hvdtune.tuner.space.tune_options import SamplerName

_DURATION: Final = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


def parse_duration(text: str) -> float:
    """Seconds in `90`, `90s`, `8m`, `1h30m`.

    Raises BadParameter unless they are more than zero, and for 60 or more of a smaller unit, as in
    `1h90m`, which is more likely a slip.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0, 0, 0)
    total = hours * 3600 + minutes * 60 + seconds
    is_carried = (hours and minutes >= 60) or ((hours or minutes) and seconds >= 60)
    if total <= 0 or is_carried:
        raise click.BadParameter(f"'{text}' is not a time such as 90, 90s, 8m or 1h30m")
    return total


def parse_text(text: str) -> str:
    """The text. Raises BadParameter for an empty one, as of a variable that is not set."""
    if not text.strip():
        raise click.BadParameter("it is empty")
    return text


def parse_path(text: str) -> Path:
    """A path, also one whose `~` no shell has expanded. Raises BadParameter for an empty one."""
    return Path(parse_text(text)).expanduser()


@dataclass(frozen=True, kw_only=True)
class RunOptions(HorovodOptions):
    """Run a script on several processes; with --trials, tune its knobs while it runs.

    Options may stand before or after a script. After a *.py script, the options listed here from
    --num-proc to --knobs are hvdtune's, and all others are the script's own. After any other
    command word (python, bash, ...) everything belongs to the command. `--` ends hvdtune's
    options. All options of horovodrun are known; docs/horovodrun.md says what each does here.

    \b
    hvdtune run -np 2 train.py --lr 0.1 --trials 40
    hvdtune run -np 2 -- train.py --seed 7
    hvdtune run -H 127.0.0.1:2,127.0.0.2:2 python train.py --lr 0.1
    """

    command: list[str] = required(
        Argument, nargs=-1, metavar="SCRIPT", help="Script or command, and its arguments."
    )
    num_proc: int | None = option(
        "--num-proc",
        "-np",
        type=WholeNumber(1),
        help="Number of processes. [default: all slots of -H, or 1]",
    )
    hosts: str | None = option("--hosts", "-H", help="Hosts and slots, as in a:2,b:2.")
    hostfile: Path | None = option(
        "--hostfile", "-hostfile", type=Path, help="File with a line 'host slots=N' per host."
    )
    output_dir: Path | None = option(
        "--output-dir",
        "-o",
        type=Path,
        help="Folder for the run's files. With --trials, a study found there is continued. "
        "[default with --trials: the latest unfinished run of this script, else runs/SCRIPT-TIME]",
    )
    resume: bool = flag(
        help="Elastic: take over the job of the folder -o, whose launcher was killed."
    )
    workbench_python: Path | None = option(
        type=parse_path,
        metavar="PATH",
        help="Python of another environment, which has hvdtune[workbench] and does all that needs "
        "it: tuning, and merging a timeline. [default: HVDTUNE_WORKBENCH_PYTHON, else this one]",
    )
    start_timeout: float | None = option(
        type=Number(1),
        help="Seconds that ranks in hvd.init() wait for the last one. [default: 30]",
    )
    heartbeat_timeout: float | None = option(
        type=Number(1, 86400),
        help="Seconds of silence after which a rank counts as lost. [default: 2]",
    )
    transport: Literal["auto", "tcp"] | None = option(
        type=click.Choice(["auto", "tcp"]),
        help="auto: shared memory within a host, TCP between hosts. [default: auto]",
    )
    verbose: bool = flag(
        help="Report the start of each rank and its processors and, when tuning, show its output."
    )

    fusion_threshold_mb: float | None = option(
        type=Number(0), help="Largest bucket in MiB; 0: reduce each tensor alone."
    )
    cycle_time_ms: float | None = option(
        type=Number(0), help="Milliseconds to collect tensors that are then announced together."
    )
    cache_capacity: int | None = option(
        type=WholeNumber(0), help="Number of tensors that the response cache remembers."
    )
    hierarchical_allreduce: bool | None = switch(help="Reduce within each host first.")
    profile: Path | None = option(
        type=Path, help="Use the setting of this profile.yaml of a study."
    )
    fix: tuple[str, ...] = option(
        multiple=True,
        default=(),
        metavar="KNOB=VALUE",
        help="Set a knob and keep it out of the search; may be repeated.",
    )

    timeline_filename: Path | None = option(
        type=Path, help="Write a trace of all ranks to this file, for `hvdtune timeline view`."
    )
    timeline_max_mb: float | None = option(
        type=Number(1), help="MiB of raw trace to keep per rank. [default: all; 16 with --trials]"
    )
    timeline_when_full: Literal["ring", "stop"] | None = option(
        type=click.Choice(["ring", "stop"]),
        help="What happens at --timeline-max-mb. ring: the oldest records are dropped; stop: "
        "recording ends. [default: ring]",
    )
    timeline_steps: str | None = option(
        metavar="FIRST:END",
        help="Record only these steps, as in 100:120; ::50 means every 50th. [default: all]",
    )
    timeline_format: Literal["chrome", "horovod"] | None = option(
        type=click.Choice(["chrome", "horovod"]),
        help="Format of the trace. chrome: all ranks, for Perfetto and `hvdtune timeline`; "
        "horovod: as Horovod writes it. [default: chrome; horovod if HOROVOD_TIMELINE names the "
        "file]",
    )

    trials: int | None = option(type=WholeNumber(1), help="Number of settings to try.")
    time_budget: float | None = option(
        type=parse_duration, metavar="TIME", help="Time that the study may take, as in 8m."
    )
    seed: int = option(type=WholeNumber(0), default=0, help="Seed of the search.")
    knobs: str | None = option(
        metavar="A,B",
        help="Search only these knobs; `live,ddp_bucket_cap_mb`: all of a live run, then DDP's.",
    )
    as_json: bool = flag(
        "--json", help="Print the verdict as JSON on stdout and everything else on stderr."
    )
    space: Path | None = option(
        type=Path, metavar="FILE", help="YAML file with the range or choices of each knob."
    )
    objective: tuple[str, ...] = option(
        multiple=True,
        default=(),
        metavar="NAME",
        help="step_time, samples_per_s, exposed_communication or cpu_time; may be repeated: "
        "several give a Pareto set, of which the first is verified. [default: step_time]",
    )
    sampler: SamplerName | None = option(
        type=click.Choice(["tpe", "gp", "cmaes", "random", "grid", "noisy_gp"]),
        help="Algorithm that proposes settings. [default: noisy_gp; tpe with several objectives]",
    )
    step_budget: int | None = option(type=WholeNumber(1), help="Steps that the study may take.")
    train_steps: int | None = option(
        type=WholeNumber(1),
        help="Steps of the whole training. Tuning stops where the steps left can no longer repay a "
        "trial.",
    )
    mode: Literal["live", "restart"] | None = option(
        type=click.Choice(["live", "restart"]),
        help="live: change settings while the script runs. restart: start any command once per "
        "measurement. [default: live]",
    )
    adapter: Literal["hvdtune", "horovod", "ddp", "command"] | None = option(
        type=click.Choice(["hvdtune", "horovod", "ddp", "command"]),
        help="The runtime that --mode restart tunes. horovod: by Horovod's variables; ddp: torch's "
        "DistributedDataParallel; command: only by the variables of --vary. [default: hvdtune]",
    )
    vary: tuple[str, ...] = option(
        multiple=True,
        default=(),
        metavar="NAME=A,B",
        help="Tune an environment variable in --mode restart; NAME=LOW..HIGH gives a range. May be "
        "repeated.",
    )
    metric_regex: str | None = option(
        metavar="REGEX",
        help="Read a step's seconds from the output, as in 'step_time: ([0-9.]+)', or a rate, as "
        "in '(?P<rate>[0-9.]+) img/s'. [default: the ranks' steps, else the command's wall time]",
    )
    launch_time: float | None = option(
        type=parse_duration,
        metavar="TIME",
        help="How long to measure each launch where every setting has its own. [default: 3s]",
    )
    storage: str | None = option(
        metavar="URL",
        help="Database of a study that several tuners share. [default: HVDTUNE_STORAGE, else a "
        "file in the run folder]",
    )
    study_name: str | None = option(
        help="Name of the shared study. [default: made of what is tuned]"
    )
    keep_timelines: int | None = option(
        type=WholeNumber(0),
        help="Keep the timelines of the best trial and of this many latest ones; 0: none. "
        "[default: 3]",
    )
    no_drift: bool = flag(
        help="Do not test the setting again after the verdict, not even when the training changes "
        "its pace."
    )
    ignore_earlier: bool = flag(
        help="Search anew: begin with nothing that earlier launches of this job have shown."
    )
    probe_share: float | None = option(
        type=Number(0, 0.5),
        help="Go on comparing a setting that is not yet proved with the default, for this share of "
        "the training's time; 0: never. [default: 0.02]",
    )


class RunCommand(CliCommand):
    """Sorts our options out of the script's before the parser sees them; returns the options."""

    def __init__(self, name: str, options: type[RunOptions]) -> None:
        def made(command: tuple[str, ...], **values: Any) -> RunOptions:
            return options(command=[*command], **values)

        super().__init__(name, callback=made, params=parameters_of(options), help=options.__doc__)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        # The help lists the options that only horovodrun has last.
        return sorted(super().get_params(ctx), key=_is_before_only)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        behind = [option for option in options if not _is_before_only(option)]
        horovods = [option for option in options if option.name in OF_HOROVOD]
        abbreviated = [word for word in spellings(horovods) if word.startswith("--")]
        ours, command = split_command(args, spellings(options), spellings(behind), abbreviated)
        try:
            return super().parse_args(ctx, [*ours, "--", *command])
        except click.BadParameter as error:
            option = next((option for option in options if option is error.param), None)
            leaf = ctx.meta.get(CONFIG_FILE, {}).get(option.name) if option else None
            if option is None or leaf is None or any(_named(word, option) for word in ours):
                raise
            fault = error.message.rstrip(".")
            raise UsageError(f"{leaf.where}: {leaf.key}: {fault}") from None


# Scripts often have options of these names: behind a script they are the script's.
_BEFORE_ONLY: Final = frozenset(field.name for field in fields(HorovodOptions)) | {
    "seed", "verbose", "output_dir", "resume", "profile", "as_json", "a", "b", "pairs",
    "space", "objective", "sampler", "step_budget", "train_steps",
    "mode", "adapter", "vary", "metric_regex", "launch_time",
    "storage", "study_name", "keep_timelines", "no_drift", "probe_share",
    "ignore_earlier",
}  # fmt: skip


# The options that horovodrun has, too; `controller` is a key of its configuration file only.
SHARED: Final = frozenset({
    "num_proc", "hosts", "hostfile", "start_timeout", "verbose", "fusion_threshold_mb",
    "cycle_time_ms", "cache_capacity", "hierarchical_allreduce", "timeline_filename",
})  # fmt: skip
OF_HOROVOD: Final = SHARED | {field.name for field in fields(HorovodOptions)} - {"controller"}


def _is_before_only(param: click.Parameter) -> bool:
    return param.name in _BEFORE_ONLY or "--help" in param.opts


def _named(word: str, option: click.Option) -> bool:
    return word.partition("=")[0] in (*option.opts, *option.secondary_opts)


def spellings(options: Iterable[click.Option]) -> dict[str, int]:
    """Every spelling of these options, with how many values it takes."""
    return {
        spelling: 0 if option.is_flag else option.nargs
        for option in options
        for spelling in (*option.opts, *option.secondary_opts)
    }


run = RunCommand("run", RunOptions)
