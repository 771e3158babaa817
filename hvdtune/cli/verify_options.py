"""The options of `hvdtune verify`, `aa` and `compare`: run's options without those of a search."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvdtune.cli.options import AutotuneOptions, RestartOptions, RunOptions, StudyOptions
from hvdtune.cli.parameters import RowOption, WholeNumber, option, required, rows_of
from hvdtune.cli.run_command import RunCommand

# The options of run for a search only, and --profile, which is --a here.
OF_A_SEARCH: Final = frozenset({
    "profile", "check_build", *rows_of(StudyOptions), *rows_of(AutotuneOptions),
}) - {"time_budget_s", "seed"}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CompareOptions(RunOptions):
    """The options shared by `verify`, `aa` and `compare`."""

    pairs: int | None = option(
        type=WholeNumber(6),
        help="Number of pairs to measure. [default: enough to prove a gain of 1 %, 20 to 120; for "
        "aa 20]",
    )


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(CompareOptions):
    """Verify that a script is faster with setting B than with setting A.

    Measures pairs of A and B in at least three launches of the script, then ends the script. The
    exit code is 0 if B is faster, 3 if it is not or if the gain is within the noise, and 4 if the
    measurements are too noisy for a verdict.

    A setting is a profile, the verdict.json of a study (its candidate is used), or a YAML file of
    'knob: value' lines. Options for knobs apply to A and B unless the files set these knobs.

    \b
    hvdtune verify --b profile.yaml -np 2 train.py
    hvdtune verify --a old.yaml --b new.yaml -H 127.0.0.1:2,127.0.0.2:2 train.py
    """

    b: Path = required(RowOption, "--b", metavar="FILE", help="Setting B.")
    a: Path | None = option(metavar="FILE", help="Setting A. [default: the default setting]")


@dataclass(frozen=True, kw_only=True)
class AaOptions(CompareOptions):
    """Measure the noise floor: the difference of a setting to itself.

    Measures pairs of one setting with itself in three launches of the script, then ends the
    script. The exit code is 0, or 4 if proving a gain of 1 % would take more pairs than a
    verification measures.

    \b
    hvdtune aa -np 2 train.py
    """


@dataclass(frozen=True, kw_only=True)
class VariantOptions(CompareOptions):
    """Measure which of two versions of a script's code is faster, within one run of it.

    The script calls hvd.variant("NAME") or hvd.knob("NAME", [...]) to choose a version. Its ranks
    switch between the versions together, in short interleaved blocks of steps; then hvdtune ends
    the script. The exit code is 0 if the named version is faster, 3 if it is not or if the gain is
    within the noise, and 4 if the measurements are too noisy for a verdict.

    \b
    hvdtune compare -np 2 train.py --variant fused_adam
    hvdtune compare -np 2 train.py --variant accumulate=4
    """

    variant: str = required(
        RowOption,
        "--variant",
        behind=True,
        metavar="NAME[=VALUE]",
        help="Variant of the script, or a knob with the value to compare with the one in use.",
    )


verify = RunCommand("verify", VerifyOptions, OF_A_SEARCH)
# `aa` has nothing to plan, and the code of `compare` changes in a live run.
aa = RunCommand("aa", AaOptions, OF_A_SEARCH | {"time_budget_s"})
compare = RunCommand("compare", VariantOptions, OF_A_SEARCH | {*rows_of(RestartOptions)})
