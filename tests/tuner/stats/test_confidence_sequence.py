import math
import random

import pytest

from hvdtune.tuner.stats.confidence_sequence import (
    LEAST_VALUES,
    interval_after_any_launch,
    interval_at_any_time,
)
from hvdtune.tuner.stats.estimates import estimate


def ever_misses(source: random.Random, looks: int) -> tuple[bool, bool]:
    """Whether any of many looks misses the mean 0: this interval, and that of a single look."""
    values = [source.gauss(0.0, 0.05) for _ in range(looks)]
    found = [
        (interval_at_any_time(values[:n]), estimate(values[:n]))
        for n in range(LEAST_VALUES, looks + 1, 2)
    ]
    return (
        any(not own.low <= 0 <= own.high for own, _ in found),
        any(not single.low <= 0 <= single.high for _, single in found),
    )


def test_looking_all_the_time_claims_something_of_nothing_seldom() -> None:
    source = random.Random(1)
    own, single = zip(*(ever_misses(source, 150) for _ in range(200)), strict=True)
    assert sum(own) <= 10
    assert sum(single) > 25  # what looking costs without it


def test_a_difference_is_shown_in_the_end() -> None:
    source = random.Random(2)
    values = [source.gauss(0.02, 0.05) for _ in range(400)]
    assert interval_at_any_time(values).low > 0


@pytest.mark.parametrize("count", [1, LEAST_VALUES - 1])
def test_too_few_values_have_no_interval(count: int) -> None:
    found = interval_at_any_time([0.1] * count)
    assert (found.low, found.high) == (-math.inf, math.inf)


def claimed_of_launches(source: random.Random, gain: float, launches: int) -> int:
    """After how many launches the gain is shown, 0: after none of them."""
    levels = []
    for count in range(1, launches + 1):
        level, pairs = source.gauss(gain, 0.01), source.choice([3, 7, 20])
        levels.append(level + source.gauss(0.0, 0.04 / math.sqrt(pairs)))
        if interval_after_any_launch(levels).low > 0:
            return count
    return 0


def test_a_setting_like_the_default_is_seldom_claimed_however_many_launches_are_looked_at() -> None:
    source = random.Random(3)
    jobs = 400
    claims = sum(claimed_of_launches(source, 0.0, 20) > 0 for _ in range(jobs))
    # One side of the 95 %, and a twentieth would be of both.
    assert claims <= 0.05 * jobs


def test_a_gain_is_shown_by_a_handful_of_launches() -> None:
    source = random.Random(4)
    after = sorted(claimed_of_launches(source, 0.08, 20) for _ in range(100))
    assert after[0] > 2 and after[50] <= 6


def test_launches_hold_the_mean_at_whatever_launch_one_stops() -> None:
    source = random.Random(5)
    held = 0
    for _ in range(200):
        levels = [source.gauss(0.02, 0.01) for _ in range(3)]
        while (found := interval_after_any_launch(levels)).low <= 0 and len(levels) < 15:
            levels.append(source.gauss(0.02, 0.01))
        held += found.low <= 0.02 <= found.high
    assert held >= 190


@pytest.mark.parametrize("launches", [1, 2])
def test_so_few_launches_have_no_interval(launches: int) -> None:
    found = interval_after_any_launch([0.1] * launches)
    assert (found.low, found.high) == (-math.inf, math.inf)
