import math

import numpy as np
import pytest

from hvdtune.tuner.search.beliefs import MeasuredLaunches, believed_after
from hvdtune.tuner.stats.estimates import Noise, estimate_over_launches
from hvdtune.tuner.stats.launch_levels import levels_of
from hvdtune.tuner.stats.posterior import REACH, Posterior

PAIR_SD = 0.04


def test_one_launch_says_less_of_others_than_of_itself() -> None:
    reading = Posterior(0.05, 0.01)
    levels = levels_of([reading], PAIR_SD)
    assert levels.level(0).mean == pytest.approx(0.05)
    assert levels.level(0).sd == pytest.approx(0.01, rel=0.01)
    assert levels.over_launches.mean == pytest.approx(0.05)
    assert levels.over_launches.sd > 2 * levels.level(0).sd
    assert levels.next_launch.sd > levels.over_launches.sd


def test_launches_that_agree_are_surer_than_any_of_them_and_are_alike() -> None:
    readings = [Posterior(mean, 0.01) for mean in (0.049, 0.050, 0.051, 0.050, 0.050)]
    levels = levels_of(readings, PAIR_SD)
    assert levels.over_launches.mean == pytest.approx(0.05, abs=0.001)
    assert 0.01 / math.sqrt(5) < levels.over_launches.sd < 0.01
    assert levels.spread < 0.02


def test_launches_that_differ_are_believed_to() -> None:
    readings = [Posterior(mean, 0.005) for mean in (0.10, -0.08, 0.02, -0.05, 0.06)]
    levels = levels_of(readings, PAIR_SD)
    assert levels.spread > 0.05
    assert levels.over_launches.sd > 0.02
    assert levels.level(0).mean > 0.08 and levels.level(1).mean < -0.06


@pytest.mark.parametrize("launch_sd", [0.0, 0.01, 0.04])
def test_what_is_expected_lies_within_the_interval_of_the_fresh_pairs(launch_sd: float) -> None:
    draw = np.random.default_rng(1)
    held, settings = 0, 100
    for _ in range(settings):
        levels = launch_sd * draw.standard_normal(5)
        fresh = {
            launch: (level + PAIR_SD * draw.standard_normal(5)).tolist()
            for launch, level in enumerate(levels[1:], 1)
        }
        alone = estimate_over_launches(list(fresh.values()))
        search = Posterior(float(levels[0] + 0.01 * draw.standard_normal()) + 0.02, 0.01)
        launches = MeasuredLaunches(frozenset({0}), fresh, latest=4)
        found = believed_after(search, launches, Noise(PAIR_SD, 8))
        assert alone.low <= found.over_launches.mean <= alone.high
        assert not found.is_of_one
        held += abs(found.over_launches.mean) <= REACH * found.over_launches.sd
    # Where launches differ by as much as pairs do, ranges are narrower than they should be.
    assert held >= (0.9 if launch_sd < PAIR_SD else 0.75) * settings


def test_a_reading_of_the_search_that_fresh_launches_exclude_counts_no_more() -> None:
    fresh = {launch: [0.004, 0.003, 0.005, 0.004] for launch in range(1, 6)}
    launches = MeasuredLaunches(frozenset({0}), fresh, latest=5)
    lucky = believed_after(Posterior(0.068, 0.006), launches, Noise(0.002, 8))
    modest = believed_after(Posterior(0.0041, 0.006), launches, Noise(0.002, 8))
    assert lucky.over_launches.mean == pytest.approx(0.004, abs=1e-4)
    assert modest.over_launches.mean == pytest.approx(0.004, abs=1e-4)
    assert lucky.search.mean == 0.068


def test_fresh_pairs_of_the_launch_of_the_search_are_of_one_launch_still() -> None:
    launches = MeasuredLaunches(frozenset({0}), {0: [0.02, 0.03, 0.01, 0.02]}, latest=0)
    found = believed_after(Posterior(0.02, 0.01), launches, Noise(0.01, 8))
    assert found.is_of_one and found.chosen_by(goes_on=True) == found.here
    shown = found.shown(goes_on=True)
    assert shown.scope == "in this launch" and shown.others_percent is not None
    assert shown.others_percent[0] < shown.low_percent
    assert shown.others_percent[1] > shown.high_percent
    assert found.shown(goes_on=False).scope == "over launches"
