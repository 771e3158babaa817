"""One order of events and slices, whichever file they come from."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def time_order(begin_ns: NDArray[Any], ties: Sequence[NDArray[Any]]) -> NDArray[np.intp]:
    """Indices that order by begin.

    Args:
        begin_ns: of each row.
        ties: columns that order equal begins, the most important first.
    """
    order = np.argsort(begin_ns, kind="stable")
    # Few begins are equal, so the costly sort is kept to those.
    ordered = begin_ns[order]
    equal = ordered[1:] == ordered[:-1]
    del ordered
    tied = np.zeros(len(order), dtype=bool)
    tied[1:] |= equal
    tied[:-1] |= equal
    rows = order[tied]
    order[tied] = rows[np.lexsort([*(key[rows] for key in reversed(ties)), begin_ns[rows]])]
    return order


def slice_order(begin_ns: NDArray[Any], end_ns: NDArray[Any]) -> NDArray[np.intp] | None:
    """Indices that order slices by begin, of equal begins the longer first; None: they are so."""
    later = begin_ns[1:] > begin_ns[:-1]
    if (later | ((begin_ns[1:] == begin_ns[:-1]) & (end_ns[1:] <= end_ns[:-1]))).all():
        return None
    return time_order(begin_ns, [-end_ns])
