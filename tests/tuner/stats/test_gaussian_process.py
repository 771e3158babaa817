import numpy as np
import pytest

from hvdtune.tuner.stats.estimates import Observation
from hvdtune.tuner.stats.gaussian_process import (
    chance_to_beat,
    expected_improvement,
    fit,
    suggest,
)


def hill(x: float) -> float:
    return 0.08 - 0.5 * (x - 0.7) ** 2


def observe(xs: list[float], stderr: float = 0.005, seed: int = 0) -> list[Observation]:
    noise = np.random.default_rng(seed)
    return [Observation((x,), hill(x) + float(noise.normal(0, stderr)), stderr) for x in xs]


GRID = np.linspace(0, 1, 201)[:, None]


def test_the_mean_follows_the_observations() -> None:
    surrogate = fit(observe([0.0, 0.2, 0.4, 0.6, 0.8, 1.0]))
    mean, sd = surrogate.predict(np.array([[0.5], [0.7]]))
    assert mean == pytest.approx([hill(0.5), hill(0.7)], abs=0.02)
    assert all(sd < 0.03)


def test_uncertainty_grows_away_from_the_observations() -> None:
    surrogate = fit(observe([0.0, 0.1, 0.2, 0.25]))
    _, sd = surrogate.predict(np.array([[0.1], [0.9]]))
    assert sd[1] > 3 * sd[0]


@pytest.mark.parametrize(
    ("stderr", "low", "high"),
    [
        pytest.param(0.2, hill(0.3) - 0.03, hill(0.3) + 0.03, id="noisy"),
        pytest.param(0.002, 0.2, 0.3, id="exact"),
    ],
)
def test_a_noisy_outlier_weighs_less_than_an_exact_one(
    stderr: float, low: float, high: float
) -> None:
    seen = observe([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    surrogate = fit([*seen, Observation((0.3,), 0.3, stderr)])
    mean, _ = surrogate.predict(np.array([[0.3]]))
    assert low < mean[0] < high


def test_the_next_point_is_near_the_top() -> None:
    seen = observe([0.0, 0.3, 0.5, 0.9, 1.0])
    chosen = [suggest(seen, GRID, np.random.default_rng(seed))[0] for seed in range(9)]
    assert 0.55 < float(np.median(GRID[chosen])) < 0.85


def test_expected_improvement_is_never_negative() -> None:
    surrogate = fit(observe([0.0, 0.5, 1.0]))
    assert (expected_improvement(surrogate, GRID) >= 0).all()


@pytest.mark.parametrize(
    ("seen", "low", "high"),
    [
        pytest.param(observe([0.0, 0.4]), 0.1, 1.0, id="few"),
        pytest.param(observe(list(np.linspace(0, 1, 15)), 0.002), 0.0, 0.05, id="many"),
    ],
)
def test_after_many_observations_nothing_is_likely_to_be_much_better(
    seen: list[Observation], low: float, high: float
) -> None:
    assert low <= chance_to_beat(fit(seen), GRID, 0.01).max() <= high


def test_a_catastrophe_does_not_flatten_everything_else() -> None:
    seen = [*observe([0.0, 0.3, 0.5, 0.7, 0.9, 1.0]), Observation((0.1,), -3.0, 0.01)]
    assert fit(seen).best == pytest.approx(hill(0.7), abs=0.02)
