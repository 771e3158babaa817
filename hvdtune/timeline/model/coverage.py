"""How much of the time the slices of each group cover, in all and in each of many bins."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hvdtune.timeline.model.schema import Ints

Spans = tuple[NDArray[np.int32], Ints, Ints]
_NEVER = 2**63
_BLOCK = 1 << 16
_MAX_CELLS = 1 << 18
_MAX_BINS = 1 << 12


@dataclass(frozen=True)
class Cover:
    """Disjoint stretches that cover the same time as the slices they come from, by group.

    Attributes:
        begin, end: of each stretch, ordered by group and begin; ns from the first begin.
        starts: where in them each group begins; one more at the end.
    """

    begin: Ints
    end: Ints
    starts: NDArray[np.intp]
    span_ns: int

    def spans(self) -> Spans:
        """The stretches and their groups, for a cover by groups of these groups."""
        groups = np.arange(len(self.starts) - 1, dtype=np.int32)
        return np.repeat(groups, np.diff(self.starts)), self.begin, self.end

    def total_ns(self) -> Ints:
        """The time that each group covers."""
        return np.diff(_before(self.end - self.begin)[self.starts])

    def busy(self, bins: int) -> NDArray[np.float32]:
        """Levels of detail: the share of each of `bins` equal bins that each group covers."""
        edges = np.linspace(0, max(self.span_ns, 1), bins + 1)
        covered = _before(self.end - self.begin)
        shares = np.zeros((len(self.starts) - 1, bins), np.float32)
        for group in range(len(self.starts) - 1):
            own = slice(self.starts[group], self.starts[group + 1])
            begin, end = self.begin[own], self.end[own]
            if len(begin) == 0:
                continue
            whole = np.searchsorted(end, edges)
            inside = np.minimum(whole, len(begin) - 1)
            part = np.where(whole < len(begin), np.maximum(edges - begin[inside], 0), 0)
            until = covered[self.starts[group] + whole] + part
            shares[group] = np.diff(until) / np.diff(edges)
        return shares


def cover(spans: Sequence[Spans], groups: int, group_of: NDArray[np.int32] | None = None) -> Cover:
    """The time that the slices of each group cover; overlapping ones count once.

    Args:
        spans: in parts: a number of each slice; begin and end in ns.
        group_of: the group of each number, below `groups`, or -1 for none; else they are groups.
    """
    count, first, last = 0, _NEVER, -_NEVER
    for group, begin_ns, end_ns in _grouped(spans, group_of):
        count += len(group)
        first = min(first, int(begin_ns.min()))
        last = max(last, int(end_ns.max()))
    first, span = (first, last - first) if count else (0, 0)
    # One number for group, time and whether it is an end, so that one sort does for all groups.
    # Where they do not fit 63 bits, times lose what a century cannot show.
    bits = max(span, 1).bit_length()
    coarse = max(bits + groups.bit_length() - 61, 0)
    bits += 1 - coarse
    key = np.empty(2 * count, np.int64)
    filled = 0
    for group, begin_ns, end_ns in _grouped(spans, group_of):
        base = group.astype(np.int64) << bits
        for at_ns, tag in ((begin_ns, 0), (end_ns, 1)):
            key[filled : filled + len(group)] = base | ((at_ns - first) >> coarse) << 1 | tag
            filled += len(group)
    key.sort()
    ends = _where_none_is_left(key)
    begin, end = key[np.append(True, ends[:-1])[: len(ends)]], key[ends]
    del key, ends
    starts = np.searchsorted(begin, np.arange(groups + 1) << bits)
    for times in (begin, end):  # in place, for there may be many
        times &= (1 << bits) - 1
        times >>= 1
        times <<= coarse
    return Cover(begin, end, starts, span)


def _where_none_is_left(key: Ints) -> NDArray[np.bool_]:
    """The ends behind which no slice is under way; block by block, since keys are many."""
    ends, before = np.empty(len(key), bool), 0
    for at in range(0, len(key), _BLOCK):
        open_ones = before + np.cumsum(1 - 2 * (key[at : at + _BLOCK] & 1))
        ends[at : at + _BLOCK] = open_ones == 0
        before = open_ones[-1]
    return ends


def _grouped(spans: Sequence[Spans], group_of: NDArray[np.int32] | None) -> Iterator[Spans]:
    """The parts with groups; again for each use, since all at once are as large as the spans."""
    for number, begin_ns, end_ns in spans:
        group = number if group_of is None else group_of[number]
        if group_of is not None and (group < 0).any():
            within = group >= 0
            group, begin_ns, end_ns = group[within], begin_ns[within], end_ns[within]
        if len(group):
            yield group, begin_ns, end_ns


def bins_for(groups: int) -> int:
    """How many bins are worth keeping for so many groups: a power of two."""
    bins = min(_MAX_BINS, max(_MAX_CELLS // max(groups, 1), 16))
    return 1 << (bins.bit_length() - 1)


def _before(lengths: Ints) -> Ints:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
