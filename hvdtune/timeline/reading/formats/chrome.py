"""Reads back what `export.write_chrome` wrote."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
import numpy as np

from hvdtune.errors import TraceFormatError
from hvdtune.timeline.model.schema import (
    COLUMNS,
    KIND_NAMES,
    KINDS,
    PROCESS_SET_UNIT,
    Kind,
    Trace,
    make_events,
)

FORMAT = 1
CHUNK_BYTES = 4 << 20
MAX_HEAD_BYTES = 64 << 20  # everything before the events: metadata, warnings, tensor names
GZIP_MAGIC = b"\x1f\x8b"

# Bounds keep every sum below 64 bits. Times are in us.
_Us = Annotated[float, msgspec.Meta(ge=-1e15, le=1e15)]
_Int = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]
_ProcessSet = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
_Rank = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _Args(msgspec.Struct):
    step: _Int = 0
    seq: _Int = 0
    bucket: _Int = 0
    bytes: _Int = 0
    cached: _Int = 0
    last_rank: _Int = 0
    process_set: _ProcessSet = 0
    tensors: _Int = 0
    waited_us: _Int = 0
    ran_us: _Int = 0
    peer: _Int = -1
    what: str = ""
    version: _Int = 0
    offset_ns: _Int = 0
    reason: str = ""
    setting: str = ""
    late_us: _Us = 0.0
    round_trip_us: _Us = 0.0


class _Event(msgspec.Struct):
    ph: str
    name: str
    cat: str = ""
    pid: _Rank = 0
    tid: _Int = 0
    ts: _Us = 0.0
    dur: _Us = 0.0
    cycle: _Int = 0
    args: _Args = msgspec.field(default_factory=_Args)


class _Meta(msgspec.Struct):
    ranks: dict[int, dict[str, Any]] = {}
    dropped: dict[int, int] = {}
    clock: dict[int, dict[str, Any]] = {}
    shapes: dict[str, str] | None = None
    origin_ns: int | None = None
    origin_unix_ns: int | None = None


class _Other(msgspec.Struct):
    hvdtune: int
    events: int
    meta: _Meta
    warnings: list[str]
    tensors: dict[int, str]


class _Head(msgspec.Struct):
    otherData: _Other


_DAMAGED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def read_chrome(path: Path | str) -> Trace:
    """Read a trace that `export.write_chrome` wrote, compressed or not.

    Lines that cannot be read are left out, and named in `Trace.warnings`.

    Raises:
        TraceFormatError: it is no such file, or its head is damaged.
    """
    path = Path(path)
    try:
        with open(path, "rb") as file:
            return _read(path, file)
    except OSError as error:
        raise TraceFormatError(f"cannot read {path}: {error.strerror}", str(path)) from error


def _read(path: Path, file: IO[bytes]) -> Trace:
    problems: list[str] = []
    lines = _line_chunks(path, file, problems)
    head, begin, rest = _read_head(path, lines)
    columns = _Gathered(head.tensors)
    decoder = msgspec.json.Decoder(list[_Event])
    for offset, chunk in _with_first((begin, rest), lines):
        events = _decode(decoder, chunk)
        if events is None:
            events = _salvage(path, chunk, offset, problems)
        columns.add(events)
    if columns.count != head.events:
        problems.append(f"{path}: {columns.count} of {head.events} events could be read")
    meta = {
        key: value for key, value in msgspec.structs.asdict(head.meta).items() if value is not None
    }
    return Trace(columns.events(), meta, head.warnings + problems)


def _read_head(path: Path, lines: Iterator[tuple[int, bytes]]) -> tuple[_Other, int, bytes]:
    data = b""
    for _, chunk in lines:
        data += chunk
        first, found, rest = data.partition(b',\n"traceEvents":[\n')
        if found:
            break
        if not data.startswith(b'{"displayTimeUnit"') or len(data) > MAX_HEAD_BYTES:
            raise TraceFormatError(f"{path}: not a trace that hvdtune exported", str(path), 0)
    else:
        raise TraceFormatError(f"{path}: cut off at byte {len(data)}", str(path), len(data))
    try:
        head = msgspec.json.decode(first + b"}", type=_Head).otherData
    except _DAMAGED as error:
        raise TraceFormatError(
            f"{path}: not a trace that hvdtune exported", str(path), 0
        ) from error
    if head.hvdtune != FORMAT:
        raise TraceFormatError(f"{path}: version {head.hvdtune} is not known", str(path))
    return head, len(first) + len(found), rest


def _with_first(
    first: tuple[int, bytes], rest: Iterator[tuple[int, bytes]]
) -> Iterator[tuple[int, bytes]]:
    yield first
    yield from rest


def _line_chunks(path: Path, file: IO[bytes], problems: list[str]) -> Iterator[tuple[int, bytes]]:
    """Chunks that end where a line does, with their offsets in the uncompressed text."""
    offset, kept = 0, b""
    for data in _texts(path, file, problems):
        kept += data
        end = kept.rfind(b"\n") + 1
        if end == 0 and len(kept) > MAX_HEAD_BYTES:
            raise TraceFormatError(f"{path}: not a trace that hvdtune exported", str(path), offset)
        if end > 0:
            yield offset, kept[:end]
            offset, kept = offset + end, kept[end:]
    if kept:
        yield offset, kept


def _texts(path: Path, file: IO[bytes], problems: list[str]) -> Iterator[bytes]:
    start = file.read(len(GZIP_MAGIC))
    file.seek(0)
    if start != GZIP_MAGIC:
        while data := file.read(CHUNK_BYTES):
            yield data
        return
    unpacker = zlib.decompressobj(wbits=31)
    try:
        while not unpacker.eof and (data := unpacker.unconsumed_tail or file.read(CHUNK_BYTES)):
            yield unpacker.decompress(data, CHUNK_BYTES)
    except zlib.error:
        problems.append(f"{path}: damaged before byte {file.tell()}")
        return
    if not unpacker.eof:
        problems.append(f"{path}: cut off at byte {file.tell()}")


def _decode(decoder: msgspec.json.Decoder[list[_Event]], chunk: bytes) -> list[_Event] | None:
    text = chunk.removesuffix(b"\n]}\n").rstrip(b",\n")
    try:
        return decoder.decode(b"[" + text + b"]")
    except _DAMAGED:
        return None


def _salvage(path: Path, chunk: bytes, offset: int, problems: list[str]) -> list[_Event]:
    decoder = msgspec.json.Decoder(_Event)
    events = []
    bad: list[int] = []
    for line in chunk.splitlines(keepends=True):
        text = line.rstrip(b",\r\n")
        if text and text != b"]}":
            try:
                events.append(decoder.decode(text))
            except _DAMAGED:
                bad.append(offset)
        offset += len(line)
    problems.append(f"{path}: {len(bad)} lines from byte {bad[0] if bad else offset} are damaged")
    return events


class _Gathered:
    """Columns of the events seen so far."""

    def __init__(self, tensors: dict[int, str]) -> None:
        self.count = 0
        self._tensors = tensors
        self._names: dict[str, int] = {"": 0}
        self._parts: list[np.ndarray[Any, np.dtype[np.int64]]] = []

    def add(self, events: list[_Event]) -> None:
        rows = [row for event in events if (row := self._row(event)) is not None]
        self.count += len(rows)
        if rows:
            self._parts.append(np.array(rows, dtype=np.int64))

    def events(self) -> Any:
        table = np.concatenate([np.empty((0, len(COLUMNS)), np.int64), *self._parts])
        columns = {key: table[:, index] for index, key in enumerate(COLUMNS)}
        return make_events(columns, list(self._names))

    def _row(self, event: _Event) -> tuple[int, ...] | None:
        # A span has the name that the script gave it.
        named = event.cat == KINDS["SPAN"].row and event.name not in KINDS
        found = _KIND_OF.get("SPAN" if named else event.name)
        if found is None or event.ph == "M":
            return None
        code, kind = found
        args = event.args
        text = self._tensors.get(event.tid, "") if kind.row == "tensor" else ""
        values = {"name": 0, "seq": 0, "bucket": 0, "arg": 0}
        for column, label in kind.fields.items():
            if column == "name":
                text = getattr(args, label)
            else:
                values[column] = event.cycle if label == "cycle" else getattr(args, label)
        if kind.name == "NEGOTIATE":
            values["arg"] += args.process_set * PROCESS_SET_UNIT
        name = self._names.setdefault(text, len(self._names))
        begin = round(event.ts * 1000)
        lasted = getattr(args, kind.duration) if kind.duration else event.dur
        end = begin + round(lasted * 1000)
        return event.pid, code, name, begin, end, values["seq"], values["bucket"], values["arg"]


def _kinds_by_event_name() -> dict[str, tuple[int, Kind]]:
    known = {name: (code, KINDS[name]) for code, name in enumerate(KIND_NAMES)}
    known["cycle"] = known.pop("CYCLE")
    for name in KIND_NAMES:
        known[f"NEGOTIATE_{name}"] = known["NEGOTIATE"]
    return known


_KIND_OF = _kinds_by_event_name()
