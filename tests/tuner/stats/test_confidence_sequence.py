import math
import random

import pytest

from hvdtune.tuner.stats.confidence_sequence import LEAST_VALUES, interval_at_any_time
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
