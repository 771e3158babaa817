import numpy as np

from hvdtune.tuner.search.stopping import (
    RemainingBudget,
    Stop,
    expected_gain_too_small,
    out_of_time,
    out_of_trials,
)
from hvdtune.tuner.space.search_space import make_space
from hvdtune.tuner.stats.estimates import Observation
from tests.kit.simulated_job import DEFAULT, KNOBS

SPACE = make_space(KNOBS, DEFAULT, tunable=("cycle_time_ms", "cache_enabled"))


def observed(count: int, top: float = 0.0, stderr: float = 0.002) -> list[Observation]:
    """A gain that falls away from the middle of the first dimension."""
    generator = np.random.default_rng(5)
    points = generator.random((count, 2))
    points[:, 1] = 0.6 * (points[:, 1] > 0.5)
    return [
        Observation(tuple(p), top - 0.4 * (p[0] - 0.5) ** 2 + generator.normal(0, stderr), stderr)
        for p in points
    ]


def kind(stop: Stop | None) -> str:
    return "" if stop is None else stop.kind


def test_few_trials_are_no_reason_to_stop() -> None:
    assert expected_gain_too_small(observed(8), SPACE, 0) is None


def test_a_space_that_is_known_well_is_a_reason() -> None:
    stop = expected_gain_too_small(observed(40), SPACE, 0)
    assert kind(stop) == "unlikely"
    assert stop is not None
    assert stop.text == "no unmeasured setting is likely to beat the best by 1 %"


def test_a_noisy_space_is_none() -> None:
    assert expected_gain_too_small(observed(13, stderr=0.08), SPACE, 0) is None


def test_a_training_that_is_almost_over_cannot_pay() -> None:
    noisy = observed(13, stderr=0.08)
    assert kind(expected_gain_too_small(noisy, SPACE, 0, RemainingBudget(1.0, 5.0))) == "unpaid"
    assert kind(expected_gain_too_small(noisy, SPACE, 0, RemainingBudget(1e6, 5.0))) == ""


def test_every_reason_is_a_sentence() -> None:
    assert out_of_trials(40).text == "all 40 trials are measured"
    assert out_of_time(by_steps=False).text == "the time for the search is up"
    assert out_of_time(by_steps=True).text == "the remaining steps cannot pay for another trial"
