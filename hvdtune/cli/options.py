"""The options of `hvdtune run`: one row each, which is the parser, the help and the value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer
from typer.core import TyperCommand, TyperOption

from hvdtune.cli.duration import parse_duration
from hvdtune.cli.split import split_command

_KNOBS: Final = "Knobs"
_TIMELINE: Final = "Timeline"
_TUNING: Final = "Tuning"


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Run a script on several processes; with --trials, tune its knobs while it runs.

    Options may stand before or after a script: after a *.py script those below are hvdtune's and
    all others the script's own. After any other command word (python, bash, ...) everything
    belongs to the command. `--` ends hvdtune's options.

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
        Path | None, typer.Option("--hostfile", help="File of 'host slots=N' lines.")
    ] = None
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir",
            "-o",
            help="Folder for what the run leaves. With --trials a study there is continued. "
            "[default with --trials: the latest unfinished run of this script, else "
            "runs/SCRIPT-TIME]",
        ),
    ] = None
    start_timeout: Annotated[
        float | None,
        typer.Option(
            "--start-timeout", min=1, help="Seconds until all have called hvd.init(). [default: 30]"
        ),
    ] = None
    heartbeat_timeout: Annotated[
        float | None,
        typer.Option(
            "--heartbeat-timeout",
            min=1,
            max=86400,
            help="Seconds until a silent rank is lost. [default: 2]",
        ),
    ] = None
    transport: Annotated[
        Literal["auto", "tcp"] | None,
        typer.Option("--transport", help="auto: shared memory within a host. [default: auto]"),
    ] = None
    verbose: Annotated[
        bool,
        typer.Option("--verbose", help="More: the start of each rank; its output when tuning."),
    ] = False

    fusion_threshold_mb: Annotated[
        float | None,
        typer.Option(rich_help_panel=_KNOBS, min=0, help="Bucket size in MB; 0 reduces alone."),
    ] = None
    cycle_time_ms: Annotated[
        float | None,
        typer.Option(rich_help_panel=_KNOBS, min=0, help="How long tensors are collected, in ms."),
    ] = None
    cache_capacity: Annotated[
        int | None,
        typer.Option(rich_help_panel=_KNOBS, min=0, help="Tensors the response cache remembers."),
    ] = None
    hierarchical_allreduce: Annotated[
        bool | None,
        typer.Option(
            "--hierarchical-allreduce/--no-hierarchical-allreduce",
            rich_help_panel=_KNOBS,
            help="Reduce within each host first.",
        ),
    ] = None
    profile: Annotated[
        Path | None,
        typer.Option(rich_help_panel=_KNOBS, help="Setting from a study's profile.yaml."),
    ] = None
    fix: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=_KNOBS,
            metavar="KNOB=VALUE",
            help="Set a knob and keep it out of the search; may be repeated.",
        ),
    ] = None

    timeline_filename: Annotated[
        Path | None,
        typer.Option(
            rich_help_panel=_TIMELINE, help="Trace of all ranks, for `hvdtune timeline view`."
        ),
    ] = None
    timeline_max_mb: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=_TIMELINE,
            min=1,
            help="Raw trace kept per rank, the oldest goes first. [default: all; 16 with --trials]",
        ),
    ] = None

    trials: Annotated[
        int | None, typer.Option(rich_help_panel=_TUNING, min=1, help="Settings to try.")
    ] = None
    time_budget: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=_TUNING,
            parser=_duration,
            metavar="TIME",
            help="Time for the study, as in 8m.",
        ),
    ] = None
    seed: Annotated[int, typer.Option(rich_help_panel=_TUNING, help="Seed of the search.")] = 0
    knobs: Annotated[
        str | None,
        typer.Option(rich_help_panel=_TUNING, metavar="A,B", help="Search only these knobs."),
    ] = None


class RunCommand(TyperCommand):
    """Sorts our options out of the script's before the parser sees them."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spellings = {
            spelling: not option.is_flag
            for option in self.get_params(ctx)
            if isinstance(option, TyperOption)
            for spelling in (*option.opts, *option.secondary_opts)
        }
        ours, command = split_command(args, spellings)
        return super().parse_args(ctx, [*ours, "--", *command])
