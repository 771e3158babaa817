"""Finds the end of each begin: for B and E by thread, for asynchronous events by id."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def pair(track: Ints, at_ns: Ints, is_begin: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the index of each begin's end; an end closes what was begun last on its track.

    Args:
        track: what nests among itself.
        at_ns: when; equal times are in the order of the arrays.
        is_begin: a begin, else an end.

    Returns:
        -1 for a begin without an end, and for every end: the index of its begin, or -1.
    """
    other = np.full(len(track), -1, np.intp)
    if len(track) == 0:
        return other
    order = np.lexsort((at_ns, track))
    matched, level = _levels(track[order], is_begin[order])
    # Of one track and level, begins and ends alternate.
    kept = order[matched]
    by_level = np.lexsort((level[matched], track[kept]))
    kept, heights = kept[by_level], level[matched][by_level]
    begins = is_begin[kept]
    follows = np.zeros(len(kept), dtype=bool)
    follows[:-1] = begins[:-1] & ~begins[1:]
    follows[:-1] &= (heights[:-1] == heights[1:]) & (track[kept][:-1] == track[kept][1:])
    first = np.flatnonzero(follows)
    other[kept[first]] = kept[first + 1]
    other[kept[first + 1]] = kept[first]
    return other


def _levels(track: Ints, is_begin: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], Ints]:
    """Whether an event is no end too many, and how many slices are open around its own."""
    starts = np.concatenate(([True], track[1:] != track[:-1]))
    step = np.where(is_begin, 1, -1)
    height = np.cumsum(step)
    number = np.cumsum(starts) - 1
    height -= (height - step)[np.flatnonzero(starts)][number]
    # Each track lies below all before it, so that one running minimum serves them all.
    base = -number * (len(track) + 1)
    lowest = np.minimum.accumulate(np.minimum(height, 0) + base)
    floor = np.concatenate(([0], lowest[:-1]))
    floor = np.where(starts, 0, floor - base)
    matched = is_begin | (height >= floor)
    return matched, np.where(is_begin, height - 1, height) - floor
