"""Reads one Chrome trace, in the object or the array form, whole or damaged."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from hvdtune.errors import TraceFormatError
from hvdtune.timeline.reading.json.assemble import Assembler
from hvdtune.timeline.reading.json.batch import EventScanner, PythonScanner
from hvdtune.timeline.reading.json.begin_end_pairing import SCHEMA
from hvdtune.timeline.reading.json.damage import DamageReport, NoTraceError, Reason
from hvdtune.timeline.reading.json.document import Document
from hvdtune.timeline.reading.json.other_kinds import refusal_of_keys
from hvdtune.timeline.reading.json.parsed import ParsedFile
from hvdtune.timeline.reading.json.source import TextWindow

try:
    from hvdtune.timeline.reading.json.native_scan import NativeScanner
except ImportError:  # not built: a trace opens all the same
    NativeScanner = None  # type: ignore[assignment,misc]

Sink = Callable[[pa.RecordBatch], None]


def parse(
    texts: Iterator[bytes],
    report: DamageReport,
    sink: Sink | None = None,
    scanner: EventScanner | None = None,
) -> ParsedFile:
    """Read a document.

    Args:
        texts: its bytes, in pieces of any size.
        sink: takes the rows as they come; without one they are in the result.
        scanner: another than the fastest.

    Raises:
        TraceFormatError: it is no trace, or no event of it can be read.
    """
    rows: list[pa.RecordBatch] = []
    take = rows.append if sink is None else sink
    scanner = scanner or new_scanner()
    document = Document(TextWindow(texts, report), scanner, report)
    assembler = Assembler(scanner, report)
    for batch in document.batches():
        for found in assembler.add(batch):
            take(found)
    for found in assembler.finish():
        take(found)
    other = refusal_of_keys(document.around)
    _leave_out_samples(document.around, report)
    if not (report.shown or document.holds_none or document.around.get("otherData")):
        at = max(report.first_offset, 0)
        if other:
            raise NoTraceError(f"{report.path}: {other}", report.path, 0)
        if not (document.resembles_trace or report.packing_damaged):
            # Where another kind of file breaks the rules of traces says nothing.
            raise NoTraceError(f"{report.path}: not a trace", report.path, at)
        first = next(iter(report.warnings()), f"{report.path}: byte {at}")
        damaged = report.reported["?"]
        none = f"none of its {damaged} events can be read" if damaged else "not a trace"
        raise TraceFormatError(f"{first}: {none}", report.path, at)
    return ParsedFile(
        path=report.path,
        table=pa.Table.from_batches(rows, SCHEMA),
        texts=scanner.texts(),
        tracks=assembler.tracks,
        around=document.around,
        counts=report.counts(),
        warnings=report.warnings(),
    )


_SAMPLES = Reason(
    "profiler sample is not shown",
    "profiler samples are not shown",
)


def _leave_out_samples(around: dict[str, Any], report: DamageReport) -> None:
    # A profiler's samples have stacks instead of lengths.
    samples = around.pop("samples", None)
    around.pop("stackFrames", None)
    if isinstance(samples, list):
        report.left_out("P", _SAMPLES, len(samples))


def new_scanner() -> EventScanner:
    """The fastest there is."""
    return NativeScanner() if NativeScanner is not None else PythonScanner()
