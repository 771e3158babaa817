"""Estimates over launches, and of one launch, from measurements of several. Pure.

A launch has a level of its own: it likes a setting more or less than other launches do. So the gain
in launch l is mu + b_l, where mu is the mean over launches and b_l has the spread tau between
launches. How large tau is, few launches hardly tell, so it is integrated out: mu's prior is flat,
that of tau is Student's half t of two degrees of freedom (Gelman, "Prior distributions for
variance parameters in hierarchical models", 2006; the sums are those of section 5.4 in Gelman and
others, "Bayesian Data Analysis").
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hvdtune.tuner.stats.posterior import REACH, Posterior

Floats = NDArray[np.float64]

# By so much a launch may like a setting more or less than those beside it.
OWN_LIKING: Final = 0.01
# The scale of tau's prior, as a share of what one pair spreads by. In four recorded jobs launches
# differed by up to a quarter of that; with 0.4 and heavy tails intervals hold the truth where they
# differ by more, too (studies/tuning/README.md).
_SHARE_OF_PAIR: Final = 0.4
_LEAST_SCALE: Final = 0.005
_DEGREES: Final = 2
_MOST_SCALES: Final = 60.0
_GRID: Final = 120


@dataclass(frozen=True)
class Levels:
    """The launches of one setting; `weights` are those of the spreads between launches."""

    readings: tuple[Posterior, ...]
    spreads: Floats
    weights: Floats
    means: Floats  # of mu, for each spread
    variances: Floats

    @property
    def over_launches(self) -> Posterior:
        """The mean over launches."""
        return self._mixed(self.means, self.variances)

    @property
    def spread(self) -> float:
        """By how much launches are expected to differ (root of the mean square)."""
        return math.sqrt(float(self.weights @ self.spreads**2))

    @property
    def next_launch(self) -> Posterior:
        """The level of a launch that has not been seen."""
        return self._mixed(self.means, self.variances + self.spreads**2)

    def level(self, index: int) -> Posterior:
        """The level of the launch with this reading."""
        own = self.readings[index]
        share = self.spreads**2 / (self.spreads**2 + own.sd**2)
        means = share * own.mean + (1 - share) * self.means
        return self._mixed(means, share * own.sd**2 + (1 - share) ** 2 * self.variances)

    def _mixed(self, means: Floats, variances: Floats) -> Posterior:
        """A normal posterior with the mean of a mixture, as wide as its interval at 95 %."""
        low, high = (self._quantile(share, means, np.sqrt(variances)) for share in (0.025, 0.975))
        return Posterior(float(self.weights @ means), max((high - low) / 2 / REACH, 1e-6))

    def _quantile(self, share: float, means: Floats, sds: Floats) -> float:
        from scipy import special  # takes half a second, which not every command should wait for

        low, high = float(np.min(means - 9 * sds)), float(np.max(means + 9 * sds))
        for _ in range(60):
            middle = (low + high) / 2
            below = float(self.weights @ special.ndtr((middle - means) / sds))
            low, high = (middle, high) if below < share else (low, middle)
        return (low + high) / 2


def levels_of(readings: Sequence[Posterior], pair_sd: float) -> Levels:
    """The launches with these readings of their levels (at least one).

    Args:
        readings: log ratios, each of another launch.
        pair_sd: the spread of one pair of a setting with itself.
    """
    scale = math.hypot(_LEAST_SCALE, _SHARE_OF_PAIR * pair_sd)
    spreads = np.append(0.0, scale * np.geomspace(0.02, _MOST_SCALES, _GRID))
    means, sds = np.array([[each.mean, each.sd] for each in readings]).T
    weights = 1 / (spreads[:, None] ** 2 + sds**2)
    variances = 1 / weights.sum(axis=1)
    centres = variances * (weights @ means)
    apart = (means - centres[:, None]) ** 2
    logs = 0.5 * (np.log(weights).sum(axis=1) + np.log(variances) - (weights * apart).sum(axis=1))
    logs -= (_DEGREES + 1) / 2 * np.log1p((spreads / scale) ** 2 / _DEGREES)
    chances = np.exp(logs - logs.max()) * np.gradient(spreads)
    return Levels(tuple(readings), spreads, chances / chances.sum(), centres, variances)
