"""A trace in a few tables, computed from few columns, so that a cache can keep them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hvdtune.timeline.model.coverage import Spans, bins_for, cover
from hvdtune.timeline.model.interning import PairInterner, raise_to
from hvdtune.timeline.model.schema import Ints
from hvdtune.timeline.model.slices import KIND_TEXTS
from hvdtune.timeline.model.trace import Trace

MAX_NAMES = 100
# Slices of these letters have a length: they are no instants, counters or flows.
_LASTING = np.zeros(256, bool)
_LASTING[[ord(letter) for letter in "XbS"]] = True

Track = tuple[int, str, str]  # rank, process and thread


class KindRow(msgspec.Struct, frozen=True):
    """busy_ms: time that at least one slice of the kind covers on the rank."""

    rank: int
    kind: str
    count: int
    busy_ms: float


class NameRow(msgspec.Struct, frozen=True):
    """Times are sums over slices, which may overlap."""

    name: str
    count: int
    total_ms: float
    longest_ms: float


class ThreadRow(msgspec.Struct, frozen=True):
    """busy: the share of each of equal bins of the trace's time that slices of it cover."""

    rank: int
    process: str
    thread: str
    count: int
    busy_ms: float
    busy: list[float]


class Statistics(msgspec.Struct, frozen=True):
    """What `hvdtune timeline stats` says of a file.

    Attributes:
        slices: rows of the model.
        first_ns, last_ns: the file's times.
        names: the `MAX_NAMES` with the largest total.
    """

    slices: int
    first_ns: int
    last_ns: int
    kinds: list[KindRow]
    names: list[NameRow]
    threads: list[ThreadRow]


@dataclass(frozen=True)
class _Cells:
    """What slices of one kind on one thread come to, for each kind and thread that has some.

    Attributes:
        spans: what they cover, which takes far less room than they, and less time to sort again.
    """

    track: Ints
    kind: Ints
    count: NDArray[Any]
    spans: list[Spans]


class SliceTally:
    """Takes slices in batches and holds no more of them than it must."""

    def __init__(self) -> None:
        self._rows = 0
        self._first_ns, self._last_ns = 2**62, -(2**62)
        self._pairs = PairInterner()  # of name and category
        self._sorts = PairInterner()  # of track and pair
        self._counts = np.zeros(0, np.int64)  # of each sort
        self._total_ns = np.zeros(0)  # of each pair; floats, since sums may pass 64 bits
        self._longest_ns = np.zeros(0, np.int64)
        self._spans: list[Spans] = []  # of slices with a length: their sorts

    def add(
        self,
        name: NDArray[Any],
        category: NDArray[Any],
        track: NDArray[Any],
        phase: NDArray[np.uint8],
        begin_ns: Ints,
        end_ns: Ints,
    ) -> None:
        """Slices as columns of one length; texts and tracks are numbers."""
        if len(begin_ns) == 0:
            return
        self._rows += len(begin_ns)
        self._first_ns = min(self._first_ns, int(begin_ns.min()))
        self._last_ns = max(self._last_ns, int(end_ns.max()))
        pair = self._pairs.of(name, category)
        sort = self._sorts.of(track, pair)
        self._counts = _longer(self._counts, len(self._sorts))
        self._counts += np.bincount(sort, minlength=len(self._counts))
        lasting = _LASTING[phase]
        self._add_times(pair, (end_ns - begin_ns) * lasting)
        self._spans.append((sort[lasting], begin_ns[lasting], end_ns[lasting]))

    def _add_times(self, pair: NDArray[np.int32], lasted_ns: Ints) -> None:
        self._total_ns = _longer(self._total_ns, len(self._pairs))
        self._total_ns += np.bincount(pair, lasted_ns, len(self._total_ns))
        self._longest_ns = _longer(self._longest_ns, len(self._pairs))
        raise_to(self._longest_ns, pair, lasted_ns)

    def statistics(
        self,
        names: Sequence[str],
        categories: Sequence[str],
        kind: Callable[[str, str], str],
        tracks: Sequence[Track],
    ) -> Statistics:
        """Counts and times by kind, by name and by thread; the slices are given up for them.

        Args:
            names, categories: text of each number.
            kind: what events of a name and a category are.
        """
        empty = self._rows == 0
        name, category = self._pairs.pairs()
        texts = zip(name.tolist(), category.tolist(), strict=True)
        kinds = [KIND_TEXTS.index(kind(names[one], categories[other])) for one, other in texts]
        cells = self._cells(np.array(kinds, np.int64))
        return Statistics(
            slices=self._rows,
            first_ns=0 if empty else self._first_ns,
            last_ns=0 if empty else self._last_ns,
            kinds=_kind_rows(cells, [rank for rank, *_ in tracks]),
            names=self._name_rows(names, name),
            threads=_thread_rows(cells, tracks),
        )

    def _cells(self, kinds: Ints) -> _Cells:
        track, pair = self._sorts.pairs()
        used, cell = np.unique(track * len(KIND_TEXTS) + kinds[pair], return_inverse=True)
        counts = np.bincount(cell, self._counts, len(used))
        spans = cover(self._spans, len(used), cell.astype(np.int32)).spans()
        self._spans.clear()  # what comes next takes as much memory again
        return _Cells(*np.divmod(used, len(KIND_TEXTS)), counts, [spans])

    def _name_rows(self, names: Sequence[str], name_of_pair: Ints) -> list[NameRow]:
        used, name = np.unique(name_of_pair, return_inverse=True)
        counts = np.bincount(name[self._sorts.pairs()[1]], self._counts, len(used))
        total_ns = np.bincount(name, self._total_ns, len(used))
        longest_ns = np.zeros(len(used), np.int64)
        np.maximum.at(longest_ns, name, self._longest_ns)
        order = np.lexsort((used, -counts, -total_ns))[:MAX_NAMES]
        return [
            NameRow(
                names[used[row]],
                int(counts[row]),
                float(total_ns[row]) / 1e6,
                float(longest_ns[row]) / 1e6,
            )
            for row in order.tolist()
        ]


def _kind_rows(cells: _Cells, ranks: list[int]) -> list[KindRow]:
    known, rank = np.unique(np.array(ranks, np.int64), return_inverse=True)
    groups = len(known) * len(KIND_TEXTS)
    group_of = (rank[cells.track] * len(KIND_TEXTS) + cells.kind).astype(np.int32)
    counts = np.bincount(group_of, cells.count, groups)
    group_of[cells.kind == 0] = -1
    total_ns = cover(cells.spans, groups, group_of).total_ns()
    return [
        KindRow(
            int(known[group // len(KIND_TEXTS)]),
            KIND_TEXTS[group % len(KIND_TEXTS)],
            int(counts[group]),
            float(total_ns[group]) / 1e6,
        )
        for group in np.flatnonzero(counts).tolist()
        if group % len(KIND_TEXTS)
    ]


def _thread_rows(cells: _Cells, tracks: Sequence[Track]) -> list[ThreadRow]:
    counts = np.bincount(cells.track, cells.count, len(tracks))
    covered = cover(cells.spans, len(tracks), cells.track.astype(np.int32))
    total_ns, busy = covered.total_ns(), covered.busy(bins_for(len(tracks)))
    return [
        ThreadRow(
            *tracks[number],
            count=int(counts[number]),
            busy_ms=float(total_ns[number]) / 1e6,
            busy=np.round(busy[number].astype(np.float64), 4).tolist(),
        )
        for number in np.flatnonzero(counts).tolist()
    ]


def _longer(values: NDArray[Any], length: int) -> NDArray[Any]:
    """With zeros at the end, up to a length."""
    return np.concatenate((values, np.zeros(length - len(values), values.dtype)))


def statistics_of(trace: Trace) -> Statistics:
    """The statistics of a model."""
    slices = trace.slices
    keys = ["rank", "process", "thread"]
    track = slices.groupby(keys, observed=True, sort=True).ngroup().to_numpy()
    first = np.unique(track, return_index=True)[1]
    each = zip(*(slices[key].iloc[first] for key in keys), strict=True)
    letters = slices["phase"].cat
    phase = np.array([ord(text) for text in letters.categories] or [0], np.uint8)
    tally = SliceTally()
    tally.add(
        slices["name"].cat.codes.to_numpy(),
        slices["kind"].cat.codes.to_numpy(),
        track,
        phase[letters.codes.to_numpy()],
        slices["begin_ns"].to_numpy(),
        slices["end_ns"].to_numpy(),
    )
    return tally.statistics(
        [str(text) for text in slices["name"].cat.categories],
        KIND_TEXTS,
        lambda _, kind: kind,
        [(int(rank), str(process), str(thread)) for rank, process, thread in each],
    )
