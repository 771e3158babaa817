"""Intervals of a mean that may be looked at after every value and ended at any time. Pure.

For many values, Robbins' normal mixture: the chance that any of its intervals, however many there
are, misses the mean is `alpha` at most for normal values of known spread, and for others as their
number grows (Robbins, "Statistical methods related to the law of the iterated logarithm", 1970;
Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit theory", 2021). The
spread is estimated, so there is no interval before LEAST_VALUES values.

For few values of unknown spread, the mixture of t statistics over effects that are normally
distributed: for normal values its guarantee is exact from the first interval on (Lai, "On
confidence sequences", 1976; Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for
Gaussian means with unknown variance", 2024; the ratio of likelihoods is that of Rouder and others,
"Bayesian t tests for accepting and rejecting the null hypothesis", 2009).
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from hvdtune.tuner.stats.estimates import Estimate

LEAST_VALUES: Final = 20
# The interval is narrowest, compared with that of a single look, at about so many values.
_NARROWEST_AT: Final = 60
# The variance of the effect, the mean in standard deviations of a value: launches of a setting that
# is worth using differ by about a third of its gain.
_EFFECT_VARIANCE: Final = 10.0


def interval_at_any_time(values: Sequence[float], alpha: float = 0.05) -> Estimate:
    """Mean and interval of independent values (at least one); infinite below LEAST_VALUES."""
    n = len(values)
    mean = float(np.mean(values))
    if n < LEAST_VALUES:
        return Estimate(mean, math.inf, -math.inf, math.inf, n, 0)
    sd = float(np.std(values, ddof=1))
    odds = -2 * math.log(alpha)
    weight = _NARROWEST_AT / (odds + math.log(odds) + 1)
    reach = sd / n * math.sqrt((n + weight) * math.log((n + weight) / (weight * alpha**2)))
    return Estimate(mean, sd / math.sqrt(n), mean - reach, mean + reach, n, n - 1)


def interval_after_any_launch(levels: Sequence[float], alpha: float = 0.05) -> Estimate:
    """Mean over launches and interval, of one value of each launch (at least one).

    Infinite with fewer than three; with four it is twice as wide as Student's, with ten 1.9 times.
    """
    n = len(levels)
    mean = float(np.mean(levels))
    odds = 1 + n * _EFFECT_VARIANCE
    ratio = (odds / alpha**2) ** (1 / n)
    if ratio >= odds:
        return Estimate(mean, math.inf, -math.inf, math.inf, n, 0)
    stderr = float(np.std(levels, ddof=1)) / math.sqrt(n)
    reach = stderr * math.sqrt((n - 1) * (ratio - 1) / (1 - ratio / odds))
    return Estimate(mean, stderr, mean - reach, mean + reach, n, n - 1)
