"""Parses one file into rows, whichever of the formats it is that are not hvdtune's own."""

import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from hvdtune.timeline.reading.dumps import flight_recorder, inspector, ras
from hvdtune.timeline.reading.json import chrome_json
from hvdtune.timeline.reading.json.damage import DamageReport
from hvdtune.timeline.reading.json.parsed import ParsedFile
from hvdtune.timeline.reading.json.source import GZIP_MAGIC, Readable, chunks
from hvdtune.timeline.reading.sqlite import profile
from hvdtune.timeline.reading.sqlite.database import MAGIC

START_BYTES = 1 << 12


def parse(
    path: Path,
    file: Readable,
    start: bytes,
    report: DamageReport,
    sink: Callable[[pa.RecordBatch], None] | None = None,
) -> ParsedFile:
    """Read a file.

    Args:
        file: `path`, from where it stands.
        start: what was read of it already, at least `START_BYTES` if there are as many.
        sink: takes the rows as they come; without one they are in the result.

    Raises:
        TraceFormatError: it is no trace, or nothing of it can be read.
    """
    if start.startswith(MAGIC):
        return profile.parse(path, report, sink)
    head = _unpacked(start[:START_BYTES])
    packed = start.startswith(GZIP_MAGIC)
    if not packed and (flight_recorder.is_pickle(head) or flight_recorder.recognizes(head)):
        return _given(flight_recorder.parse(path, file, start, report), sink)
    if ras.is_text(head):
        raise ras.refuse_text(path)
    if not packed and ras.recognizes(head):
        return _given(ras.parse(path, file, start, report), sink)
    if inspector.recognizes(head):
        return inspector.parse(chunks(file, start, report), report, sink)
    return chrome_json.parse(chunks(file, start, report), report, sink)


def _given(parsed: ParsedFile, sink: Callable[[pa.RecordBatch], None] | None) -> ParsedFile:
    """Gives the rows of a file that is small to `sink`, if there is one."""
    if sink is not None:
        for batch in parsed.table.to_batches():
            sink(batch)
    return parsed


def _unpacked(start: bytes) -> bytes:
    """The first bytes of a file's text, which may be gzipped."""
    if not start.startswith(GZIP_MAGIC):
        return start
    try:
        return zlib.decompressobj(31).decompress(start, START_BYTES)
    except zlib.error:  # what is damaged is told when it is read
        return start
