import struct
import zlib
from pathlib import Path

import pytest

from hvdtune.errors import TraceFormatError
from hvdtune.timeline import KINDS
from hvdtune.tuner.measure.step_tensors import exposed_s, tensor_bytes

MS = 10**6


def block(kind: int, payload: bytes) -> bytes:
    head = struct.pack("<II", kind, len(payload))
    return b"HVDB" + head + struct.pack("<I", zlib.crc32(payload, zlib.crc32(head))) + payload


def record(kind: str, begin: int, end: int, name: int = 0, seq: int = 0, arg: int = 0) -> bytes:
    code = KINDS[kind].code
    return struct.pack("<QQIIII", begin, code << 48 | end - begin, name, seq, 0, arg)


def trace(path: Path, rank: int, records: list[bytes]) -> Path:
    start = struct.pack("<8sIIQI", b"HVDTRACE", 1, 0, 1, 32)
    names = b"".join(struct.pack("<II", key, 2) + b"t%d" % key for key in (1, 2, 3))
    head = start + struct.pack("<I", zlib.crc32(start))
    path.write_bytes(
        head + block(1, b'{"rank": %d}' % rank) + block(2, names) + block(3, b"".join(records))
    )
    return path


def steps(count: int, waited_ms: int) -> list[bytes]:
    """Steps of 10 ms: t1 is announced after 2 ms, t2 after 5, which takes `waited_ms`."""
    found = []
    for step in range(count):
        at = (step + 1) * 10 * MS
        found += [
            record("STEP", at, at + 10 * MS, seq=step),
            record("NEGOTIATE", at + 2 * MS, at + 3 * MS, 1, 2 * step),
            record("ALLREDUCE", at + 3 * MS, at + 4 * MS, 1, 2 * step, arg=4000),
            record("NEGOTIATE", at + 5 * MS, at + 5 * MS, 2, 2 * step + 1),
            record("ALLREDUCE", at + 5 * MS, at + (5 + waited_ms) * MS, 2, 2 * step + 1, arg=800),
        ]
    return found


def test_the_recurring_tensors_of_a_trace_are_found(tmp_path: Path) -> None:
    once = [record("BROADCAST", 1, 2, 3, 99, arg=12345)]
    path = trace(tmp_path / "rank-0.hvt", 0, once + steps(3, 2))
    assert sorted(tensor_bytes(path)) == [800, 4000]


def test_no_trace_tells_no_tensors(tmp_path: Path) -> None:
    assert tensor_bytes(tmp_path / "none.hvt") == ()


def test_exposed_is_what_follows_the_last_announcement_on_the_worst_rank(tmp_path: Path) -> None:
    traces = [trace(tmp_path / f"rank-{r}.hvt", r, steps(6, 2 + r)) for r in (0, 1)]
    assert exposed_s(traces, [range(3), (4,)]) == pytest.approx([0.009, 0.003])


def test_steps_that_are_not_written_yet_are_missed(tmp_path: Path) -> None:
    path = trace(tmp_path / "rank-0.hvt", 0, steps(4, 2))
    with pytest.raises(TraceFormatError, match="lacks 2 steps"):
        exposed_s([path], [range(2, 6)])
