"""What the swimlane draws of one stretch of time, as bytes.

A tile is a head in JSON behind its length (4 bytes, little endian), padded to 8 bytes, then columns
of slices: begin and end (float64, ns), row (int32, see `lanes.SwimlaneRow`), name (uint32, of the
head's names); of each pixel of each of the head's counters the lowest value and then of each the
highest (float32, NaN: not known yet); of slices lane (uint16, of the head's lanes), kind (uint8),
depth (uint8). Where slices are too many to be told apart, "exact" is false, there are none, and how
busy each pixel of each lane is follows (uint8, of 255).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.dashboard.lanes import NAMES_OF_KINDS, SwimlaneRow, busy, depths, whole_stretches
from hvdtune.timeline.model.schema import KIND_NAMES, Ints
from hvdtune.timeline.model.trace import Trace

MAX_SLICES = 6_000
MAX_MARKS = 300
MAX_PIXELS = 8_192


@dataclass(frozen=True)
class TileWindow:
    """What is asked for: pixels of equal width, of at least one ns, from `first_ns` on."""

    first_ns: int
    last_ns: int
    pixels: int

    @classmethod
    def of(cls, first_ns: float, last_ns: float, pixels: int) -> "TileWindow":
        """A window between any two times, in order and far enough apart."""
        count = min(max(pixels, 1), MAX_PIXELS)
        first, last = sorted((int(first_ns), int(last_ns)))
        return cls(first, max(last, first + count), count)

    @property
    def edges_ns(self) -> Ints:
        """The edges of the pixels."""
        span = self.last_ns - self.first_ns
        return self.first_ns + np.arange(self.pixels + 1, dtype=np.int64) * span // self.pixels


def tile(
    lanes: Sequence[SwimlaneRow], window: TileWindow, trace: Trace, more: Mapping[str, Any]
) -> bytes:
    """The bytes of a tile.

    Args:
        lanes: those that are to be drawn.
        trace: what the rows of their slices are rows of.
        more: for the head, which also has "counters": [lane, lowest, highest value of all time].
    """
    ranges = [lane.within(window.first_ns, window.last_ns) for lane in lanes]
    exact = sum(high - low for low, high in ranges) <= MAX_SLICES
    columns = _columns(lanes, ranges, window) if exact else _EMPTY
    rows = columns["row"]
    names, name = _names(trace, rows, columns["kind"])
    counters, levels = _levels(lanes, window)
    head = {
        "from": window.first_ns,
        "to": window.last_ns,
        "pixels": window.pixels,
        "lanes": len(lanes),
        "slices": len(rows),
        "exact": exact,
        "names": names,
        "counters": counters,
        **more,
    }
    text = msgspec.json.encode(head)
    text += b" " * (-(len(text) + 4) % 8)
    body = (
        columns["begin"].astype("<f8"),
        columns["end"].astype("<f8"),
        rows.astype("<i4"),
        name.astype("<u4"),
        levels.astype("<f4"),
        columns["lane"].astype("<u2"),
        columns["kind"],
        columns["depth"],
        np.empty(0) if exact else busy(lanes, window.edges_ns),
    )
    return b"".join((len(text).to_bytes(4, "little"), text, *(part.tobytes() for part in body)))


_EMPTY: dict[str, NDArray[Any]] = {
    "begin": np.empty(0, np.int64),
    "end": np.empty(0, np.int64),
    "row": np.empty(0, np.int32),
    "lane": np.empty(0, np.uint16),
    "kind": np.empty(0, np.uint8),
    "depth": np.empty(0, np.uint8),
}


def _levels(
    lanes: Sequence[SwimlaneRow], window: TileWindow
) -> tuple[list[list[float]], NDArray[np.float32]]:
    """The lanes that are counters, and their levels: a row of lowest, a row of highest for each."""
    tracks = {row: lane.counter for row, lane in enumerate(lanes) if lane.counter is not None}
    said = [
        [row, float(track.value.min()), float(track.value.max())] for row, track in tracks.items()
    ]
    rows = [track.extremes(window.edges_ns) for track in tracks.values()]
    return said, np.array(rows or np.empty((0, 2, 0)), np.float32)


def _columns(
    lanes: Sequence[SwimlaneRow], ranges: Sequence[tuple[int, int]], window: TileWindow
) -> dict[str, NDArray[Any]]:
    parts = [_EMPTY]
    for index, (lane, (low, high)) in enumerate(zip(lanes, ranges, strict=True)):
        if low >= high:
            continue
        first, last = whole_stretches(lane, low, high)
        if last - first > MAX_SLICES:
            first, last = low, high
        if lane.overlaps:
            of_all = depths(lane.begin[first:last], lane.end[first:last])
            depth = of_all[low - first : high - first]
        else:
            depth = np.zeros(high - low, np.uint8)
        shown = lane.end[low:high] >= window.first_ns
        own: dict[str, NDArray[Any]] = {
            "begin": lane.begin,
            "end": lane.end,
            "row": lane.row,
            "kind": lane.kind,
        }
        part = {name: column[low:high][shown] for name, column in own.items()}
        part["depth"] = depth[shown]
        part["lane"] = np.full(int(shown.sum()), index, np.uint16)
        parts.append(part)
    return {name: np.concatenate([part[name] for part in parts]) for name in _EMPTY}


def _names(
    trace: Trace, rows: NDArray[np.int32], kinds: NDArray[np.uint8]
) -> tuple[list[str], NDArray[np.int64]]:
    """The texts of slices, each once, and which each has: its name, or else its kind."""
    if len(rows) == 0:
        return [], np.empty(0, np.int64)
    own = trace.events["name"].cat.categories
    theirs = None if trace.others is None else trace.others.rows["name"]
    codes = np.full(len(rows), -1, np.int64)
    codes[rows >= 0] = trace.events["name"].cat.codes.to_numpy()[rows[rows >= 0]]
    if theirs is not None:
        of_theirs = theirs.cat.codes.to_numpy()[-2 - rows[rows < -1]]
        codes[rows < -1] = len(own) + of_theirs.astype(np.int64)
    # Kinds have negative numbers; a bucket's name is why it was closed.
    unnamed = (rows == -1) | (kinds == KIND_NAMES.index("BUCKET"))
    if "" in own:
        unnamed |= codes == own.get_loc("")
    codes = np.where(unnamed, -1 - kinds.astype(np.int64), codes)
    used, name = np.unique(codes, return_inverse=True)
    kind_of = dict(zip(codes.tolist(), kinds.tolist(), strict=True))

    def word(code: int) -> str:
        if code < 0 or code < len(own):
            return "" if code < 0 else str(own[code])
        assert theirs is not None
        return str(theirs.cat.categories[code - len(own)])

    names = [word(code) or NAMES_OF_KINDS[kind_of[code]] for code in used.tolist()]
    return names, name


@dataclass(frozen=True)
class Marks:
    """Instants of the whole job, by what they are: "steps", "adopted" (settings), "cycles".

    Attributes:
        at_ns: of each, ascending.
        texts: of each; none for cycles.
    """

    at_ns: dict[str, Ints]
    texts: dict[str, list[str]]

    @classmethod
    def of(cls, events: pd.DataFrame, found: pd.DataFrame | None = None) -> "Marks":
        """The marks of the lowest rank that has any.

        Args:
            found: `steps.found_steps` of a trace that marks none.
        """
        at_ns, texts = {}, {}
        for key, kind in (("steps", "STEP"), ("adopted", "KNOB_ADOPTED"), ("cycles", "CYCLE")):
            rows = events[events["kind"] == kind]
            rows = rows[rows["rank"] == rows["rank"].min()]
            at_ns[key] = rows["begin_ns"].to_numpy()
            if kind == "STEP":
                texts[key] = [f"step {number}" for number in rows["seq"]]
            elif kind == "KNOB_ADOPTED":
                texts[key] = [f"setting: {text}" for text in rows["name"].astype(str)]
        if found is not None:
            at_ns["steps"] = found["begin_ns"].to_numpy(np.int64)
            texts["steps"] = [f"step {number} (found)" for number in found["step"]]
        return cls(at_ns, texts)

    def within(self, window: TileWindow) -> dict[str, list[Any]]:
        """[ns, text] of each kind, or ns of cycles; evenly thinned where they are many.

        The first of "adopted" may be before the window: that setting is in force where it begins.
        """
        found: dict[str, list[Any]] = {}
        for key, at in self.at_ns.items():
            low, high = np.searchsorted(at, (window.first_ns, window.last_ns)).tolist()
            low = max(low - 1, 0) if key == "adopted" else low
            chosen = range(low, high, max(-(-(high - low) // MAX_MARKS), 1))
            texts = self.texts.get(key)
            found[key] = [
                int(at[index]) if texts is None else [int(at[index]), texts[index]]
                for index in chosen
            ]
        return found
