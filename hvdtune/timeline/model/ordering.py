"""One order of events and slices, whichever file they come from."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_PART = 1 << 20


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
    first = 0
    while first < len(order):
        # A part at a time, since each copies all columns; equal begins are never in two.
        last = min(first + _PART, len(order))
        while last < len(order) and equal[last - 1]:
            apart = np.flatnonzero(~equal[last - 1 : last - 1 + _PART])
            last = last + int(apart[0]) if len(apart) else min(last + _PART, len(order))
        _order_ties(order[first:last], equal[first : last - 1], ties)
        first = last
    return order


def _order_ties(
    order: NDArray[np.intp], equal: NDArray[np.bool_], ties: Sequence[NDArray[Any]]
) -> None:
    """Puts those of equal begins in order; `equal` is whether each begins with the one before.

    A key after the other, since few rows are equal in the first ones.
    """
    for key in ties:
        if not equal.any():
            return
        tied = np.zeros(len(order), dtype=bool)
        tied[1:] |= equal
        tied[:-1] |= equal
        places = np.flatnonzero(tied)
        rows = order[places]
        # One number for all that were equal so far; neighbours of two such groups differ.
        group = np.cumsum(np.concatenate(([True], ~equal[places[1:] - 1])), dtype=np.int32)
        values = key[rows]
        by = np.lexsort((values, group))
        order[places] = rows[by]
        values = values[by]
        equal = np.zeros(len(equal), dtype=bool)
        equal[places[1:] - 1] = (group[1:] == group[:-1]) & (values[1:] == values[:-1])


def slice_order(begin_ns: NDArray[Any], end_ns: NDArray[Any]) -> NDArray[np.intp] | None:
    """Indices that order slices by begin, of equal begins the longer first; None: they are so."""
    later = begin_ns[1:] > begin_ns[:-1]
    if (later | ((begin_ns[1:] == begin_ns[:-1]) & (end_ns[1:] <= end_ns[:-1]))).all():
        return None
    return time_order(begin_ns, [-end_ns])
