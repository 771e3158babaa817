import math
import random

import numpy as np
import pytest
from scipy import stats

from hvdtune.tuner.stats.estimates import (
    Estimate,
    Noise,
    estimate,
    estimate_over_launches,
    from_percent,
    launch_effect,
    noise_floor,
    noise_of,
    pairs_needed,
    pooled,
    prune_reason,
    signed_rank_p,
    to_percent,
)


def normal(seed: int, mean: float, sd: float, n: int) -> list[float]:
    source = random.Random(seed)
    return [source.gauss(mean, sd) for _ in range(n)]


def test_the_t_interval_is_scipys() -> None:
    values = normal(1, 0.05, 0.02, 12)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)

    found = estimate(values)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.n == 12


def test_one_value_has_no_interval() -> None:
    assert estimate([0.1]).high == math.inf


def test_wilcoxon_of_nothing_but_zeros_finds_nothing() -> None:
    assert signed_rank_p([0.0] * 10) == 1.0
    assert signed_rank_p(normal(1, 1.0, 0.1, 20)) < 1e-4


def test_percent_and_back() -> None:
    assert to_percent(math.log(1.073)) == pytest.approx(7.3)
    assert from_percent(to_percent(0.2)) == pytest.approx(0.2)


@pytest.mark.parametrize("launch_sd", [0.0, 0.01, 0.05])
def test_the_interval_over_launches_covers_the_truth(launch_sd: float) -> None:
    source = np.random.default_rng(7)
    covered = 0
    for _ in range(500):
        levels = source.normal(0.05, launch_sd, 3) if launch_sd else np.full(3, 0.05)
        found = estimate_over_launches([list(source.normal(level, 0.02, 8)) for level in levels])
        covered += found.low <= 0.05 <= found.high

    assert 0.92 < covered / 500 < 0.99


def test_a_long_launch_has_no_more_say_than_a_short_one() -> None:
    covered = 0
    for seed in range(400):
        source = np.random.default_rng(seed)
        sizes = (18, 3, 3)
        found = estimate_over_launches(
            [list(source.normal(source.normal(0.05, 0.02), 0.01, size)) for size in sizes]
        )
        covered += found.low <= 0.05 <= found.high

    assert covered / 400 > 0.91


def test_launches_that_agree_are_one_sample() -> None:
    values = normal(3, 0.05, 0.02, 24)
    shuffled = [values[0::3], values[1::3], values[2::3]]
    agreeing = [[value - estimate(group).mean + 0.05 for value in group] for group in shuffled]

    found = estimate_over_launches(agreeing)
    assert found == estimate([value for group in agreeing for value in group])


def test_launches_of_different_size_may_disagree() -> None:
    found = estimate_over_launches([[0.1] * 9 + [0.11], [0.0, 0.01], [-0.1]])

    assert found.df == 2
    assert found.low < 0 < found.high


def test_launches_of_opposite_sign_show() -> None:
    effect = launch_effect([normal(1, 0.15, 0.02, 8), normal(2, -0.2, 0.02, 8)])

    assert effect.high == pytest.approx(0.15, abs=0.03)
    assert effect.low == pytest.approx(-0.2, abs=0.03)
    assert effect.p < 1e-6


def test_the_calibrations_spread_steadies_two_pairs() -> None:
    noise = Noise(sd=0.02, df=8)

    assert pooled([0.05, 0.0501], noise, 0.95).stderr > 0.012
    assert pooled([0.05], noise, 0.95).df == 8


def test_a_clear_loser_is_pruned_after_two_pairs() -> None:
    assert prune_reason([-0.1, -0.12], Noise(0.02, 8), None) == "slower than the default"


def test_a_setting_far_behind_the_best_is_pruned() -> None:
    best = Estimate(0.2, 0.005, 0.19, 0.21, 8, 0)

    assert prune_reason([0.05, 0.06, 0.05], Noise(0.02, 8), best) == "behind the best so far"
    assert prune_reason([0.05, 0.06, 0.05], Noise(0.02, 8), None) is None


def test_a_good_setting_is_rarely_pruned() -> None:
    noise = Noise(0.02, 8)
    pruned = 0
    for seed in range(300):
        values = normal(seed, 0.0, 0.02, 8)
        pruned += any(prune_reason(values[:n], noise, None) for n in range(2, 9))

    assert pruned / 300 < 0.12


def test_the_noise_floor_shrinks_with_the_pairs() -> None:
    noise = noise_of(normal(1, 0, 0.02, 60))

    assert noise_floor(noise, 80) == pytest.approx(noise_floor(noise, 20) / 2)
    assert noise_floor(noise, 20) == pytest.approx(2 * 0.02 / math.sqrt(20), rel=0.3)


def test_pairs_needed_grow_with_the_square_of_the_noise() -> None:
    assert pairs_needed(Noise(0.01, 1000), 0.01) == 4
    assert pairs_needed(Noise(0.02, 1000), 0.01) == 16
