"""What a group of interleaved measurements says: one log ratio each, many of them, some spoilt."""

import math
from collections.abc import Sequence

import numpy as np


def percent_with_interval(log_ratios: Sequence[float]) -> str:
    """The Hodges-Lehmann estimate and the interval that Wilcoxon's signed ranks give, in percent.

    As robust as a median, and nearly as sharp as a mean where nothing is spoilt.
    """
    values = np.asarray(log_ratios)
    n = len(values)
    walsh = np.sort(((values[:, None] + values) / 2)[np.triu_indices(n)])
    reach = 1.96 * math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    first = max(math.floor(n * (n + 1) / 4 - reach), 0)
    low, middle, high = (
        100 * math.expm1(float(at)) for at in (walsh[first], np.median(walsh), walsh[-1 - first])
    )
    return f"{middle:+.2f} % [{low:+.2f}, {high:+.2f}] 95 % CI"
