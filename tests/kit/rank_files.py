"""Writes timeline files byte by byte, independently of the recorder and of the readers."""

import json
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parents[1] / "golden" / "timeline"
METADATA, NAMES, RECORDS, CARRIED, DROPS, END, DETAILS, FULL = range(1, 9)
CODES = {
    name: code
    for code, name in enumerate(
        [
            "STEP",
            "NEGOTIATE",
            "LATE",
            "QUEUE",
            "ALLREDUCE",
            "BROADCAST",
            "ALLGATHER",
            "BARRIER",
            "BUCKET",
            "PACK",
            "REDUCE",
            "EXCHANGE",
            "UNPACK",
            "WAIT",
            "CYCLE",
            "KNOB_ADOPTED",
            "CLOCK",
            "ALLTOALL",
            "REDUCESCATTER",
            "JOIN",
            "SPAN",
            "BLOCKED",
            "PEER",
            "STREAM_WAIT",
            "ENQUEUE_WAIT",
        ],
        start=1,
    )
}


def header(segment: int = 0, recording: int = 1, version: int = 1) -> bytes:
    start = struct.pack("<8sIIQI", b"HVDTRACE", version, segment, recording, 32)
    return start + struct.pack("<I", zlib.crc32(start))


def block(kind: int, payload: bytes) -> bytes:
    head = struct.pack("<II", kind, len(payload))
    return b"HVDB" + head + struct.pack("<I", zlib.crc32(payload, zlib.crc32(head))) + payload


def metadata(rank: int = 0, **more: Any) -> bytes:
    return block(METADATA, json.dumps({"rank": rank, "size": 1, "host": "alpha"} | more).encode())


def names(texts: dict[int, str | bytes]) -> bytes:
    raw = {key: text.encode() if isinstance(text, str) else text for key, text in texts.items()}
    return block(
        NAMES, b"".join(struct.pack("<II", key, len(text)) + text for key, text in raw.items())
    )


def record(
    kind: str | int,
    begin: int,
    end: int | None = None,
    *,
    name: int = 0,
    seq: int = 0,
    bucket: int = 0,
    arg: int = 0,
) -> bytes:
    code = CODES[kind] if isinstance(kind, str) else kind
    lasted = (begin if end is None else end) - begin
    return struct.pack("<QQIIII", begin, code << 48 | lasted, name, seq, bucket, arg)


def clock(at: int, offset: int, round_trip: int = 1000) -> bytes:
    low, high = struct.unpack("<II", struct.pack("<q", offset))
    return record("CLOCK", at, at + round_trip, seq=low, bucket=high)


def records(items: Iterable[bytes], kind: int = RECORDS) -> bytes:
    return block(kind, b"".join(items))


def end(dropped: int = 0, written: int = 0) -> bytes:
    return block(END, struct.pack("<QQ", dropped, written))


def write(path: Path, *parts: bytes) -> Path:
    path.write_bytes(b"".join(parts))
    return path


def rank_file(folder: Path, rank: int, items: Iterable[bytes], **more: Any) -> Path:
    """A whole file of one rank whose names 1 to 9 are "t1" to "t9"."""
    texts: dict[int, str | bytes] = {number: f"t{number}" for number in range(1, 10)}
    return write(
        folder / f"rank-{rank}.hvt",
        header(),
        metadata(rank, **more),
        names(texts),
        records(items),
        end(),
    )
