import random
import re

import pytest

from hvdtune.tuner.stats.estimates import from_percent
from hvdtune.tuner.stats.verdict import A_AND_B, judge, nothing_verified
from tests.kit.simulated_job import DEFAULT

CANDIDATE = {**DEFAULT, "cycle_time_ms": 0.2}
EXIT_CODES = {"improved": 0, "default": 3, "unstable": 3, "noisy": 4}


def launches(*levels: float, sd: float = 0.01, pairs: int = 8) -> list[list[float]]:
    source = random.Random(4)
    return [[source.gauss(level, sd) for _ in range(pairs)] for level in levels]


def test_a_gain_below_the_noise_floor_is_no_improvement() -> None:
    verdict = judge(CANDIDATE, DEFAULT, launches(0.005, 0.005, sd=0.0005), floor=0.008)

    assert verdict.ci_percent is not None
    assert verdict.ci_percent[0] > 0
    assert verdict.kind == "default"
    assert "by more than 0.8 %" in verdict.text


@pytest.mark.parametrize(
    ("levels", "sd", "floor", "kind"),
    [
        pytest.param((0.07, 0.07, 0.07), 0.01, 0.006, "improved", id="a-gain-in-every-launch"),
        pytest.param((0.10, 0.12, 0.14), 0.01, 0.01, "improved", id="gains-of-different-size"),
        pytest.param((0.0, 0.0, 0.0), 0.01, 0.006, "default", id="no-difference"),
        pytest.param((-0.1, -0.1), 0.01, 0.01, "default", id="slower"),
        pytest.param((0.15, 0.15, -0.2), 0.01, 0.006, "unstable", id="opposite-signs"),
        pytest.param((0.3, 0.0, 0.0), 0.01, 0.01, "unstable", id="fast-in-one-launch-only"),
        pytest.param((0.0,) * 3, 0.1, 0.005, "noisy", id="4-percent-neither-shown-nor-excluded"),
        pytest.param((0.02,) * 3, 0.001, 0.03, "noisy", id="a-floor-above-the-gain"),
        pytest.param((0.0,) * 3, 0.01, 0.005, "default", id="a-gain-of-1-percent-excluded"),
        pytest.param((-0.3,) * 3, 0.1, 0.005, "default", id="wide-without-a-gain-in-it"),
        pytest.param((0.009,) * 3, 0.01, 0.012, "noisy", id="1-percent-within-the-floor"),
        # It reaches 1 %, which would have been shown.
        pytest.param((0.005,) * 3, 0.01, 0.009, "default", id="1-percent-above-the-floor"),
    ],
)
def test_the_kind_of_a_verdict_decides_the_setting_and_the_exit_code(
    levels: tuple[float, ...], sd: float, floor: float, kind: str
) -> None:
    verdict = judge(CANDIDATE, DEFAULT, launches(*levels, sd=sd), floor)

    assert (verdict.kind, verdict.improved) == (kind, kind == "improved")
    assert verdict.setting == (CANDIDATE if kind == "improved" else DEFAULT)
    assert verdict.candidate == CANDIDATE
    assert verdict.exit_code == EXIT_CODES[kind]


@pytest.mark.parametrize(
    ("levels", "sd", "floor", "pattern"),
    [
        (
            (0.07, 0.07, 0.07),
            0.01,
            0.006,
            r"\+7\..* 95 % CI over 3 launches, 24 pairs, A/A floor 0\.6 % over as many pairs",
        ),
        (
            (0.07,),
            0.01,
            0.006,
            r"\+.* 95 % CI in one launch, 8 pairs, A/A floor 0\.6 % "
            r"over as many pairs; another launch may differ",
        ),
        ((0.0,) * 3, 0.01, 0.01, r"no setting beats the default by more than 1\..*"),
        ((0.15, 0.15, -0.2), 0.01, 0.01, r".*in one launch, -1.*"),
        (
            (0.0,) * 3,
            0.1,
            0.005,
            r".*a gain of 1 % is neither proved nor excluded.*"
            r"reduce the load on the machine or verify with more pairs",
        ),
    ],
    ids=["improved", "in-one-launch", "no-difference", "unstable", "noisy"],
)
def test_a_verdict_is_one_line(
    levels: tuple[float, ...], sd: float, floor: float, pattern: str
) -> None:
    text = judge(CANDIDATE, DEFAULT, launches(*levels, sd=sd), floor).text
    assert re.fullmatch(pattern, text)


@pytest.mark.parametrize(
    ("levels", "pattern"),
    [
        ((-0.1, -0.1, -0.1), r"B is slower than A: -9\..*"),
        (
            (-0.1,),
            r".* 95 % CI in one launch, 8 pairs, A/A floor 1\.0 % "
            r"over as many pairs; another launch may differ",
        ),
    ],
)
def test_of_two_named_settings_the_slower_one_is_called_so(
    levels: tuple[float, ...], pattern: str
) -> None:
    verdict = judge(CANDIDATE, DEFAULT, launches(*levels), 0.01, wording=A_AND_B)

    assert verdict.exit_code == 3
    assert re.fullmatch(pattern, verdict.text)


@pytest.mark.parametrize(
    ("levels", "sd", "kind"),
    [
        ((0.0,), 0.01, "default"),
        ((0.0,), 0.1, "noisy"),
        ((0.1, -0.1), 0.01, "unstable"),
    ],
)
def test_whatever_few_launches_say_another_may_differ(
    levels: tuple[float, ...], sd: float, kind: str
) -> None:
    verdict = judge(CANDIDATE, DEFAULT, launches(*levels, sd=sd, pairs=20), 0.004)
    enough = judge(CANDIDATE, DEFAULT, launches(*levels, *levels, *levels, sd=sd), 0.004)

    assert verdict.kind == kind
    assert "A/A floor 0.4 % over as many pairs; another launch may differ)" in verdict.text
    assert "another launch may differ" not in enough.text


def test_without_a_candidate_the_floor_is_the_bound() -> None:
    verdict = nothing_verified(
        DEFAULT, from_percent(1.0), 6, "no setting beats the default: 40 tried"
    )

    assert verdict.text == "no setting beats the default: 40 tried (A/A floor 1.0 % over 6 pairs)"
    assert verdict.ci_percent is None
