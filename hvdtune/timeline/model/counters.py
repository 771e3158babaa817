"""Counters of other programs: numbers that change over time, as memory in use."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.timeline.model.flows import described
from hvdtune.timeline.model.schema import KIND_NAMES, Ints

COUNTER_LETTER: Final = "C"
_PLACE: Final = ("rank", "pid", "process", "name", "id")


@dataclass(frozen=True)
class Counter:
    """One number.

    Attributes:
        rank: at least 0.
        label: what it is called; no two of a rank are called alike.
        at_ns: when it changes, ascending.
        value: what it is from each of these times on, in whatever unit the program counts.
    """

    rank: int
    label: str
    at_ns: Ints
    value: NDArray[np.float64]

    def extremes(self, edges_ns: Ints) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Its lowest and its highest value between neighbouring edges; NaN before its first one.

        Args:
            edges_ns: ascending, no two alike.
        """
        first = np.searchsorted(self.at_ns, edges_ns[:-1], side="right") - 1
        behind = np.searchsorted(self.at_ns, edges_ns[1:], side="left")
        # Every second stretch is between pixels. The last value stands for an empty one.
        ends = np.column_stack((np.maximum(first, 0), behind)).ravel()
        values = np.append(self.value, self.value[-1:])
        known = behind > 0
        return (
            np.where(known, np.minimum.reduceat(values, ends)[::2], np.nan).astype(np.float32),
            np.where(known, np.maximum.reduceat(values, ends)[::2], np.nan).astype(np.float32),
        )


@dataclass(frozen=True)
class Counters:
    """All of a trace.

    Attributes:
        tracks: by rank; those of a rank in the order in which they begin.
        events: how many events of the files they are.
        without_number: how many more there are, whose arguments hold none.
        first_without: which is the first of these, for a sentence.
    """

    tracks: tuple[Counter, ...]
    events: int
    without_number: int = 0
    first_without: str = ""


def counters_of(slices: pd.DataFrame) -> Counters:
    """The counters among a model's slices, but for hvdtune's own, as far as they have numbers."""
    which = slices["phase"].eq(COUNTER_LETTER) & ~slices["kind"].isin(KIND_NAMES)
    rows = slices.loc[which, [*_PLACE, "begin_ns", "args"]]
    places = rows.groupby(list(_PLACE), observed=True, sort=False)
    place = places.ngroup().to_numpy().tolist()
    known = [tuple(map(str, texts)) for texts in places.size().index.tolist()]
    at: dict[tuple[int, str], list[tuple[int, float]]] = {}
    without: list[int] = []
    for row, (number, ns, text) in enumerate(
        zip(place, rows["begin_ns"].tolist(), rows["args"], strict=True)
    ):
        numbers = dict(_numbers(text))
        if not numbers:
            without.append(row)
        for key, value in numbers.items():
            at.setdefault((number, key), []).append((ns, value))
    tracks = []
    for (number, key), label in zip(at, _labels(list(at), known), strict=True):
        times, values = zip(*at[number, key], strict=True)
        order = np.argsort(times, kind="stable")
        rank = max(int(known[number][0]), 0)
        tracks.append(
            Counter(rank, label, np.array(times, np.int64)[order], np.array(values, float)[order])
        )
    return Counters(
        tuple(sorted(tracks, key=lambda track: track.rank)),
        len(rows) - len(without),
        len(without),
        described(rows.iloc[without].sort_values("begin_ns").iloc[0]) if without else "",
    )


def _labels(keys: list[tuple[int, str]], known: list[tuple[str, ...]]) -> list[str]:
    """By name, and by more where that is not enough: what is counted, the process, its number."""
    called = []
    for number, key in keys:
        rank, pid, process, name, identity = known[number]
        whole = f"{name} {identity}".strip()
        called.append((max(int(rank), 0), whole, f"{whole} {key}", process, pid))
    table = pd.DataFrame(called, columns=["rank", "label", "with_key", "process", "pid"])
    shared = _is_shared(table)
    table.loc[shared, "label"] = table.loc[shared, "with_key"]
    for more in ("process", "pid"):
        shared = _is_shared(table)
        table.loc[shared, "label"] = table.loc[shared, more] + " " + table.loc[shared, "label"]
    return [str(label) for label in table["label"]]


def _is_shared(table: pd.DataFrame) -> "pd.Series[bool]":
    shared: pd.Series[bool] = table.duplicated(["rank", "label"], keep=False)
    return shared


def _numbers(args: str) -> Iterator[tuple[str, float]]:
    """What the arguments of an event count."""
    try:
        said: Any = msgspec.json.decode(args or "{}")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return
    for key, value in said.items() if isinstance(said, dict) else ():
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            yield str(key), float(value)
