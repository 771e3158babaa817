"""Which launches of a verification count."""

import numpy as np
import pytest

from hvdtune.tuner.search.verification import whole_launches
from hvdtune.tuner.stats.estimates import estimate_over_launches


@pytest.mark.parametrize(
    ("pairs", "counted"),
    [([3, 17], [17]), ([4, 1, 3, 4], [4, 3, 4]), ([2, 2, 4], [2, 2, 4]), ([5], [5]), ([], [])],
)
def test_a_launch_that_broke_off_does_not_count(pairs: list[int], counted: list[int]) -> None:
    launches = [[0.5] * count for count in pairs]
    assert [len(launch) for launch in whole_launches(launches)] == counted


def test_leaving_out_launches_that_broke_off_keeps_what_intervals_promise() -> None:
    """Five launches with levels of their own, of which any may break off: 400 times."""
    draw = np.random.default_rng(7)
    held = 0
    for _ in range(400):
        launches = []
        for level in 0.02 * draw.standard_normal(5):
            pairs = int(draw.integers(1, 9)) if draw.random() < 0.4 else 8
            launches.append((level + 0.04 * draw.standard_normal(pairs)).tolist())
        found = estimate_over_launches(whole_launches(launches))
        held += found.low <= 0 <= found.high
    assert held >= 0.93 * 400
