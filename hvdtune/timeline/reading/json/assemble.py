"""From events to slices: pairs begins with ends, collects threads and titles, counts everything."""

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hvdtune.timeline.model.interning import PairInterner, raise_to
from hvdtune.timeline.reading.json.batch import MISSING, NUMBERS, EventBatch, EventScanner
from hvdtune.timeline.reading.json.begin_end_pairing import SCHEMA, Halves
from hvdtune.timeline.reading.json.damage import BACKWARD, DamageReport, Reason

_PAIRS: Final = {"B": "E", "b": "e", "S": "F"}
_ENDS = frozenset("EeF")
# Instants of all sorts: flows, samples, marks, objects, memory dumps, clock syncs, old async steps.
_ALONE = "XCiIRnstfPNODvVcTp()"
_TITLES = {"process_name", "thread_name"}
_ARRANGEMENT = {"process_sort_index", "thread_sort_index", "process_labels"}
_UNKNOWN = Reason("event has an unknown phase", "events have an unknown phase")
_TIMELESS = Reason("event has no time", "events have no time")
_LENGTHLESS = Reason(
    "slice has no duration, shown as 0 long", "slices have no duration, shown as 0 long"
)
_EXPECTED = np.zeros(256, bool)
_EXPECTED[[ord(letter) for letter in _ALONE + "BEbeSFM"]] = True


@dataclass
class Tracks:
    """Threads of the file.

    Attributes:
        pid, tid: text of each track.
        processes, threads: titles, by pid and by pid and tid.
        clues: what else the file says with the titles of its processes.
    """

    pid: list[str] = field(default_factory=list)
    tid: list[str] = field(default_factory=list)
    processes: dict[str, str] = field(default_factory=dict)
    threads: dict[str, dict[str, str]] = field(default_factory=dict)
    clues: dict[str, Any] = field(default_factory=dict)


class Assembler:
    """Takes batches, gives slices: those that are whole at once, begun ones at the end."""

    def __init__(self, scanner: EventScanner, report: DamageReport) -> None:
        self.tracks = Tracks()
        self._scanner = scanner
        self._report = report
        self._numbers = PairInterner()  # of tracks
        self._last_ns = np.full(64, MISSING, np.int64)  # of each track
        self._texts: list[str] = []
        self._halves = {begin: Halves(begin, end, report) for begin, end in _PAIRS.items()}

    def add(self, batch: EventBatch) -> list[pa.RecordBatch]:
        """The slices that are whole so far."""
        self._texts = self._scanner.texts()
        letters = batch.phase
        present = {chr(letter) for letter in np.flatnonzero(np.bincount(letters)).tolist()}
        wanted = self._accept(batch)
        if "M" in present:
            self._read_titles(batch)
        track = self._track_of(batch)
        end = batch.at_ns + np.maximum(batch.lasted_ns, 0) * (letters == ord("X"))
        self._reach(*((track, end) if wanted.all() else (track[wanted], end[wanted])))
        columns = {
            "track": track,
            "phase": np.where(letters == ord("I"), np.uint8(ord("i")), letters),
            "name": batch.name,
            "category": batch.category,
            "id": batch.id,
            "begin_ns": batch.at_ns,
            "end_ns": end,
            "open": np.zeros(len(batch), bool),
            **dict(zip(NUMBERS, batch.numbers, strict=True)),
        }
        rows = pa.record_batch([*map(pa.array, columns.values()), batch.args], schema=SCHEMA)
        done = []
        for begin, ending in _PAIRS.items():
            if present.isdisjoint((begin, ending)):
                continue
            half = wanted & ((letters == ord(begin)) | (letters == ord(ending)))
            if half.any():
                done += self._halves[begin].add(_filtered(rows, half), self._last_ns)
                wanted &= ~half
        self._count_shown(letters[wanted])
        return [batch for batch in (*done, _filtered(rows, wanted)) if len(batch)]

    def finish(self) -> list[pa.RecordBatch]:
        """The slices that begin and end with events of their own, and were not whole yet."""
        return [batch for half in self._halves.values() for batch in half.finish(self._last_ns)]

    def _accept(self, batch: EventBatch) -> NDArray[np.bool_]:
        """Which events become slices; what is told of the others."""
        letters = batch.phase
        known = _EXPECTED[letters]
        title = letters == ord("M")
        timed = batch.at_ns != MISSING
        whole = letters == ord("X")
        backward = whole & (batch.lasted_ns < 0) & (batch.lasted_ns != MISSING)
        self._tell(letters, ~known, _UNKNOWN)
        self._tell(letters, known & ~title & ~timed, _TIMELESS)
        self._tell(letters, timed & backward, BACKWARD)
        lengthless = whole & timed & (batch.lasted_ns == MISSING)
        self._report.note(_LENGTHLESS, int(lengthless.sum()))
        accepted: NDArray[np.bool_] = known & ~title & timed & ~backward
        return accepted

    def _tell(self, letters: NDArray[np.uint8], which: NDArray[np.bool_], reason: Reason) -> None:
        if which.any():
            for letter, count in enumerate(np.bincount(letters[which]).tolist()):
                told = Reason(*(f"{text} ({chr(letter)!r})" for text in reason))
                self._report.left_out(chr(letter), told, count)

    def _count_shown(self, letters: NDArray[np.uint8]) -> None:
        for letter, count in enumerate(np.bincount(letters).tolist()):
            if count:
                self._report.shown[chr(letter)] += count

    def _read_titles(self, batch: EventBatch) -> None:
        for row in np.flatnonzero(batch.phase == ord("M")).tolist():
            what = self._texts[batch.name[row]]
            pid, tid = self._texts[batch.pid[row]], self._texts[batch.tid[row]]
            if what in _TITLES:
                self._title(what, pid, tid, batch.args[row].as_py())
            elif what not in _ARRANGEMENT:
                named = f"({what[:40]!r})"
                reason = Reason(
                    f"metadata event has an unknown name {named}",
                    f"metadata events have an unknown name {named}",
                )
                self._report.left_out("M", reason)
                continue
            self._report.shown["M"] += 1

    def _title(self, what: str, pid: str, tid: str, args: str) -> None:
        try:
            said = msgspec.json.decode(args or "{}", type=dict[str, Any])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return
        name = said.pop("name", None)
        if isinstance(name, str):
            if what == "process_name":
                self.tracks.processes[pid] = name
            else:
                self.tracks.threads.setdefault(pid, {})[tid] = name
        if what == "process_name":
            self.tracks.clues |= said

    def _track_of(self, batch: EventBatch) -> NDArray[np.int32]:
        known = len(self._numbers)
        track = self._numbers.of(batch.pid, batch.tid)
        pids, tids = self._numbers.pairs(known)
        self.tracks.pid += [self._texts[code] for code in pids.tolist()]
        self.tracks.tid += [self._texts[code] for code in tids.tolist()]
        return track

    def _reach(self, track: NDArray[np.int32], end_ns: NDArray[np.int64]) -> None:
        if len(self._last_ns) < len(self._numbers):
            more = np.full(len(self._numbers), MISSING, np.int64)
            self._last_ns = np.concatenate((self._last_ns, more))
        raise_to(self._last_ns, track, end_ns)


def _filtered(rows: pa.RecordBatch, which: NDArray[np.bool_]) -> pa.RecordBatch:
    if which.all():
        return rows
    return rows.filter(pa.array(which)) if which.any() else rows.slice(0, 0)
