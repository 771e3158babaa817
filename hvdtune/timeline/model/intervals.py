"""Time covered by spans: overlapping ones count once, which a sum of durations would not."""

import numpy as np

from hvdtune.timeline.model.schema import Ints, Spans


def union(begin_ns: Ints, end_ns: Ints) -> tuple[Ints, Ints]:
    """The disjoint spans, in order, that cover the same time as the given ones."""
    if len(begin_ns) == 0:
        return begin_ns, end_ns
    order = np.argsort(begin_ns, kind="stable")
    begin, end = begin_ns[order], np.maximum.accumulate(end_ns[order])
    starts = np.concatenate(([True], begin[1:] > end[:-1]))
    last = np.flatnonzero(np.concatenate((starts[1:], [True])))
    return begin[starts], end[last]


def joined(*spans: Spans) -> Spans:
    """All of them as one."""
    begin, end = (np.concatenate(sides) for sides in zip(*spans, strict=True))
    return begin, end


def without(spans: Spans, others: Spans) -> Spans:
    """The disjoint spans, in order, of the time that the first cover and the others do not."""
    edges = (*union(*spans), *union(*others))
    at = np.concatenate(edges)
    order = np.argsort(at, kind="stable")

    def inside(*weights: int) -> Ints:
        each = np.repeat(np.array(weights), [len(edge) for edge in edges])
        return np.cumsum(each[order])

    at = at[order]
    kept = (inside(1, -1, 0, 0)[:-1] > 0) & (inside(0, 0, 1, -1)[:-1] == 0) & (at[1:] > at[:-1])
    return at[:-1][kept], at[1:][kept]


def covered_ns(begin_ns: Ints, end_ns: Ints) -> int:
    """How much time at least one of the spans covers."""
    begin, end = union(begin_ns, end_ns)
    return int((end - begin).sum())


def covered_within(begin_ns: Ints, end_ns: Ints, window_begin: Ints, window_end: Ints) -> Ints:
    """How much of each window the spans cover, in ns; windows may overlap and come in any order."""
    begin, end = union(begin_ns, end_ns)
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(end - begin)))

    def covered_until(at: Ints) -> Ints:
        whole = np.searchsorted(end, at)  # spans that ended before `at`
        inside = np.minimum(whole, len(begin) - 1)
        part = np.where(whole < len(begin), np.maximum(at - begin[inside], 0), 0)
        return before[whole] + part

    if len(begin) == 0:
        return np.zeros(len(window_begin), np.int64)
    return covered_until(window_end) - covered_until(window_begin)
