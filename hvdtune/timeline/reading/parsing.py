"""Parses one file into rows, whichever of the formats it is that are not hvdtune's own."""

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa

from hvdtune.timeline.reading.dumps import flight_recorder, inspector, ras
from hvdtune.timeline.reading.json import chrome_json
from hvdtune.timeline.reading.json.damage import DamageReport, NoTraceError
from hvdtune.timeline.reading.json.other_kinds import refusal_of
from hvdtune.timeline.reading.json.parsed import ParsedFile
from hvdtune.timeline.reading.json.source import Pieces, Readable, chunks
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
    head, texts = _head(chunks(file, start, report))
    if refusal := refusal_of(head):
        raise NoTraceError(f"{path}: {refusal}", str(path), 0)
    if flight_recorder.is_pickle(head) or flight_recorder.recognizes(head):
        return _given(flight_recorder.parse(path, Pieces(texts), report), sink)
    if ras.is_text(head):
        raise ras.refuse_text(path)
    if ras.recognizes(head):
        return _given(ras.parse(path, Pieces(texts), report), sink)
    if inspector.recognizes(head):
        return inspector.parse(texts, report, sink)
    return chrome_json.parse(texts, report, sink)


def _given(parsed: ParsedFile, sink: Callable[[pa.RecordBatch], None] | None) -> ParsedFile:
    """Gives the rows of a file that is small to `sink`, if there is one."""
    if sink is not None:
        for batch in parsed.table.to_batches():
            sink(batch)
    return parsed


def _head(pieces: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """Return the first bytes of a text, and all of it again."""
    read: list[bytes] = []
    for piece in pieces:
        read.append(piece)
        if sum(map(len, read)) >= START_BYTES:
            break
    start = b"".join(read)
    return start[:START_BYTES], chain([start] if start else [], pieces)
