"""An interval of a mean that may be looked at after every value and ended at any time. Pure.

Robbins' normal mixture: the chance that any of its intervals, however many there are, misses the
mean is `alpha` at most for normal values of known spread, and for others as their number grows
(Robbins, "Statistical methods related to the law of the iterated logarithm", 1970; Waudby-Smith,
Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit theory", 2021). The spread is
estimated, so there is no interval before LEAST_VALUES values.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from hvdtune.tuner.stats.estimates import Estimate

LEAST_VALUES: Final = 20
# The interval is narrowest, compared with that of a single look, at about so many values.
_NARROWEST_AT: Final = 60


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
