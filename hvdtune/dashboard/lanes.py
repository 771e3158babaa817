"""Lanes: what each rank did, in rows, at any zoom.

A lane keeps its slices, and the disjoint stretches that they cover with the running sum of their
lengths. How busy a pixel is, is a difference of two such sums: exact, and as fast to compute for
ten million slices as for ten.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.plural import counted
from hvdtune.timeline.analysis.metrics.breakdown import waits_of
from hvdtune.timeline.model.counters import Counter, Counters
from hvdtune.timeline.model.intervals import union
from hvdtune.timeline.model.ordering import time_order
from hvdtune.timeline.model.other_slices import OtherSlices
from hvdtune.timeline.model.schema import COLLECTIVES, KIND_NAMES, OF_OPERATIONS, Ints, Spans
from hvdtune.timeline.model.slices import KIND_TEXTS

# Lane -> kinds of events in it, top to bottom.
LANES: dict[str, tuple[str, ...]] = {
    "busy": (),  # what is left of steps, and what the script says it does
    "wait": OF_OPERATIONS,
    "negotiate": ("NEGOTIATE",),
    "queue": ("QUEUE",),
    "pack": ("PACK",),
    "communicate": ("BUCKET",),
    "unpack": ("UNPACK",),
}
BUSY = 255  # as `kind` of a slice that no event is: what is left of a step
UNKNOWN = 254  # ... of another program's slice of a kind that nobody knows
# `kind` of slices -> its name. Those that only other programs record follow hvdtune's own.
NAMES_OF_KINDS = dict(enumerate(KIND_TEXTS[1:])) | {BUSY: "BUSY", UNKNOWN: ""}
MAX_DEPTH = 64  # rows of slices that overlap; more share the last one
MAX_LANES = 4_096  # of threads of other programs
_KIND_OF_CODE = np.array([UNKNOWN, *range(len(KIND_TEXTS) - 1)], np.uint8)
MAX_THREADS = 64  # of a rank that have a lane of their own; the idlest of more share one


@dataclass(frozen=True)
class SwimlaneRow:
    """One row of the swimlane.

    Attributes:
        rank: whose.
        label: a key of `LANES`, or what the row is otherwise called.
        begin, end: of its slices, in ns, by begin.
        kind: of each, a key of `NAMES_OF_KINDS`.
        row: of each, its row in the events; -1: none; -2, -3 ...: row 0, 1 ... of
            `Trace.others`.
        rows: how many are drawn one below the other.
        threads: whose slices they are, as rows of `OtherSlices.threads`.
        counter: what the row draws in place of slices.
    """

    rank: int
    label: str
    begin: Ints
    end: Ints
    kind: NDArray[np.uint8]
    row: NDArray[np.int32]
    rows: int = 1
    threads: tuple[int, ...] = ()
    counter: Counter | None = None

    @cached_property
    def stretches(self) -> tuple[Ints, Ints]:
        """Begins and ends of what the slices cover; their own where none touches another."""
        if (self.begin[1:] > self.end[:-1]).all() and (self.begin <= self.end).all():
            return self.begin, self.end
        return union(self.begin, self.end)

    @cached_property
    def overlaps(self) -> bool:
        """Whether any slice does, or touches, another."""
        return len(self.stretches[0]) < len(self.begin)

    @cached_property
    def reach(self) -> Ints:
        """The last end of each slice and all before it."""
        reach: Ints = np.maximum.accumulate(self.end) if self.overlaps else self.end
        return reach

    @cached_property
    def covered_before(self) -> Ints:
        """How much time the stretches before each cover, in ns."""
        begin, end = self.stretches
        before = np.zeros(len(begin), np.int64)
        np.cumsum((end - begin)[:-1], out=before[1:])
        return before

    @cached_property
    def instants(self) -> Ints:
        """Return the times of slices that last no time."""
        found: Ints = self.begin[self.begin == self.end]
        return found

    def covered_ns(self, edges_ns: Ints) -> Ints:
        """How much slices cover between neighbouring edges, which ascend: whole ns."""
        begin, end = self.stretches
        if len(begin) == 0:
            return np.zeros(len(edges_ns) - 1, np.int64)
        last = np.searchsorted(begin, edges_ns, side="right") - 1
        within = np.minimum(edges_ns, end[last]) - begin[last]
        result: Ints = np.diff(np.where(last < 0, 0, self.covered_before[last] + within))
        return result

    def within(self, first_ns: int, last_ns: int) -> tuple[int, int]:
        """Return the range of the slices that touch first_ns <= t < last_ns.

        Slices that ended before may be among them, where one that began earlier did not.
        """
        low = int(np.searchsorted(self.reach, first_ns, side="left"))
        return low, int(np.searchsorted(self.begin, max(last_ns, first_ns + 1), side="left"))


def lanes_of(events: pd.DataFrame) -> list[SwimlaneRow]:
    """The lanes of every rank, of events as `schema.Trace` has them."""
    kinds = events["kind"].cat.codes.to_numpy().astype(np.uint8)
    ranks = events["rank"].to_numpy()
    begin, end = events["begin_ns"].to_numpy(), events["end_ns"].to_numpy()
    code = {name: number for number, name in enumerate(KIND_NAMES)}
    waiting = events[["kind", "begin_ns", "end_ns"]]  # taking all columns takes three times as long
    result: list[SwimlaneRow] = []
    for rank in np.unique(ranks).tolist():
        mine = np.flatnonzero(ranks == rank)
        of_kind = kinds[mine]

        def rows(
            names: Sequence[str],
            mine: NDArray[np.intp] = mine,
            of_kind: NDArray[np.uint8] = of_kind,
        ) -> NDArray[np.intp]:
            return mine[np.isin(of_kind, [code[name] for name in names])]

        waits = waits_of(waiting.iloc[mine])
        for label, names in LANES.items():
            if label == "busy":
                result.append(_between_waits(rank, begin, end, kinds, rows, waits))
                continue
            own = rows(names)
            if label == "wait" and len(own) == 0:
                result.append(_inferred(rank, waits))
                continue
            if label == "communicate":
                alone = rows(COLLECTIVES)
                # A trace without buckets, or with one around each operation, whose name says more.
                same = len(alone) == len(own) and (begin[alone] == begin[own]).all()
                own = alone if len(own) == 0 or (same and (end[alone] == end[own]).all()) else own
            result.append(
                SwimlaneRow(rank, label, begin[own], end[own], kinds[own], own.astype(np.int32))
            )
    used = {lane.label for lane in result if len(lane.begin)}
    return [lane for lane in result if lane.label in used]


def without_busy_time(lanes: Sequence[SwimlaneRow]) -> list[SwimlaneRow]:
    """The lanes without what is left of steps, which is not known to be busy where waits are not.

    What the script says that it does stays.
    """
    kept = []
    for lane in lanes:
        told = lane.kind != BUSY
        if told.all():
            kept.append(lane)
        elif told.any():
            columns = (lane.begin, lane.end, lane.kind, lane.row)
            kept.append(SwimlaneRow(lane.rank, lane.label, *(each[told] for each in columns)))
    return kept


def _between_waits(
    rank: int,
    begin: Ints,
    end: Ints,
    kinds: NDArray[np.uint8],
    rows: Callable[[Sequence[str]], NDArray[np.intp]],
    waits: Spans,
) -> SwimlaneRow:
    """Steps without what is known to be something else, and the spans that the script named."""
    steps, spans = rows(("STEP",)), rows(("SPAN",))
    others = (np.concatenate((begin[spans], waits[0])), np.concatenate((end[spans], waits[1])))
    left = _without(union(begin[steps], end[steps]), union(*others))
    all_begin = np.concatenate((left[0], begin[spans]))
    all_end = np.concatenate((left[1], end[spans]))
    kind = np.concatenate((np.full(len(left[0]), BUSY, np.uint8), kinds[spans]))
    row = np.concatenate((np.full(len(left[0]), -1, np.int32), spans.astype(np.int32)))
    order = np.argsort(all_begin, kind="stable")
    return SwimlaneRow(rank, "busy", all_begin[order], all_end[order], kind[order], row[order])


def _inferred(rank: int, waits: Spans) -> SwimlaneRow:
    """The waits of a rank whose trace does not tell them: slices that no event is."""
    kind = np.full(len(waits[0]), KIND_NAMES.index("BLOCKED"), np.uint8)
    return SwimlaneRow(rank, "wait", *waits, kind, np.full(len(kind), -1, np.int32))


class _Drawn(NamedTuple):
    """Columns of `SwimlaneRow`, of the slices of many."""

    begin: Ints
    end: Ints
    kind: NDArray[np.uint8]


def lanes_of_threads(others: OtherSlices) -> list[SwimlaneRow]:
    """A lane for every thread of other programs."""
    threads = others.threads
    kinds = _KIND_OF_CODE[others.rows["kind"].cat.codes.to_numpy()]
    begin, end = (others.rows[key].to_numpy() for key in ("begin_ns", "end_ns"))
    drawn = _Drawn(begin, end, kinds)
    parts = [slice(*ends) for ends in zip(others.starts[:-1], others.starts[1:], strict=True)]
    lengths = pd.Series([int((end[part] - begin[part]).sum()) for part in parts])
    most = max(min(MAX_THREADS, MAX_LANES // threads["rank"].nunique()), 1)
    busiest = lengths.groupby(threads["rank"]).rank(method="first", ascending=False) <= most
    result = []
    for rank, rows in threads.groupby("rank").groups.items():
        own = rows[busiest[rows]]
        labels = _labels(threads.loc[rows])[busiest[rows].to_numpy()]
        result += [
            replace(_of_thread(int(str(rank)), label, drawn, parts[thread]), threads=(thread,))
            for thread, label in zip(own, labels, strict=True)
        ]
        # What has no lane of its own is in its rank's last one.
        if idler := [parts[thread] for thread in rows[~busiest[rows]]]:
            lane = _of_idler(int(str(rank)), drawn, idler)
            result.append(replace(lane, threads=tuple(rows[~busiest[rows]].tolist())))
    return result


def lanes_of_counters(counters: Counters) -> list[SwimlaneRow]:
    """A lane without slices for every counter of other programs."""
    nothing, none = np.empty(0, np.int64), np.empty(0, np.uint8)
    return [
        SwimlaneRow(
            track.rank, track.label, nothing, nothing, none, nothing.astype(np.int32), counter=track
        )
        for track in counters.tracks
    ]


def _labels(threads: pd.DataFrame) -> NDArray[Any]:
    """The names of a rank's threads: their title, and by more where several share that."""
    labels = threads["thread"].astype(str).str.strip()
    # Horovod's tensors are processes without threads.
    labels = labels.mask(labels == "", threads["process"].astype(str).str.strip())
    labels = labels.mask(labels == "", "no thread")
    for more in ("process", "tid"):
        shared = labels.groupby(labels).transform("size") > 1
        said = threads[more].astype(str)
        joined = said + " " + labels if more == "process" else labels + " " + said
        labels = labels.where(~shared, joined.str.strip())
    return labels.to_numpy(object)


def _of_thread(rank: int, label: str, drawn: _Drawn, rows: slice) -> SwimlaneRow:
    begin, end, kind = drawn.begin[rows], drawn.end[rows], drawn.kind[rows]
    row = np.arange(-2 - rows.start, -2 - rows.stop, -1, dtype=np.int32)
    return SwimlaneRow(rank, label, begin, end, kind, row, min(_deepest(begin, end), MAX_DEPTH))


def _of_idler(rank: int, drawn: _Drawn, parts: Sequence[slice]) -> SwimlaneRow:
    rows = np.concatenate([np.arange(part.start, part.stop) for part in parts])
    rows = rows[time_order(drawn.begin[rows], [-drawn.end[rows]])]
    begin, end, kind = drawn.begin[rows], drawn.end[rows], drawn.kind[rows]
    depth = min(_deepest(begin, end), MAX_DEPTH)
    label = f"{counted(len(parts), 'less busy thread')}"
    return SwimlaneRow(rank, label, begin, end, kind, (-2 - rows).astype(np.int32), depth)


def _deepest(begin: Ints, end: Ints) -> int:
    """How many slices, which are ordered by begin, are under way at once at most."""
    # Where one ends as another begins they need one row, not two.
    ended = np.searchsorted(np.sort(np.maximum(end, begin + 1)), begin, side="right")
    return int((np.arange(1, len(begin) + 1) - ended).max())


def _without(spans: tuple[Ints, Ints], cut: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """The parts of disjoint spans that no span of `cut`, disjoint too, covers."""
    at = np.concatenate((*spans, *cut))
    change = np.repeat([1, -1, -2, 2], [len(spans[0])] * 2 + [len(cut[0])] * 2)
    order = np.argsort(at, kind="stable")
    at, level = at[order], np.cumsum(change[order])
    inside = np.flatnonzero(level[:-1] == 1) if len(level) else np.empty(0, np.intp)
    begin, end = at[inside], at[inside + 1]
    kept = end > begin
    return begin[kept], end[kept]


def depths(begin: Ints, end: Ints) -> NDArray[np.uint8]:
    """A row for each slice so that those of one row do not overlap, as far as `MAX_DEPTH` allows.

    Args:
        begin, end: ns, by begin.
    """
    result = np.zeros(len(begin), np.uint8)
    free: list[int] = list(range(MAX_DEPTH))
    running: list[tuple[int, int]] = []
    for index, (first, last) in enumerate(zip(begin.tolist(), end.tolist(), strict=True)):
        while running and running[0][0] <= first:
            heapq.heappush(free, heapq.heappop(running)[1])
        if free:
            depth = heapq.heappop(free)
            heapq.heappush(running, (max(last, first + 1), depth))
            result[index] = depth
        else:
            result[index] = MAX_DEPTH - 1
    return result


def busy(lanes: Sequence[SwimlaneRow], edges_ns: Ints) -> NDArray[np.uint8]:
    """The share of each pixel that slices cover, of 255, rounded up: never 0 where one is.

    Args:
        edges_ns: of the pixels, ascending, no two alike; one more than there are pixels.

    Returns:
        A row per lane, a column per pixel.
    """
    covered = np.empty((len(lanes), len(edges_ns) - 1))
    for row, lane in enumerate(lanes):
        covered[row] = lane.covered_ns(edges_ns)
    # Half a ns less, so that no rounding lifts what is whole.
    widths = np.diff(edges_ns)
    level = np.ceil((255 * covered - 0.5) / widths)
    for row, lane in enumerate(lanes):
        if len(lane.instants):
            here = np.diff(np.searchsorted(lane.instants, edges_ns)) > 0
            level[row] = np.maximum(level[row], here)
    result: NDArray[np.uint8] = np.maximum(level, 0).astype(np.uint8)
    return result


def whole_stretches(lane: SwimlaneRow, low: int, high: int) -> tuple[int, int]:
    """Slices low to high with all that overlap them: the rows of slices then depend on no zoom."""
    begin, end = lane.stretches
    if low >= high or not lane.overlaps:
        return low, high
    first, last = np.searchsorted(begin, lane.begin[[low, high - 1]], side="right") - 1
    # A stretch that lasts ends before what begins with its end; both are one to `union`.
    return (
        int(np.searchsorted(lane.begin, begin[first], side="left")),
        int(np.searchsorted(lane.begin, end[last], side="right")),
    )
