"""The options of `hvdtune verify` and `hvdtune aa`: those of run that launch, and more."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from hvdtune.cli.options import RunCommand, RunOptions

_COMPARISON: Final = "Comparison"
# Of run's, what only a search has, and --profile, which is --a here.
_OF_A_SEARCH: Final = frozenset(
    {
        "trials", "knobs", "profile", "check_build", "space", "objective", "sampler", "step_budget",
        "train_steps", "storage", "study_name", "keep_timelines", "no_drift",
    }
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CompareOptions(RunOptions):
    """What both take."""

    pairs: Annotated[
        int | None,
        typer.Option(
            "--pairs",
            rich_help_panel=_COMPARISON,
            min=6,
            help="Pairs to measure. [default: as many as a gain of 1 % takes, 20 to 120; aa: 20]",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(CompareOptions):
    """Verify that a script is faster with setting B than with setting A.

    Measures pairs of A and B in at least three launches of the script, and ends it. Exit code 0:
    B is faster. 3: it is not, or by too little to tell from noise. 4: too noisy to tell.

    A setting is a profile, a study's verdict.json (its candidate) or a YAML file of 'knob: value'
    lines. Options of run that name knobs hold for A and B alike where these do not name them.

    \b
    hvdtune verify --b profile.yaml -np 2 train.py
    hvdtune verify --a old.yaml --b new.yaml -H 127.0.0.1:2,127.0.0.2:2 train.py
    """

    b: Annotated[
        Path, typer.Option("--b", rich_help_panel=_COMPARISON, metavar="FILE", help="Setting B.")
    ]
    a: Annotated[
        Path | None,
        typer.Option(
            "--a",
            rich_help_panel=_COMPARISON,
            metavar="FILE",
            help="Setting A. [default: the default setting]",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class AaOptions(CompareOptions):
    """Measure a script against itself: what difference is no difference on this machine.

    Measures pairs of one setting with itself in three launches of the script, and ends it. Exit
    code 0, or 4 where a gain of 1 % would take more pairs than a verification has.

    \b
    hvdtune aa -np 2 train.py
    """


class CompareCommand(RunCommand):
    """Run's options without those of a search, the settings to compare first."""

    def get_params(self, ctx: Any) -> list[Any]:
        params = [option for option in super().get_params(ctx) if not _is_of_a_search(option.name)]
        return sorted(params, key=lambda option: option.name not in ("a", "b", "pairs"))


class AaCommand(CompareCommand):
    """Without a limit of time: there is nothing to plan."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [option for option in super().get_params(ctx) if option.name != "time_budget"]


def _is_of_a_search(name: str | None) -> bool:
    return name is not None and (name in _OF_A_SEARCH or name.startswith("autotune"))
