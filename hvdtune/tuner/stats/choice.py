"""Which setting to go on with: the best expectation under a bound on harm. Pure.

A choice is no claim. Between settings of which none is proved to be better something has to be in
use, and the default is only one of them.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

from hvdtune.tuner.stats.estimates import from_percent
from hvdtune.tuner.stats.posterior import Posterior

LEAST_GAIN_PERCENT: Final = 0.1
HARM_PERCENT: Final = 1.0
HARM_CHANCE: Final = 0.05

Key = TypeVar("Key")


def choose(believed: Mapping[Key, Posterior], harm_chance: float = HARM_CHANCE) -> Key | None:
    """The key of the setting with the largest expected gain; None: the default is to be used."""
    fit = {key: each.mean for key, each in believed.items() if is_better_bet(each, harm_chance)}
    return max(fit, key=lambda key: fit[key], default=None)


def is_better_bet(posterior: Posterior, harm_chance: float = HARM_CHANCE) -> bool:
    """Return whether the setting may be used in place of the default, whose gain is 0.

    It may when at least LEAST_GAIN_PERCENT is expected of it and it is more than HARM_PERCENT
    slower with a probability below `harm_chance`.
    """
    harm = 1 - posterior.chance(from_percent(-HARM_PERCENT))
    return posterior.mean >= from_percent(LEAST_GAIN_PERCENT) and harm < harm_chance
