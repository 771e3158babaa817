"""The options of `hvdtune run`: one row each, which is the parser, the help and the value.

Options that only horovodrun has are in `horovod_options.py`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from typer.core import TyperCommand, TyperOption

from hvdtune.cli.horovod_options import CONFIG_FILE, HorovodOptions
from hvdtune.cli.split import split_command
from hvdtune.errors import UsageError

# Options under a heading of the help.
_knob = partial(typer.Option, rich_help_panel="Knobs")
_timeline = partial(typer.Option, rich_help_panel="Timeline")
_tuning = partial(typer.Option, rich_help_panel="Tuning")

_DURATION: Final = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


def parse_duration(text: str) -> float:
    """Seconds in `90`, `90s`, `8m`, `1h30m`. Raises BadParameter unless they are more than zero."""
    match = _DURATION.fullmatch(text.strip().lower())
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0, 0, 0)
    total = hours * 3600 + minutes * 60 + seconds
    if total <= 0:
        raise typer.BadParameter(f"'{text}' is not a time such as 90, 90s, 8m or 1h30m")
    return total


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

    command: Annotated[
        list[str], typer.Argument(help="Script or command, and its arguments.", metavar="SCRIPT")
    ]
    num_proc: Annotated[
        int | None,
        typer.Option(
            "--num-proc", "-np", min=1, help="Number of processes. [default: all slots of -H, or 1]"
        ),
    ] = None
    hosts: Annotated[
        str | None, typer.Option("--hosts", "-H", help="Hosts and slots, as in a:2,b:2.")
    ] = None
    hostfile: Annotated[
        Path | None,
        typer.Option("--hostfile", "-hostfile", help="File with a line 'host slots=N' per host."),
    ] = None
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir",
            "-o",
            help="Folder for the run's files. With --trials, a study found there is continued. "
            "[default with --trials: the latest unfinished run of this script, else "
            "runs/SCRIPT-TIME]",
        ),
    ] = None
    start_timeout: Annotated[
        float | None,
        typer.Option(
            min=1, help="Seconds that ranks in hvd.init() wait for the last one. [default: 30]"
        ),
    ] = None
    heartbeat_timeout: Annotated[
        float | None,
        typer.Option(
            min=1,
            max=86400,
            help="Seconds of silence after which a rank counts as lost. [default: 2]",
        ),
    ] = None
    transport: Annotated[
        Literal["auto", "tcp"] | None,
        typer.Option(help="auto: shared memory within a host, TCP between hosts. [default: auto]"),
    ] = None
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", help="Report the start of each rank and, when tuning, show its output."
        ),
    ] = False

    fusion_threshold_mb: Annotated[
        float | None, _knob(min=0, help="Largest bucket in MiB; 0: reduce each tensor alone.")
    ] = None
    cycle_time_ms: Annotated[
        float | None,
        _knob(min=0, help="Milliseconds to collect tensors that are then announced together."),
    ] = None
    cache_capacity: Annotated[
        int | None, _knob(min=0, help="Number of tensors that the response cache remembers.")
    ] = None
    hierarchical_allreduce: Annotated[bool | None, _knob(help="Reduce within each host first.")] = (
        None
    )
    profile: Annotated[
        Path | None, _knob(help="Use the setting of this profile.yaml of a study.")
    ] = None
    fix: Annotated[
        list[str] | None,
        _knob(
            metavar="KNOB=VALUE", help="Set a knob and keep it out of the search; may be repeated."
        ),
    ] = None

    timeline_filename: Annotated[
        Path | None,
        _timeline(help="Write a trace of all ranks to this file, for `hvdtune timeline view`."),
    ] = None
    timeline_max_mb: Annotated[
        float | None,
        _timeline(
            min=1,
            help="MiB of raw trace to keep per rank. [default: all; 16 with --trials]",
        ),
    ] = None
    timeline_when_full: Annotated[
        Literal["ring", "stop"] | None,
        _timeline(
            help="What happens at --timeline-max-mb. ring: the oldest records are dropped; stop: "
            "recording ends. [default: ring]"
        ),
    ] = None
    timeline_steps: Annotated[
        str | None,
        _timeline(
            metavar="FIRST:END",
            help="Record only these steps, as in 100:120; ::50 means every 50th. [default: all]",
        ),
    ] = None
    timeline_format: Annotated[
        Literal["chrome", "horovod"] | None,
        _timeline(
            help="Format of the trace. chrome: all ranks, for Perfetto and `hvdtune timeline`; "
            "horovod: as Horovod writes it. [default: chrome; horovod if HOROVOD_TIMELINE "
            "names the file]"
        ),
    ] = None

    trials: Annotated[int | None, _tuning(min=1, help="Number of settings to try.")] = None
    time_budget: Annotated[
        float | None,
        _tuning(
            parser=parse_duration, metavar="TIME", help="Time that the study may take, as in 8m."
        ),
    ] = None
    seed: Annotated[int, _tuning(help="Seed of the search.")] = 0
    knobs: Annotated[str | None, _tuning(metavar="A,B", help="Search only these knobs.")] = None
    as_json: Annotated[
        bool,
        _tuning(
            "--json", help="Print the verdict as JSON on stdout and everything else on stderr."
        ),
    ] = False
    space: Annotated[
        Path | None,
        _tuning(metavar="FILE", help="YAML file with the range or choices of each knob."),
    ] = None
    objective: Annotated[
        list[str] | None,
        _tuning(
            metavar="NAME",
            help="step_time, samples_per_s, exposed_communication or cpu_time; may be repeated: "
            "several give a Pareto set, of which the first is verified. [default: step_time]",
        ),
    ] = None
    sampler: Annotated[
        Literal["tpe", "gp", "cmaes", "random", "grid", "noisy_gp"] | None,
        _tuning(
            help="Algorithm that proposes settings. [default: noisy_gp; tpe with several "
            "objectives]"
        ),
    ] = None
    step_budget: Annotated[int | None, _tuning(min=1, help="Steps that the study may take.")] = None
    train_steps: Annotated[
        int | None,
        _tuning(
            min=1,
            help="Steps of the whole training. Tuning stops where the steps left can no longer "
            "repay a trial.",
        ),
    ] = None
    mode: Annotated[
        Literal["live", "restart"] | None,
        _tuning(
            help="live: change settings while the script runs. restart: start any command once per "
            "measurement. [default: live]"
        ),
    ] = None
    adapter: Annotated[
        Literal["hvdtune", "horovod", "ddp", "command"] | None,
        _tuning(
            help="The runtime that --mode restart tunes. horovod: by Horovod's variables; ddp: "
            "torch's DistributedDataParallel; command: only by the variables of --vary. "
            "[default: hvdtune]"
        ),
    ] = None
    vary: Annotated[
        list[str] | None,
        _tuning(
            metavar="NAME=A,B",
            help="Tune an environment variable in --mode restart; NAME=LOW..HIGH gives a range. "
            "May be repeated.",
        ),
    ] = None
    metric_regex: Annotated[
        str | None,
        _tuning(
            metavar="REGEX",
            help="Read a step's seconds from the output, as in 'step_time: ([0-9.]+)', or a rate, "
            "as in '(?P<rate>[0-9.]+) img/s'. [default: the ranks' steps, else the command's "
            "wall time]",
        ),
    ] = None
    launch_time: Annotated[
        float | None,
        _tuning(
            parser=parse_duration,
            metavar="TIME",
            help="How long to measure each launch in --mode restart. [default: 3s]",
        ),
    ] = None
    storage: Annotated[
        str | None,
        _tuning(
            metavar="URL",
            help="Database of a study that several tuners share. [default: HVDTUNE_STORAGE, else a"
            " file in the run folder]",
        ),
    ] = None
    study_name: Annotated[
        str | None, _tuning(help="Name of the shared study. [default: made of what is tuned]")
    ] = None
    keep_timelines: Annotated[
        int | None,
        _tuning(
            min=0,
            help="Keep the timelines of the best trial and of this many latest ones; 0: none. "
            "[default: 3]",
        ),
    ] = None
    no_drift: Annotated[
        bool,
        _tuning(
            "--no-drift",
            help="Do not test the setting again when the training changes its pace after the "
            "verdict.",
        ),
    ] = False


class RunCommand(TyperCommand):
    """Sorts our options out of the script's before the parser sees them."""

    def get_params(self, ctx: Any) -> list[Any]:
        # The help lists the options that only horovodrun has last.
        return sorted(super().get_params(ctx), key=lambda option: option.name in _BEFORE_ONLY)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options = [option for option in self.get_params(ctx) if isinstance(option, TyperOption)]
        behind = [option for option in options if option.name not in _BEFORE_ONLY]
        ours, command = split_command(args, _spellings(options), _spellings(behind))
        try:
            return super().parse_args(ctx, [*ours, "--", *command])
        except typer.BadParameter as error:
            option = next((option for option in options if option is error.param), None)
            leaf = ctx.meta.get(CONFIG_FILE, {}).get(option.name) if option else None
            if option is None or leaf is None or any(_named(word, option) for word in ours):
                raise
            raise UsageError(f"{leaf.where}: {leaf.key}: {error.message}") from None


# Scripts often have options of these names: behind a script they are the script's.
_BEFORE_ONLY: Final = frozenset(field.name for field in fields(HorovodOptions)) | {
    "seed", "verbose", "output_dir", "profile", "help", "as_json", "a", "b", "pairs",
    "space", "objective", "sampler", "step_budget", "train_steps",
    "mode", "adapter", "vary", "metric_regex", "launch_time",
    "storage", "study_name", "keep_timelines", "no_drift",
}  # fmt: skip


def _named(word: str, option: TyperOption) -> bool:
    return word.partition("=")[0] in (*option.opts, *option.secondary_opts)


def _spellings(options: Iterable[TyperOption]) -> dict[str, int]:
    return {
        spelling: 0 if option.is_flag else option.nargs
        for option in options
        for spelling in (*option.opts, *option.secondary_opts)
    }
