"""Slices that only other programs record: what is drawn of them, in little memory."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.model.ordering import slice_order
from hvdtune.timeline.model.slices import categorical, kind_column

# Of a number of a slice: its "args" as JSON text, "" where it has none.
ArgsOf = Callable[[int], str]
_MOST_SHORT = 1 << 15


class ThreadPlace(NamedTuple):
    """Where slices are drawn, as in the model of slices; rank -1: the file does not say."""

    rank: int
    process: str
    thread: str
    pid: str
    tid: str


@dataclass
class UnsortedOthers:
    """Slices as they were read.

    Attributes:
        columns: "thread", "name" and "category" (numbers of the texts below), "kind" (of
            `slices.KIND_TEXTS`), "begin_ns", "end_ns", "line" (what `args_of` is asked for).
        unused: events that are neither here nor in the model's events.
    """

    columns: dict[str, NDArray[Any]]
    threads: list[ThreadPlace]
    names: Sequence[str]
    categories: Sequence[str]
    args_of: ArgsOf
    unused: int = 0

    def shift(self, by_ns: int) -> None:
        """Moves all times."""
        for key in ("begin_ns", "end_ns"):
            times = self.columns[key]
            self.columns[key] = np.add(times, by_ns, out=times if times.flags.writeable else None)


@dataclass(frozen=True)
class OtherSlices:
    """The slices of all threads, thread after thread.

    Attributes:
        rows: of each, by begin (equal begins: the longer first): begin_ns, end_ns (int64), kind,
            name, category (categories of text), source (int16), line (int32).
        threads: rank, process, thread, pid, tid of each thread, by rank, pid and tid.
        starts: the row with which each thread begins; one more at the end.
    """

    rows: pd.DataFrame
    threads: pd.DataFrame
    starts: NDArray[np.intp]
    sources: Sequence[ArgsOf] = field(repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def ranks(self) -> list[int]:
        """Ranks that have some, ascending."""
        return sorted(set(self.threads["rank"].tolist()))

    def thread_of(self, row: int) -> pd.Series:
        """A row of `threads`."""
        return self.threads.iloc[int(np.searchsorted(self.starts, row, side="right")) - 1]

    def args(self, row: int) -> str:
        """What the file says of a slice beside its times: JSON text, or ""."""
        source, line = (int(self.rows[key].iloc[row]) for key in ("source", "line"))
        return self.sources[source](line)

    def of_kind(self, kind: str) -> pd.DataFrame:
        """Slices of one kind: rank, process, begin_ns, end_ns."""
        where = np.flatnonzero(self.rows["kind"] == kind)
        thread = np.searchsorted(self.starts, where, side="right") - 1
        places = self.threads[["rank", "process"]].iloc[thread].reset_index(drop=True)
        times = self.rows[["begin_ns", "end_ns"]].iloc[where].reset_index(drop=True)
        return pd.concat([places, times], axis=1)


def from_slices(slices: pd.DataFrame, which: NDArray[np.bool_]) -> UnsortedOthers:
    """Some rows of the model's slices."""
    rows = slices[which]
    keys = rows.groupby(["rank", "pid", "tid"], observed=True, sort=True)
    places = keys[["process", "thread"]].first().reset_index()
    named = places[list(ThreadPlace._fields)].itertuples(index=False, name=None)
    texts = rows.get("args")
    columns = {
        "thread": keys.ngroup().to_numpy(),
        "name": rows["name"].cat.codes.to_numpy(),
        "category": rows["category"].cat.codes.to_numpy(),
        "kind": rows["kind"].cat.codes.to_numpy(),
        "begin_ns": rows["begin_ns"].to_numpy(),
        "end_ns": rows["end_ns"].to_numpy(),
        "line": np.arange(len(rows), dtype=np.int32),
    }
    return UnsortedOthers(
        columns,
        [ThreadPlace(int(rank), *map(str, texts)) for rank, *texts in named],
        list(rows["name"].cat.categories),
        list(rows["category"].cat.categories),
        lambda line: "" if texts is None else str(texts.iloc[line]),
    )


def sort_others(parts: Sequence[UnsortedOthers]) -> OtherSlices | None:
    """One table of all parts, whose columns are taken from them; None: there is no slice.

    Ranks that are not known are taken for 0.
    """
    parts = [part for part in parts if len(part.columns["line"])]
    if not parts:
        return None
    sources = np.repeat(
        np.arange(len(parts), dtype=np.int16), [len(part.columns["line"]) for part in parts]
    )
    threads, thread = _threads(parts)
    order = _order(thread, parts)
    starts = np.append(0, np.cumsum(np.bincount(thread, minlength=len(threads))))
    del thread

    def column(name: str) -> NDArray[Any]:
        taken: NDArray[Any] = _joined([part.columns.pop(name) for part in parts])[order]
        return taken

    columns: dict[str, Any] = {"begin_ns": column("begin_ns"), "end_ns": column("end_ns")}
    columns["kind"] = kind_column(column("kind").astype(np.int8))
    for name in ("name", "category"):
        texts = [part.names if name == "name" else part.categories for part in parts]
        codes, known = _numbered(texts, [part.columns.pop(name) for part in parts])
        columns[name] = categorical(codes[order], known)
    columns["line"] = column("line")
    columns["source"] = sources[order]
    rows = pd.DataFrame(columns, copy=False)
    return OtherSlices(rows, threads, starts, tuple(part.args_of for part in parts))


def _threads(parts: Sequence[UnsortedOthers]) -> tuple[pd.DataFrame, NDArray[Any]]:
    """The table of all threads, and the number of each row's thread in it."""
    known: dict[tuple[int, str, str], ThreadPlace] = {}
    keys = []
    for part in parts:
        own = [(max(place.rank, 0), place.pid, place.tid) for place in part.threads]
        for key, place in zip(own, part.threads, strict=True):
            known.setdefault(key, place._replace(rank=key[0]))
        keys.append(own)
    number = {key: index for index, key in enumerate(sorted(known, key=_place_order))}
    dtype = np.int16 if len(number) < _MOST_SHORT else np.int32  # few sort much faster
    places = [np.array([number[key] for key in own] or [0], dtype) for own in keys]
    thread = _joined(
        [place[part.columns.pop("thread")] for place, part in zip(places, parts, strict=True)]
    )
    used, thread = _only_used(thread, len(number))
    table = pd.DataFrame([known[key] for key in number], columns=list(ThreadPlace._fields))
    return table.iloc[used].reset_index(drop=True), thread


def _place_order(key: tuple[int, str, str]) -> tuple[Any, ...]:
    """Numbers before other texts, and 9 before 10."""
    rank, *ids = key
    return rank, *((0, int(text), "") if _is_number(text) else (1, 0, text) for text in ids)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def _only_used(numbers: NDArray[Any], count: int) -> tuple[NDArray[np.intp], NDArray[Any]]:
    used = np.flatnonzero(np.bincount(numbers, minlength=count))
    place = np.zeros(count, numbers.dtype)
    place[used] = np.arange(len(used))
    return used, numbers if len(used) == count else place[numbers]


def _order(thread: NDArray[Any], parts: Sequence[UnsortedOthers]) -> NDArray[Any]:
    """Thread after thread, the slices of each in order."""
    order = np.argsort(thread, kind="stable").astype(np.int32)
    begin, end = (_joined([part.columns[key] for part in parts]) for key in ("begin_ns", "end_ns"))
    starts = np.append(0, np.cumsum(np.bincount(thread)))
    for first, last in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        rows = order[first:last]
        own = slice_order(begin[rows], end[rows])
        if own is not None:
            order[first:last] = rows[own]
    return order


def _numbered(
    texts: Iterable[Sequence[str]], codes: Sequence[NDArray[Any]]
) -> tuple[NDArray[Any], list[str]]:
    """One number for equal texts of several lists, and all texts."""
    lists = list(texts)
    if len(lists) == 1:
        return codes[0], list(lists[0])
    known: dict[str, int] = {}
    places = [
        np.array([known.setdefault(text, len(known)) for text in each] or [0], np.int32)
        for each in lists
    ]
    return _joined([place[own] for place, own in zip(places, codes, strict=True)]), list(known)


def _joined(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
