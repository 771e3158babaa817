import random

from simulated_job import DEFAULT

from hvdtune.tuner.statistics import from_percent
from hvdtune.tuner.verdict import judge, keep_default

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
    verdict = judge(CANDIDATE, DEFAULT, launches(0.02, 0.02, sd=0.002), floor=0.03)

    assert verdict.ci_percent is not None
    assert verdict.ci_percent[0] > 0
    assert verdict.kind == "default"
    assert "by more than 3.0 %" in verdict.text


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
