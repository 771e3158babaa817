"""Events of a Chrome trace in columns, and the scanner that makes them without an extension."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Protocol

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

MISSING = -(2**63)  # a time that the event does not say
MAX_NS = 2**61  # sums of two times fit 64 bits
MAX_NUMBER = 2**62
HALVES = frozenset("BEbeSF")  # phases that begin or end a slice
NUMBERS = ("seq", "bucket", "bytes", "process_set", "cached")
# Where the numbers stand: in "args", but a viewer would draw each number in a counter's.
# What comes later prevails.
_PLACES = {"step": 0, "seq": 0, "bucket": 1, "bytes": 2, "process_set": 3, "cached": 4}
_MAX_SLAB_BYTES, _MIN_SLAB_BYTES = 1 << 20, 1 << 10
_MAX_CANDIDATES = 64
_BETWEEN = re.compile(rb"\}\s*(?:,\s*\{|\]|\Z)")
_NUMBER = re.compile(r"-?[0-9]{1,16}(\.[0-9]+)?([eE][-+]?[0-9]{1,2})?")


@dataclass(frozen=True)
class EventBatch:
    """Events in the order of the file, all columns of one length.

    Attributes:
        phase: uint8, the letter.
        name, category, pid, tid, id: int32, numbers of texts.
        at_ns, lasted_ns: int64, "ts" and "dur"; `MISSING` where there is none.
        numbers: for each of `NUMBERS` an array of int64; -1 where there is none.
        args: JSON text of "args", "" where there is none.
    """

    phase: NDArray[np.uint8]
    name: NDArray[np.int32]
    category: NDArray[np.int32]
    pid: NDArray[np.int32]
    tid: NDArray[np.int32]
    id: NDArray[np.int32]
    at_ns: NDArray[np.int64]
    lasted_ns: NDArray[np.int64]
    numbers: tuple[NDArray[np.int64], ...]
    args: pa.StringArray

    def __len__(self) -> int:
        return len(self.phase)


class EventScanner(Protocol):
    """Reads runs of well-formed events; owns the texts of a file."""

    def run(self, data: bytes, at: int) -> tuple[list[EventBatch], int]:
        """Events from `data[at]`, a "{", and where reading stopped: behind the last of them.

        It stops, perhaps at once (no batch), at what it does not understand or is cut off. Of the
        batches one has the begins and ends of slices (`HALVES`), the other everything else.
        """

    def code(self, text: str) -> int:
        """The number of a text."""

    def texts(self) -> list[str]:
        """Every text by its number; the first is "" and none comes twice."""


class EventRows:
    """Events as rows, to be a batch."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, ...]] = []
        self._args: list[str] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: tuple[int, ...], args: str) -> None:
        """A row: phase, name, category, pid, tid, id, at_ns, lasted_ns and the numbers."""
        self._rows.append(row)
        self._args.append(args)

    def batch(self) -> EventBatch:
        """The rows added since the last call."""
        table = np.array(self._rows, dtype=np.int64).reshape(len(self._rows), 8 + len(NUMBERS))
        name, category, pid, tid, ident = (table[:, k].astype(np.int32) for k in range(1, 6))
        args = pa.array(self._args, pa.string())
        self._rows, self._args = [], []
        return EventBatch(
            phase=table[:, 0].astype(np.uint8),
            name=name,
            category=category,
            pid=pid,
            tid=tid,
            id=ident,
            at_ns=table[:, 6],
            lasted_ns=table[:, 7],
            numbers=tuple(table[:, 8:].T),
            args=args,
        )


def nanoseconds(text: str) -> int:
    """Nanoseconds from microseconds as decimal text, half a nanosecond rounded up.

    Raises:
        ValueError: no number, or none that a time can be.
    """
    if not _NUMBER.fullmatch(text):
        raise ValueError(text)
    value = Decimal(text)
    if value.adjusted() > 16:
        raise ValueError(text)
    ns = int((value * 1000).to_integral_value(ROUND_HALF_UP))
    if abs(ns) > MAX_NS:
        raise ValueError(text)
    return ns


class _Event(msgspec.Struct, gc=False):
    ph: str
    name: str = ""
    cat: str = ""
    pid: int | str = ""
    tid: int | str = ""
    id: int | str = ""
    id2: msgspec.Raw = msgspec.Raw()
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    tdur: msgspec.Raw = msgspec.Raw()
    cycle: int = -1
    args: msgspec.Raw = msgspec.Raw()


class _Numbers(msgspec.Struct, gc=False):
    seq: int | None = None
    step: int | None = None
    bucket: int | None = None
    bytes: int | None = None
    process_set: int | None = None
    cached: int | None = None


_HAS_NUMBERS = re.compile(rb'"(?:seq|step|bucket|bytes|process_set|cached)"')
_NO_NUMBERS = (-1,) * len(NUMBERS)


class PythonScanner:
    """A scanner by msgspec, for where the extension is not built."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {"": 0}
        self._slab_bytes = _MAX_SLAB_BYTES
        self._decoder = msgspec.json.Decoder(list[_Event])
        self._numbers = msgspec.json.Decoder(_Numbers)

    def code(self, text: str) -> int:
        return self._codes.setdefault(text, len(self._codes))

    def texts(self) -> list[str]:
        return list(self._codes)

    def run(self, data: bytes, at: int) -> tuple[list[EventBatch], int]:
        # That a slab decodes proves that it ends where an event does.
        while True:
            size = self._slab_bytes
            for end in _ends_of_events(data, at, min(len(data), at + size)):
                batches = self._decode(data[at:end])
                if batches:
                    self._slab_bytes = min(4 * size, _MAX_SLAB_BYTES)
                    return batches, end
            if size == _MIN_SLAB_BYTES:
                return [], at
            self._slab_bytes = max(size // 16, _MIN_SLAB_BYTES)

    def _decode(self, slab: bytes) -> list[EventBatch]:
        whole, halves = EventRows(), EventRows()
        try:
            events = self._decoder.decode(b"[" + slab + b"]")
            for event in events:
                rows = halves if event.ph in HALVES else whole
                rows.add(self._row(event), args_text(event.args))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return []
        return [rows.batch() for rows in (whole, halves) if len(rows)]

    def _row(self, event: _Event) -> tuple[int, ...]:
        code = self.code
        ident = code(str(event.id) if event.id != "" else str(event.id2, "utf-8"))
        lasted = event.dur if len(event.dur) else event.tdur
        numbers = _NO_NUMBERS
        if _HAS_NUMBERS.search(event.args):
            found = self._numbers.decode(event.args)
            seq = found.step if found.seq is None else found.seq
            numbers = tuple(
                -1 if n is None else _bounded(n)
                for n in (seq, found.bucket, found.bytes, found.process_set, found.cached)
            )
        if event.cycle != -1:
            numbers = (_bounded(event.cycle), *numbers[1:])
        if len(event.ph) != 1 or not event.ph.isascii():
            raise ValueError(event.ph)
        return (
            ord(event.ph),
            code(event.name),
            code(event.cat),
            code(str(event.pid)),
            code(str(event.tid)),
            ident,
            _ns(event.ts),
            _ns(lasted),
            *numbers,
        )


def number_places() -> dict[str, int]:
    """Keys of "args" whose integers are kept, and their column in `EventBatch.numbers`."""
    return dict(_PLACES)


def args_text(raw: msgspec.Raw) -> str:
    """JSON text of "args"; null is none."""
    text = str(raw, "utf-8")
    return "" if text == "null" else text


def _bounded(number: int) -> int:
    if abs(number) >= MAX_NUMBER:
        raise ValueError(number)
    return number


def _ns(raw: msgspec.Raw) -> int:
    if not len(raw):
        return MISSING
    text = str(raw, "ascii")
    return nanoseconds(text[1:-1] if text[0] == '"' else text)


def _ends_of_events(data: bytes, at: int, limit: int) -> Iterator[int]:
    """Where, from the end on, an event may end: the last is the document's where that ends."""
    end = limit
    found = 0
    for _ in range(_MAX_CANDIDATES):
        end = data.rfind(b"}", at, end)
        if end < 0 or found == 2:
            return
        if _BETWEEN.match(data, end):
            found += 1
            yield end + 1
