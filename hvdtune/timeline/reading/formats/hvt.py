"""Reads the file one rank records; csrc/timeline/file.h has the grammar."""

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from hvdtune.errors import TraceFormatError
from hvdtune.timeline.model.schema import RECORD

MAGIC = b"HVDTRACE"
SYNC = b"HVDB"
VERSION = 1
HEADER = struct.Struct("<8sIIQII")
BLOCK = struct.Struct("<4sIII")
_END_BYTES = 16
METADATA, NAMES, RECORDS, CARRIED, DROPS, END, DETAILS, FULL = range(1, 9)

# Each failed try may cost a checksum over the rest of the file: a file made of false block
# starts must not take for ever.
MAX_FALSE_BLOCKS = 100


@dataclass(frozen=True)
class RankFile:
    """What one rank recorded, on its own clock.

    Attributes:
        rank: this rank, from the metadata.
        metadata: JSON object the recorder was given.
        records: dtype `schema.RECORD`, in the order of the file.
        carried: records repeated from parts that the size cap discarded: the setting in force
            and clock measurements.
        names: text of each name id.
        details: what names stand for: of tensors dtype and shape, as in "float32[64,3]".
        dropped: records the recorder lost for want of room.
        is_closed: whether the rank ended it; else it was killed, or still records.
        warnings: what could not be read, one sentence each, with byte offsets.
    """

    path: Path
    rank: int
    metadata: dict[str, Any]
    records: NDArray[np.void]
    carried: NDArray[np.void]
    names: dict[int, str]
    dropped: int = 0
    warnings: list[str] = field(default_factory=list)
    details: dict[int, str] = field(default_factory=dict)
    is_closed: bool = True


class _Block(NamedTuple):
    offset: int
    type: int
    payload: memoryview


@dataclass
class _Segment:
    path: Path
    number: int
    recording: int
    metadata: dict[str, Any] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    details: dict[int, str] = field(default_factory=dict)
    records: list[NDArray[np.void]] = field(default_factory=list)
    carried: list[NDArray[np.void]] = field(default_factory=list)
    dropped: int = 0
    ended: bool = False
    warnings: list[str] = field(default_factory=list)


def read_rank_file(path: Path | str) -> RankFile:
    """Read the timeline of one rank, together with PATH.1 where the two belong together.

    Damaged parts are skipped and named in `warnings`.

    Raises:
        TraceFormatError: nothing of it can be read.
    """
    path = Path(path)
    segments, problem = _read_segments(path)
    if problem is not None and not segments:
        raise problem
    newest = segments[-1]
    metadata = next((s.metadata for s in reversed(segments) if s.metadata), {})
    rank = metadata.get("rank")
    if not isinstance(rank, int) or not 0 <= rank < 2**31:
        raise TraceFormatError(f"{path}: the file does not record its rank", str(path))
    warnings = [] if problem is None else [str(problem)]
    warnings += [warning for segment in segments for warning in segment.warnings]
    if segments[0].number > 0:
        warnings.append(f"{path}: the oldest records were discarded to keep to the size cap")
    names: dict[int, str] = {}
    details: dict[int, str] = {}
    for segment in segments:
        names |= segment.names
        details |= segment.details
    return RankFile(
        path=path,
        rank=rank,
        metadata=metadata,
        records=_joined([part for segment in segments for part in segment.records]),
        carried=_joined(segments[0].carried),
        names=names,
        dropped=max(segment.dropped for segment in segments),
        warnings=warnings,
        details=details,
        is_closed=newest.ended,
    )


def is_closed(path: Path) -> bool:
    """Whether the recorder has ended the file, PATH or PATH.1; costs two small reads."""
    for part in (path, path.with_name(path.name + ".1")):
        # There may be none, or it has just begun.
        with contextlib.suppress(OSError), open(part, "rb") as file:
            file.seek(-(BLOCK.size + _END_BYTES), os.SEEK_END)
            sync, kind, size, _ = BLOCK.unpack(file.read(BLOCK.size))
            if (sync, kind, size) == (SYNC, END, _END_BYTES):
                return True
    return False


def _joined(parts: list[NDArray[np.void]]) -> NDArray[np.void]:
    return np.concatenate([np.empty(0, RECORD), *parts])


def _read_segments(path: Path) -> tuple[list[_Segment], TraceFormatError | None]:
    """Segments of the newest recording, oldest first, and why PATH itself has none of them."""
    segments = []
    problem = None
    try:
        segments.append(_read_segment(path))
    except TraceFormatError as error:
        problem = error
    other = path.with_name(path.name + ".1")
    if other.exists():
        try:
            segments.append(_read_segment(other))
        except TraceFormatError as error:
            problem = problem or error
    segments.sort(key=lambda segment: segment.number)
    if len(segments) == 2:
        older, newer = segments
        if older.recording != newer.recording or older.number + 1 != newer.number:
            segments = [segment for segment in segments if segment.path == path]
    return segments, problem


def _read_segment(path: Path) -> _Segment:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TraceFormatError(f"cannot read {path}: {error.strerror}", str(path)) from error
    if not data:
        raise TraceFormatError(f"{path}: the file is empty", str(path), 0)
    if not data.startswith(MAGIC):
        raise TraceFormatError(f"{path}: not an hvdtune timeline", str(path), 0)
    if len(data) < HEADER.size:
        raise TraceFormatError(f"{path}: cut off at byte {len(data)}", str(path), len(data))
    _, version, number, recording, record_bytes, crc = HEADER.unpack_from(data)
    if crc != zlib.crc32(data[: HEADER.size - 4]):
        raise TraceFormatError(f"{path}: damaged at byte 0", str(path), 0)
    if version != VERSION or record_bytes != RECORD.itemsize:
        raise TraceFormatError(f"{path}: version {version} is unknown", str(path), 8)
    segment = _Segment(path, number, recording)
    for block in _blocks(memoryview(data), data, segment):
        _add(segment, block)
    return segment


def _blocks(view: memoryview, data: bytes, segment: _Segment) -> Iterator[_Block]:
    at = HEADER.size
    false_blocks = 0
    while at < len(data):
        block = _block_at(view, at)
        if block is not None:
            yield block
            at += BLOCK.size + len(block.payload)
            continue
        bad_from = at
        while block is None and at >= 0 and false_blocks < MAX_FALSE_BLOCKS:
            at = data.find(SYNC, at + 1)
            block = _block_at(view, at) if at >= 0 else None
            false_blocks += block is None
        if block is None:
            segment.warnings.append(
                f"{segment.path}: cut off or damaged at byte {bad_from} of {len(data)}"
            )
            return
        segment.warnings.append(f"{segment.path}: bytes {bad_from} to {at} are damaged, skipped")


def _block_at(view: memoryview, at: int) -> _Block | None:
    if at + BLOCK.size > len(view):
        return None
    sync, block_type, size, crc = BLOCK.unpack_from(view, at)
    begin = at + BLOCK.size
    if sync != SYNC or begin + size > len(view):
        return None
    payload = view[begin : begin + size]
    if zlib.crc32(payload, zlib.crc32(view[at + 4 : at + 12])) != crc:
        return None
    return _Block(at, block_type, payload)


def _add(segment: _Segment, block: _Block) -> None:
    """Blocks of other types are from a later version, and left out."""
    size = len(block.payload)
    if block.type in (RECORDS, CARRIED) and size % RECORD.itemsize == 0:
        kept = segment.records if block.type == RECORDS else segment.carried
        kept.append(np.frombuffer(block.payload, RECORD))
    elif block.type in (NAMES, DETAILS):
        _add_texts(segment, block)
    elif block.type == METADATA:
        _add_metadata(segment, block)
    elif block.type in (DROPS, END) and size >= 8:
        segment.dropped = int.from_bytes(block.payload[:8], "little")
        segment.ended = block.type == END
    elif block.type == FULL and size >= 8:
        mib = int.from_bytes(block.payload[:8], "little") / 2**20
        segment.warnings.append(
            f"{segment.path}: recording stopped at the size cap of {mib:g} MB; later events are "
            "missing"
        )
    elif block.type <= FULL:
        segment.warnings.append(f"{segment.path}: block at byte {block.offset} has a wrong length")


def _add_texts(segment: _Segment, block: _Block) -> None:
    texts = segment.names if block.type == NAMES else segment.details
    at = 0
    payload = bytes(block.payload)
    while at + 8 <= len(payload):
        name, size = struct.unpack_from("<II", payload, at)
        if at + 8 + size > len(payload):
            break
        texts[name] = payload[at + 8 : at + 8 + size].decode(errors="backslashreplace")
        at += 8 + size
    if at != len(payload):
        segment.warnings.append(
            f"{segment.path}: names at byte {block.offset + BLOCK.size + at} are damaged"
        )


def _add_metadata(segment: _Segment, block: _Block) -> None:
    try:
        metadata = msgspec.json.decode(bytes(block.payload))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        metadata = None
    if isinstance(metadata, dict):
        segment.metadata = metadata
    else:
        segment.warnings.append(f"{segment.path}: metadata at byte {block.offset} is not JSON")
