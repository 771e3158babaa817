"""When the search ends, and the sentence that says why. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hvdtune.tuner.search.samplers import draw_params
from hvdtune.tuner.space.search_space import Space
from hvdtune.tuner.space.unit_cube import to_cube
from hvdtune.tuner.stats.estimates import Observation, from_percent

# Fewer trials say too little about the space between them.
_LEAST_TRIALS = 12
_LEAST_PER_AXIS = 2
_UNLIKELY = 0.03
_WORTH_PERCENT = 1.0

StopKind = Literal["trials", "time", "steps", "space", "unlikely", "unpaid", "ended"]


@dataclass(frozen=True)
class Stop:
    """Why the search ended; `text` is the sentence for people."""

    kind: StopKind
    text: str


@dataclass(frozen=True)
class RemainingBudget:
    """What the rest of a training could still gain: seconds left of it, and seconds lost to a
    trial that is slower than the default, on average so far."""

    rest_s: float
    trial_loss_s: float


def out_of_trials(trials: int) -> Stop:
    """All of them are measured."""
    return Stop("trials", f"all trials are measured: {trials}")


def out_of_time(*, by_steps: bool) -> Stop:
    """The rest of the budget is needed for the race and the verification."""
    if by_steps:
        return Stop("steps", "the remaining steps cannot repay another trial")
    return Stop("time", "the time for the search is up")


def out_of_settings() -> Stop:
    """The sampler proposes what is known."""
    return Stop("space", "every proposed setting has been measured")


def expected_gain_too_small(
    observed: Sequence[Observation],
    space: Space,
    seed: int,
    remaining: RemainingBudget | None = None,
) -> Stop | None:
    """A reason that the trials so far give, None to go on."""
    if len(observed) < max(_LEAST_TRIALS, _LEAST_PER_AXIS * len(space.axes)):
        return None
    from hvdtune.tuner.stats.gaussian_process import (  # scipy, half a second
        chance_to_beat,
        expected_improvement,
        fit,
    )

    surrogate = fit(observed)
    generator = np.random.default_rng(seed)
    drawn = draw_params(space, observed, generator)
    points = np.array([to_cube(space, params) for params in drawn])
    if chance_to_beat(surrogate, points, from_percent(_WORTH_PERCENT)).max() < _UNLIKELY:
        return Stop(
            "unlikely",
            f"no unmeasured setting is likely to beat the best by {_WORTH_PERCENT:g} %",
        )
    if remaining is None:
        return None
    gain = float(expected_improvement(surrogate, points).max())
    if gain * remaining.rest_s <= remaining.trial_loss_s:
        return Stop(
            "unpaid",
            "another trial costs more than it may gain in the rest of the training",
        )
    return None
