import numpy as np
import pytest

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


UNLIKELY = Stop("unlikely", "no unmeasured setting is likely to beat the best by 1 %")


@pytest.mark.parametrize(
    ("trials", "stderr", "stop"),
    [
        pytest.param(8, 0.002, None, id="few-trials"),
        pytest.param(40, 0.002, UNLIKELY, id="a-space-that-is-known-well"),
        pytest.param(13, 0.08, None, id="a-noisy-space"),
    ],
)
def test_a_search_stops_when_a_gain_is_unlikely(
    trials: int, stderr: float, stop: Stop | None
) -> None:
    assert expected_gain_too_small(observed(trials, stderr=stderr), SPACE, 0) == stop


@pytest.mark.parametrize(("rest_s", "pays"), [(1.0, False), (1e6, True)])
def test_a_training_that_is_almost_over_cannot_pay(rest_s: float, pays: bool) -> None:
    noisy = observed(13, stderr=0.08)
    stop = expected_gain_too_small(noisy, SPACE, 0, RemainingBudget(rest_s, trial_loss_s=5.0))
    assert (stop and stop.kind) == (None if pays else "unpaid")


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        (out_of_trials(40), "all trials are measured: 40"),
        (out_of_time(by_steps=False), "the time for the search is up"),
        (out_of_time(by_steps=True), "the remaining steps cannot repay another trial"),
    ],
    ids=["trials", "time", "steps"],
)
def test_every_reason_is_a_sentence(stop: Stop, text: str) -> None:
    assert stop.text == text
