"""Which row of a viewer each event is drawn on."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hvdtune.timeline.model.schema import KIND_NAMES, KINDS, HasEvents, Ints

# Not 0: Perfetto takes thread 0 of process 1 for thread 1.
STEPS, COMMUNICATION, CLOCK, SCRIPT, FIRST_TENSOR = 1, 2, 3, 4, 16
_FIXED = {
    "steps": STEPS,
    "script": SCRIPT,
    "communication": COMMUNICATION,
    "clock": CLOCK,
    "process": STEPS,
}


@dataclass(frozen=True)
class ViewerRows:
    """Rows of a trace. The same row number means the same thing on every rank.

    Attributes:
        row: row number of each event.
        titles: what to write beside each row.
        tensors: name of the tensor each tensor row shows.
    """

    row: NDArray[np.int64]
    titles: dict[int, str]
    tensors: dict[int, str]


def assign_rows(trace: HasEvents) -> ViewerRows:
    """Give every event a row on which spans only ever nest.

    Spans that overlap without nesting cannot be drawn on one row: the later one goes to a further
    row of the same title, numbered from (2).
    """
    events = trace.events
    kind_row = np.array([_FIXED.get(KINDS[name].row, FIRST_TENSOR) for name in KIND_NAMES])
    is_span = np.array([KINDS[name].span for name in KIND_NAMES])
    kind = events["kind"].cat.codes.to_numpy()
    name = events["name"].cat.codes.to_numpy().astype(np.int64)
    row = kind_row[kind] if len(kind) else np.empty(0, np.int64)
    on_tensor = row == FIRST_TENSOR
    used = np.unique(name[on_tensor])
    row[on_tensor] += np.searchsorted(used, name[on_tensor])
    texts = events["name"].cat.categories
    tensors = {FIRST_TENSOR + k: str(texts[code]) for k, code in enumerate(used)}
    titles = {STEPS: "steps", COMMUNICATION: "communication", CLOCK: "clock", SCRIPT: "script"}
    titles |= {number: text or "(no name)" for number, text in tensors.items()}

    spans = np.flatnonzero(is_span[kind]) if len(kind) else np.empty(0, np.intp)
    overflow = lanes_of(
        events["rank"].to_numpy()[spans].astype(np.int64) << 32 | row[spans],
        events["begin_ns"].to_numpy()[spans],
        events["end_ns"].to_numpy()[spans],
    )
    next_row = FIRST_TENSOR + len(used)
    for base, copy in np.unique(np.stack((row[spans], overflow), axis=1), axis=0).tolist():
        if copy == 0:
            continue
        row[spans[(row[spans] == base) & (overflow == copy)]] = next_row
        titles[next_row] = f"{titles[base]} ({copy + 1})"
        if base in tensors:
            tensors[next_row] = tensors[base]
        next_row += 1
    return ViewerRows(row, titles, tensors)


def lanes_of(track: Ints, begin: Ints, end: Ints) -> Ints:
    """0 for a span that nests with the earlier ones of its track, else the further row it needs."""
    lane = np.zeros(len(track), np.int64)
    order = np.lexsort((-end, begin, track))
    for first, last in _groups(track[order]):
        members = order[first:last]
        ends = np.maximum.accumulate(end[members])
        if (begin[members][1:] >= ends[:-1]).all():
            continue  # one after the other
        lane[members] = _place(begin[members].tolist(), end[members].tolist())
    return lane


def _groups(group: Ints) -> list[tuple[int, int]]:
    cuts = np.flatnonzero(group[1:] != group[:-1]) + 1
    bounds = [0, *cuts.tolist(), len(group)]
    return [(a, b) for a, b in pairwise(bounds) if b > a]


def _place(begins: list[int], ends: list[int]) -> list[int]:
    rows: list[list[int]] = [[]]  # of each row, the ends of the spans still open
    placed = []
    for begin, end in zip(begins, ends, strict=True):
        row = next((k for k, row in enumerate(rows) if _fits(row, begin, end)), len(rows))
        if row == len(rows):
            rows.append([])
        rows[row].append(end)
        placed.append(row)
    return placed


def _fits(open_ends: list[int], begin: int, end: int) -> bool:
    while open_ends and open_ends[-1] <= begin:
        open_ends.pop()
    return not open_ends or end <= open_ends[-1]
