"""A trace in a few tables, computed from few columns, so that a cache can keep them."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hvdtune.timeline.cover import Spans, bins_for, cover
from hvdtune.timeline.model import KIND_TEXTS, Model
from hvdtune.timeline.schema import Ints

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


class Tally:
    """Takes slices in batches and holds no more of them than it must."""

    def __init__(self) -> None:
        self._rows = 0
        self._first_ns, self._last_ns = 2**62, -(2**62)
        self._pairs: dict[int, int] = {}  # numbers of name and category that came together
        self._counts: Counter[tuple[int, int]] = Counter()  # by track and pair
        self._total_ns: Counter[int] = Counter()  # by name
        self._longest_ns: dict[int, int] = {}
        self._spans: list[Spans] = []  # of slices with a length: their tracks
        self._pair_of: list[NDArray[np.int32]] = []  # and their pairs

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
        keys, inverse = np.unique(name.astype(np.int64) << 32 | category, return_inverse=True)
        numbers = [self._pairs.setdefault(key, len(self._pairs)) for key in keys.tolist()]
        pair = np.array(numbers, np.int32)[inverse]
        together = track.astype(np.int64) << 32 | pair
        for key, count in zip(*map(list, np.unique(together, return_counts=True)), strict=True):
            self._counts[int(key) >> 32, int(key) & 0xFFFFFFFF] += int(count)
        lasting = _LASTING[phase]
        self._add_times(name, (end_ns - begin_ns) * lasting)
        begin, end = begin_ns[lasting], end_ns[lasting]
        self._spans.append((track[lasting].astype(np.int32), begin, end))
        self._pair_of.append(pair[lasting])

    def _add_times(self, name: NDArray[Any], lasted_ns: Ints) -> None:
        used, inverse = np.unique(name, return_inverse=True)
        totals = np.bincount(inverse, weights=lasted_ns)
        longest = np.zeros(len(used), np.int64)
        np.maximum.at(longest, inverse, lasted_ns)
        for code, total, most in zip(used.tolist(), totals.tolist(), longest.tolist(), strict=True):
            self._total_ns[code] += int(total)
            self._longest_ns[code] = max(self._longest_ns.get(code, 0), most)

    def statistics(
        self,
        names: Sequence[str],
        categories: Sequence[str],
        kind: Callable[[str, str], str],
        tracks: Sequence[Track],
    ) -> Statistics:
        """Counts and times by kind, by name and by thread.

        Args:
            names, categories: text of each number.
            kind: what events of a name and a category are.
        """
        empty = self._rows == 0
        pairs = [divmod(key, 1 << 32) for key in self._pairs]
        kinds = [KIND_TEXTS.index(kind(names[name], categories[of])) for name, of in pairs]
        return Statistics(
            slices=self._rows,
            first_ns=0 if empty else self._first_ns,
            last_ns=0 if empty else self._last_ns,
            kinds=self._kind_rows(kinds, [rank for rank, *_ in tracks]),
            names=self._name_rows(names, [name for name, _ in pairs]),
            threads=self._thread_rows(tracks),
        )

    def _kind_rows(self, kinds: list[int], ranks: list[int]) -> list[KindRow]:
        known = sorted(set(ranks))
        counts: Counter[int] = Counter()
        rank = np.array([known.index(each) for each in ranks] or [0], np.int32)
        kind = np.array(kinds or [0], np.int32)
        for (track, pair), count in self._counts.items():
            counts[int(rank[track]) * len(KIND_TEXTS) + kinds[pair]] += count
        groups = len(known) * len(KIND_TEXTS)
        spans = (
            (
                rank[track][meant] * np.int32(len(KIND_TEXTS)) + kind[pair][meant],
                begin[meant],
                end[meant],
            )
            for (track, begin, end), pair in zip(self._spans, self._pair_of, strict=True)
            if (meant := kind[pair] > 0).any()
        )
        total_ns = cover(spans, groups).total_ns()
        rows = []
        for group, count in sorted(counts.items()):
            which, number = divmod(group, len(KIND_TEXTS))
            if number:
                busy_ms = float(total_ns[group]) / 1e6
                rows.append(KindRow(known[which], KIND_TEXTS[number], count, busy_ms))
        return rows

    def _name_rows(self, names: Sequence[str], name_of_pair: list[int]) -> list[NameRow]:
        counts: Counter[int] = Counter()
        for (_, pair), count in self._counts.items():
            counts[name_of_pair[pair]] += count
        order = sorted(counts, key=lambda name: (-self._total_ns[name], -counts[name], name))
        return [
            NameRow(
                names[name],
                counts[name],
                self._total_ns[name] / 1e6,
                self._longest_ns[name] / 1e6,
            )
            for name in order[:MAX_NAMES]
        ]

    def _thread_rows(self, tracks: Sequence[Track]) -> list[ThreadRow]:
        counts: Counter[int] = Counter()
        for (track, _), count in self._counts.items():
            counts[track] += count
        covered = cover(self._spans, len(tracks))
        total_ns, busy = covered.total_ns(), covered.busy(bins_for(len(tracks)))
        return [
            ThreadRow(
                *tracks[track],
                count=counts[track],
                busy_ms=float(total_ns[track]) / 1e6,
                busy=np.round(busy[track].astype(np.float64), 4).tolist(),
            )
            for track in sorted(counts)
        ]


def statistics_of(model: Model) -> Statistics:
    """The statistics of a model."""
    slices = model.slices
    keys = ["rank", "process", "thread"]
    track = slices.groupby(keys, observed=True, sort=True).ngroup().to_numpy()
    first = np.unique(track, return_index=True)[1]
    each = zip(*(slices[key].iloc[first] for key in keys), strict=True)
    letters = slices["phase"].cat
    phase = np.array([ord(text) for text in letters.categories] or [0], np.uint8)
    tally = Tally()
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
