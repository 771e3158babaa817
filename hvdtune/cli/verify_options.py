"""The options of `hvdtune verify`, `aa` and `compare`: run's options without those of a search."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from hvdtune.cli.options import RunCommand, RunOptions
from hvdtune.cli.parameters import WholeNumber, option, required

# The options of run that only a search needs, and --profile, which is --a here.
_OF_A_SEARCH: Final = frozenset(
    {
        "trials", "knobs", "profile", "check_build", "space", "objective", "sampler", "step_budget",
        "train_steps", "storage", "study_name", "keep_timelines", "no_drift", "probe_share",
        "ignore_earlier",
    }
)  # fmt: skip


_OF_RESTARTS: Final = frozenset({"mode", "adapter", "vary", "metric_regex", "launch_time"})


@dataclass(frozen=True, kw_only=True)
class CompareOptions(RunOptions):
    """The options that all of them take."""

    pairs: int | None = option(
        type=WholeNumber(6),
        help="Number of pairs to measure. [default: as many as it takes to prove a gain of 1 %, "
        "20 to 120; for aa 20]",
    )


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(CompareOptions):
    """Verify that a script is faster with setting B than with setting A.

    Measures pairs of A and B in at least three launches of the script, then ends the script. The
    exit code is 0 if B is faster, 3 if it is not or if the gain is too small to tell from noise,
    and 4 if the measurements are too noisy to tell.

    A setting is a profile, the verdict.json of a study, whose candidate is then taken, or a YAML
    file of 'knob: value' lines. Options that name knobs hold for A and B where the files do not
    name them.

    \b
    hvdtune verify --b profile.yaml -np 2 train.py
    hvdtune verify --a old.yaml --b new.yaml -H 127.0.0.1:2,127.0.0.2:2 train.py
    """

    b: Path = required(click.Option, "--b", type=Path, metavar="FILE", help="Setting B.")
    a: Path | None = option(
        type=Path, metavar="FILE", help="Setting A. [default: the default setting]"
    )


@dataclass(frozen=True, kw_only=True)
class AaOptions(CompareOptions):
    """Measure the noise floor: the difference that a setting shows against itself.

    Measures pairs of one setting with itself in three launches of the script, then ends the
    script. The exit code is 0, or 4 if proving a gain of 1 % would take more pairs than a
    verification measures.

    \b
    hvdtune aa -np 2 train.py
    """


@dataclass(frozen=True, kw_only=True)
class VariantOptions(CompareOptions):
    """Measure which of two versions of a script's code is faster, within one run of it.

    The script says hvd.variant("NAME") or hvd.knob("NAME", [...]) where it has two ways. Its ranks
    switch between them together, in short interleaved blocks of steps; then the script is ended.
    The exit code is 0 if the version that is named is faster, 3 if it is not or if the gain is too
    small to tell from noise, and 4 if the measurements are too noisy to tell.

    \b
    hvdtune compare -np 2 train.py --variant fused_adam
    hvdtune compare -np 2 train.py --variant accumulate=4
    """

    variant: str = required(
        click.Option,
        "--variant",
        metavar="NAME[=VALUE]",
        help="Variant or knob of the script, and the value to compare with the one in use.",
    )


class CompareCommand(RunCommand):
    """Leaves out the options of a search and lists the settings to compare first."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        params = [option for option in super().get_params(ctx) if not is_of_a_search(option.name)]
        return sorted(params, key=lambda option: option.name not in ("a", "b", "variant", "pairs"))


class AaCommand(CompareCommand):
    """Leaves out the time budget as well, because `aa` has nothing to plan."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [option for option in super().get_params(ctx) if option.name != "time_budget"]


class VariantCommand(CompareCommand):
    """Leaves out what starts the script for each measurement, as the code changes in a live run."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [option for option in super().get_params(ctx) if option.name not in _OF_RESTARTS]


def is_of_a_search(name: str | None) -> bool:
    """Whether only a search needs the option."""
    return name is not None and (name in _OF_A_SEARCH or name.startswith("autotune"))


verify = CompareCommand("verify", VerifyOptions)
aa = AaCommand("aa", AaOptions)
compare = VariantCommand("compare", VariantOptions)
