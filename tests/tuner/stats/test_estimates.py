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
    noise_with,
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


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        pytest.param([0.0] * 10, 1.0, 1.0, id="nothing-but-zeros"),
        pytest.param(normal(1, 1.0, 0.1, 20), 0.0, 1e-4, id="a-clear-gain"),
    ],
)
def test_wilcoxons_p(values: list[float], low: float, high: float) -> None:
    assert low <= signed_rank_p(values) <= high


def test_percent_and_back() -> None:
    assert to_percent(math.log(1.073)) == pytest.approx(7.3)
    assert from_percent(to_percent(0.2)) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("launch_sd", "pair_sd", "sizes", "least"),
    [
        pytest.param(0.0, 0.02, (8, 8, 8), 0.92, id="launches-alike"),
        pytest.param(0.01, 0.02, (8, 8, 8), 0.92, id="launches-that-differ"),
        pytest.param(0.05, 0.02, (8, 8, 8), 0.92, id="launches-that-differ-much"),
        pytest.param(0.02, 0.01, (18, 3, 3), 0.91, id="one-far-longer-launch"),
    ],
)
def test_the_interval_over_launches_covers_the_truth(
    launch_sd: float, pair_sd: float, sizes: tuple[int, ...], least: float
) -> None:
    source = np.random.default_rng(7)
    covered = 0
    for _ in range(500):
        found = estimate_over_launches(
            [list(source.normal(source.normal(0.05, launch_sd), pair_sd, size)) for size in sizes]
        )
        covered += found.low <= 0.05 <= found.high

    assert least < covered / 500 < 0.99


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


BEST = Estimate(0.2, 0.005, 0.19, 0.21, 8, 0)


@pytest.mark.parametrize(
    ("log_ratios", "best", "reason"),
    [
        pytest.param([-0.1, -0.12], None, "slower than the default", id="a-clear-loser"),
        pytest.param([0.05, 0.06, 0.05], BEST, "behind the best so far", id="far-behind-the-best"),
        pytest.param([0.05, 0.06, 0.05], None, None, id="the-same-where-there-is-no-best"),
    ],
)
def test_a_setting_is_pruned_for_a_reason(
    log_ratios: list[float], best: Estimate | None, reason: str | None
) -> None:
    assert prune_reason(log_ratios, Noise(0.02, 8), best) == reason


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


@pytest.mark.parametrize(("sd", "pairs"), [(0.01, 4), (0.02, 16)])
def test_pairs_needed_grow_with_the_square_of_the_noise(sd: float, pairs: int) -> None:
    assert pairs_needed(Noise(sd, 1000), 0.01) == pairs


def test_repeated_readings_of_settings_add_to_what_is_known_of_the_spread() -> None:
    known = Noise(0.1, 5)
    assert noise_with(known, [[0.3], [-0.2]]) == Noise(pytest.approx(0.1), 5)
    # Whatever the settings gain, only what their readings spread by counts.
    groups = [normal(seed, mean=0.5 * seed, sd=0.02, n=4) for seed in range(200)]
    found = noise_with(known, groups)
    assert found.df == 605
    assert found.sd == pytest.approx(0.022, rel=0.05)
