"""Rows of other tables as slices, with the threads they are on and the texts they name."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hvdtune.timeline.reading.json.assemble import Tracks
from hvdtune.timeline.reading.json.batch import MAX_NS
from hvdtune.timeline.reading.json.begin_end_pairing import SCHEMA
from hvdtune.timeline.reading.json.damage import BACKWARD, DamageReport, Reason
from hvdtune.timeline.reading.json.parsed import ParsedFile

NO_TIME: Final = -(2**62)  # what stands for a time that is not known
_UNKNOWN: Final = ("seq", "bucket", "bytes", "process_set", "cached")


class SliceRows:
    """Takes rows in batches and gives them on as slices.

    Attributes:
        tracks: the threads so far; their titles are set by the reader of a format.
    """

    def __init__(
        self, report: DamageReport, sink: Callable[[pa.RecordBatch], None] | None = None
    ) -> None:
        """
        Args:
            sink: takes the slices as they come; without one they are in what is `parsed`.
        """
        self.tracks = Tracks()
        self._report = report
        self._kept: list[pa.RecordBatch] = []
        self._sink = self._kept.append if sink is None else sink
        self._texts: dict[str, int] = {"": 0}
        self._numbers: dict[tuple[str, str], int] = {}
        self._last_ns: dict[int, int] = {}
        self._open: list[tuple[int, int, int, int, int, str]] = []

    @property
    def texts(self) -> list[str]:
        """Text of each number."""
        return list(self._texts)

    def parsed(self, around: dict[str, Any]) -> ParsedFile:
        """The file that the rows are of, with what is told `around` them."""
        return ParsedFile(
            path=self._report.path,
            table=pa.Table.from_batches(self._kept, SCHEMA),
            texts=self.texts,
            tracks=self.tracks,
            around=around,
            counts=self._report.counts(),
            warnings=self._report.warnings(),
        )

    def code(self, text: str) -> int:
        """The number of a text."""
        return self._texts.setdefault(text, len(self._texts))

    def codes(self, values: NDArray[Any], text: Callable[[int], str]) -> NDArray[np.int32]:
        """Numbers of the texts of many values, few of which differ."""
        used, inverse = np.unique(values, return_inverse=True)
        return np.array([self.code(text(value)) for value in used.tolist()], np.int32)[inverse]

    def track(self, pid: str, tid: str) -> int:
        """The number of a thread."""
        number = self._numbers.setdefault((pid, tid), len(self._numbers))
        if number == len(self.tracks.pid):
            self.tracks.pid.append(pid)
            self.tracks.tid.append(tid)
        return number

    def threads(
        self, columns: Sequence[NDArray[Any]], place: Callable[..., tuple[str, str]]
    ) -> NDArray[np.int32]:
        """Numbers of threads; `place` says their pid and tid by values of the columns."""
        used, inverse = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        numbers = [self.track(*place(*values)) for values in used.tolist()]
        return np.array(numbers, np.int32)[inverse.reshape(-1)]

    def add(
        self,
        track: NDArray[np.int32],
        name: NDArray[np.int32],
        category: str,
        times_ns: tuple[NDArray[np.int64], NDArray[np.int64]],
        args: Sequence[str],
        phase: str = "X",
        size: NDArray[np.int64] | None = None,
        seq: NDArray[np.int64] | None = None,
    ) -> None:
        """Take rows; an end that is `NO_TIME` is the last time of its thread.

        Args:
            args: JSON text of each.
            size, seq: bytes and number of each, where they are known.
        """
        begin, end = times_ns
        timed = (np.abs(begin) < MAX_NS) & ((np.abs(end) < MAX_NS) | (end == NO_TIME))
        backward = timed & (end != NO_TIME) & (end < begin)
        timeless = Reason("row has no time", "rows have no time")
        self._report.left_out(phase, timeless, int((~timed).sum()))
        self._report.left_out(phase, BACKWARD, int(backward.sum()))
        kept = timed & ~backward
        is_open = kept & (end == NO_TIME)
        code = self.code(category)
        for row in np.flatnonzero(is_open).tolist():
            number = -1 if seq is None else int(seq[row])
            where = (int(track[row]), int(name[row]), code, number)
            self._open.append((*where, int(begin[row]), args[row]))
        rows = np.flatnonzero(kept & ~is_open)
        last = np.where(is_open, begin, end)
        numbers, places = np.unique(track[kept], return_inverse=True)
        latest = np.full(len(numbers), NO_TIME, np.int64)
        np.maximum.at(latest, places, last[kept])
        for number, at in zip(numbers.tolist(), latest.tolist(), strict=True):
            self._last_ns[number] = max(self._last_ns.get(number, at), at)
        self._report.shown[phase] += len(rows)
        columns: dict[str, Any] = {
            "track": track[rows],
            "phase": np.full(len(rows), ord(phase), np.uint8),
            "name": name[rows],
            "category": np.full(len(rows), code, np.int32),
            "id": np.zeros(len(rows), np.int32),
            "begin_ns": begin[rows],
            "end_ns": end[rows],
            "open": np.zeros(len(rows), bool),
            **{column: np.full(len(rows), -1, np.int64) for column in _UNKNOWN},
            "args": [args[row] for row in rows.tolist()],
        }
        for column, values in (("bytes", size), ("seq", seq)):
            if values is not None:
                columns[column] = np.maximum(values[rows], -1)
        self._give(columns)

    def finish(self) -> None:
        """Give on what has no end."""
        if not self._open:
            return
        track, name, category, seq, begin, args = map(list, zip(*self._open, strict=True))
        count = len(self._open)
        self._report.shown["X"] += count
        columns: dict[str, Any] = {
            "track": track,
            "phase": np.full(count, ord("X"), np.uint8),
            "name": name,
            "category": category,
            "id": np.zeros(count, np.int32),
            "begin_ns": begin,
            "end_ns": [self._last_ns[number] for number in track],
            "open": np.ones(count, bool),
            **{column: np.full(count, -1, np.int64) for column in _UNKNOWN},
            "seq": seq,
            "args": args,
        }
        self._give(columns)

    def _give(self, columns: dict[str, Any]) -> None:
        if len(columns["track"]):
            arrays = [pa.array(columns[field.name], field.type) for field in SCHEMA]
            self._sink(pa.record_batch(arrays, schema=SCHEMA))
