"""Logs of NCCL's Inspector: a line of JSON for each collective of one process."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from hvdtune.timeline.reading.json.damage import DamageReport, Reason
from hvdtune.timeline.reading.json.parsed import ParsedFile
from hvdtune.timeline.reading.json.rows import NO_TIME, SliceRows

KEY: Final = "nccl_inspector"
_START: Final = re.compile(rb'\s*\{\s*"header"\s*:\s*\{')
_OWN: Final = b'"inspector_output_format_version"'
_DAMAGED: Final = Reason("line is damaged or cut off", "lines are damaged or cut off")
_OF_OTHERS: Final = Reason(
    "line about sends, receives or the log itself is not shown",
    "lines about sends, receives or the log itself are not shown",
)
_LINES_PER_BATCH: Final = 1 << 14
_MAX_LINE: Final = 1 << 20
_MAX_US: Final = 2**51


class _Header(msgspec.Struct):
    id: str = ""
    rank: int = -1
    n_ranks: int = 0
    comm_name: str = ""


class _Metadata(msgspec.Struct):
    dump_timestamp_us: int = -1
    hostname: str = ""
    pid: int = -1


class _Kernel(msgspec.Struct):
    kernel_start_ts: int = 0
    kernel_stop_ts: int = 0


class _Times(msgspec.Struct):
    kernel_events: list[_Kernel] = []


class _Performance(msgspec.Struct):
    coll: str = ""
    coll_sn: int = -1
    coll_msg_size_bytes: int = -1
    coll_exec_time_us: float = -1
    coll_busbw_gbs: float = 0
    event_trace_ts: _Times | None = None


class _Line(msgspec.Struct):
    header: _Header
    metadata: _Metadata
    coll_perf: _Performance | None = None


def recognizes(start: bytes) -> bool:
    """Whether a file that begins so is such a log."""
    return bool(_START.match(start)) and _OWN in start


def parse(
    texts: Iterator[bytes],
    report: DamageReport,
    sink: Callable[[pa.RecordBatch], None] | None = None,
) -> ParsedFile:
    """Read a log, line by line.

    Args:
        texts: its bytes, in pieces of any size.
        sink: takes the rows as they come; without one they are in the result.
    """
    rows = SliceRows(report, sink)
    said: dict[str, Any] = {"rank": -1, "size": 0, "host": ""}
    decoder = msgspec.json.Decoder(_Line)
    batch: list[_Line] = []
    others = 0
    for line, offset in _lines(texts):
        try:
            found = decoder.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            report.left_out("X", _DAMAGED, where=f"at byte {offset}")
            continue
        if found.coll_perf is None:
            others += 1
            continue
        batch.append(found)
        if len(batch) == _LINES_PER_BATCH:
            _add(batch, rows, said)
            batch = []
    if batch:
        _add(batch, rows, said)
    report.left_out("X", _OF_OTHERS, others)
    report.problem(
        "experimental: this reader follows NCCL's source and has not been tested on a real log"
    )
    return rows.parsed({KEY: said})


def _lines(texts: Iterator[bytes]) -> Iterator[tuple[bytes, int]]:
    """Lines that are not empty, and the bytes where they begin."""
    left, offset = b"", 0
    for text in texts:
        *lines, left = (left + text).split(b"\n")
        for line in lines:
            if line.strip():
                yield line, offset
            offset += len(line) + 1
        if len(left) > _MAX_LINE:
            yield left[:1], offset  # no line of a log is so long: it is damaged
            offset += len(left)
            left = b""
    if left.strip():
        yield left, offset


def _add(lines: list[_Line], rows: SliceRows, said: dict[str, Any]) -> None:
    tracks, names, times, sizes, numbers, args = [], [], [], [], [], []
    for line in lines:
        header, performance = line.header, line.coll_perf
        assert performance is not None
        # The rank of a process is that in its largest communicator.
        if header.n_ranks > said["size"]:
            said |= {"rank": header.rank, "size": header.n_ranks, "host": line.metadata.hostname}
        track = rows.track(str(line.metadata.pid), header.id[:64])
        called = f"{header.comm_name} {header.id}".strip()[:200]
        rows.tracks.processes[str(line.metadata.pid)] = f"process {line.metadata.pid}"
        title = f"communicator {called}, rank {header.rank} of {header.n_ranks}"
        rows.tracks.threads.setdefault(str(line.metadata.pid), {})[header.id[:64]] = title
        tracks.append(track)
        names.append(rows.code(performance.coll[:64]))
        times.append(_times_ns(line))
        sizes.append(performance.coll_msg_size_bytes)
        numbers.append(performance.coll_sn)
        told = {
            "seq": performance.coll_sn,
            "bytes": performance.coll_msg_size_bytes,
            "rank": header.rank,
            "busbw_gbs": performance.coll_busbw_gbs,
        }
        args.append(msgspec.json.encode(told).decode())
    begin, end = np.array(times, np.int64).T
    rows.add(
        np.array(tracks, np.int32),
        np.array(names, np.int32),
        KEY,
        (begin, end),
        args,
        size=np.clip(np.array(sizes, object), -1, 2**62).astype(np.int64),
        seq=np.clip(np.array(numbers, object), -1, 2**62).astype(np.int64),
    )


def _times_ns(line: _Line) -> tuple[int, int]:
    """When the collective began and ended: as its kernels say, or before the line was written."""
    performance = line.coll_perf
    assert performance is not None
    lasted_us = performance.coll_exec_time_us
    traced = performance.event_trace_ts
    starts = [each.kernel_start_ts for each in (traced.kernel_events if traced else ())]
    end_us = line.metadata.dump_timestamp_us
    if not (0 <= lasted_us < _MAX_US and 0 < end_us < _MAX_US):
        return NO_TIME, NO_TIME
    lasted_ns = round(lasted_us * 1000)
    if starts and 0 < min(starts) < _MAX_US:
        return min(starts) * 1000, min(starts) * 1000 + lasted_ns
    return end_us * 1000 - lasted_ns, end_us * 1000
