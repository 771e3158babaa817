import random

import pytest

from hvdtune.tuner.stats.estimates import from_percent
from hvdtune.tuner.stats.verdict import A_AND_B, judge, keep_default
from tests.kit.simulated_job import DEFAULT

CANDIDATE = {**DEFAULT, "cycle_time_ms": 0.2}


def launches(*levels: float, sd: float = 0.01, pairs: int = 8) -> list[list[float]]:
    source = random.Random(4)
    return [[source.gauss(level, sd) for _ in range(pairs)] for level in levels]


def test_a_clear_gain_in_every_launch_is_an_improvement() -> None:
    verdict = judge(CANDIDATE, DEFAULT, launches(0.07, 0.07, 0.07), floor=0.006)

    assert verdict.improved
    assert verdict.setting == CANDIDATE
    assert verdict.text.startswith("+7.")
    assert verdict.text.endswith("95 % CI, 24 pairs, 3 launches, A/A floor 0.6 %")


def test_no_difference_keeps_the_default_and_says_the_bound() -> None:
    verdict = judge(CANDIDATE, DEFAULT, launches(0.0, 0.0, 0.0), from_percent(1.0))

    assert verdict.kind == "default"
    assert verdict.setting == DEFAULT
    assert verdict.candidate == CANDIDATE
    assert verdict.text.startswith("no setting beats the default by more than 1.")


def test_a_gain_below_the_noise_floor_is_no_improvement() -> None:
    verdict = judge(CANDIDATE, DEFAULT, launches(0.005, 0.005, sd=0.0005), floor=0.008)

    assert verdict.ci_percent is not None
    assert verdict.ci_percent[0] > 0
    assert verdict.kind == "default"
    assert "by more than 0.8 %" in verdict.text


@pytest.mark.parametrize(
    ("level", "sd", "floor", "kind"),
    [
        (0.0, 0.1, 0.005, "noisy"),  # +-4 %: neither shown nor excluded
        (0.02, 0.001, 0.03, "noisy"),  # A/A differs from itself by more than this gain
        (0.0, 0.01, 0.005, "default"),  # +-0.4 %: a gain of 1 % is excluded
        (-0.3, 0.1, 0.005, "default"),  # however wide, no gain is in it
        (0.009, 0.01, 0.012, "noisy"),
        (0.005, 0.01, 0.009, "default"),  # reaches 1 %, which would have been shown
    ],
)
def test_too_noisy_is_what_neither_shows_nor_excludes_a_gain_worth_having(
    level: float, sd: float, floor: float, kind: str
) -> None:
    assert judge(CANDIDATE, DEFAULT, launches(level, level, level, sd=sd), floor).kind == kind


def test_too_noisy_says_what_to_do() -> None:
    verdict = judge(CANDIDATE, DEFAULT, launches(0.0, 0.0, 0.0, sd=0.1), 0.005)

    assert verdict.setting == DEFAULT
    assert "\n" not in verdict.text
    assert "a gain of 1 % is neither shown nor excluded" in verdict.text
    assert verdict.text.endswith("reduce the load on the machine or verify with more --pairs")


def test_exit_codes_tell_improved_from_not_and_from_too_noisy() -> None:
    clear = judge(CANDIDATE, DEFAULT, launches(0.07, 0.07, 0.07), 0.006)
    equal = judge(CANDIDATE, DEFAULT, launches(0.0, 0.0, 0.0), 0.006)
    unstable = judge(CANDIDATE, DEFAULT, launches(0.15, 0.15, -0.2), 0.006)
    noisy = judge(CANDIDATE, DEFAULT, launches(0.0, 0.0, 0.0, sd=0.1), 0.006)

    assert [each.exit_code for each in (clear, equal, unstable, noisy)] == [0, 3, 3, 4]


def test_a_gain_of_one_launch_says_that_others_may_differ() -> None:
    verdict = judge(CANDIDATE, DEFAULT, launches(0.07), 0.006)

    assert verdict.improved
    assert verdict.text.endswith("1 launch, A/A floor 0.6 %; another launch may differ")


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
    assert "A/A floor 0.4 %; another launch may differ)" in verdict.text
    assert "another launch may differ" not in enough.text


def test_a_slower_one_of_few_launches_may_differ_too() -> None:
    verdict = judge(CANDIDATE, DEFAULT, launches(-0.1), 0.01, wording=A_AND_B)
    assert verdict.text.endswith("1 launch, A/A floor 1.0 %; another launch may differ")


def test_of_two_named_settings_the_slower_one_is_called_so() -> None:
    verdict = judge(CANDIDATE, DEFAULT, launches(-0.1, -0.1, -0.1), 0.01, wording=A_AND_B)

    assert verdict.exit_code == 3
    assert verdict.text.startswith("B is slower than A: -9.")


def test_a_slower_setting_keeps_the_default() -> None:
    assert judge(CANDIDATE, DEFAULT, launches(-0.1, -0.1), 0.01).kind == "default"


def test_launches_of_opposite_sign_are_unstable() -> None:
    verdict = judge(CANDIDATE, DEFAULT, launches(0.15, 0.15, -0.2), floor=0.01)

    assert verdict.kind == "unstable"
    assert verdict.setting == DEFAULT
    assert "in one launch, -1" in verdict.text


def test_fast_in_one_launch_and_nothing_in_the_next_is_unstable() -> None:
    assert judge(CANDIDATE, DEFAULT, launches(0.3, 0.0, 0.0), floor=0.01).kind == "unstable"


def test_launches_that_differ_in_size_only_may_improve() -> None:
    assert judge(CANDIDATE, DEFAULT, launches(0.10, 0.12, 0.14), floor=0.01).improved


def test_without_a_candidate_the_floor_is_the_bound() -> None:
    verdict = keep_default(DEFAULT, from_percent(1.0), "no setting beats the default: 40 tried")

    assert verdict.text == "no setting beats the default: 40 tried (A/A floor 1.0 %)"
    assert verdict.ci_percent is None
