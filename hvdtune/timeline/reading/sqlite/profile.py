"""Reads one database of a GPU profiler's."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from hvdtune.errors import TraceFormatError
from hvdtune.timeline.reading.json.damage import DamageReport, NoTraceError
from hvdtune.timeline.reading.json.parsed import ParsedFile
from hvdtune.timeline.reading.json.rows import SliceRows
from hvdtune.timeline.reading.sqlite import nsys, rocpd
from hvdtune.timeline.reading.sqlite.database import opened_database

# How people call their authors' tools, by what the readers call the formats.
_TOOLS = {nsys.KEY: "nsys", rocpd.KEY: "rocprofv3"}


def parse(
    path: Path, report: DamageReport, sink: Callable[[pa.RecordBatch], None] | None = None
) -> ParsedFile:
    """Read a database, in batches of rows.

    Args:
        sink: takes the rows as they come; without one they are in the result.

    Raises:
        TraceFormatError: it is none of a GPU profiler's, or no row of it can be read.
    """
    with opened_database(path, report) as database:
        rows = SliceRows(report, sink)
        if nsys.recognizes(database):
            key, said = nsys.KEY, nsys.NsysReader(database, report, rows).read()
        elif rocpd.recognizes(database):
            key, said = rocpd.KEY, rocpd.RocpdReader(database, report, rows).read()
        else:
            text = "not an nsys SQLite export or a rocprofv3 database"
            raise NoTraceError(f"{path}: {text}", str(path), 0)
    if not report.shown and report.warnings():
        raise TraceFormatError(report.warnings()[0], str(path), 0)
    report.problem(
        f"experimental: this reader follows the documentation of {_TOOLS[key]} and has not been "
        "tested on a real recording"
    )
    return rows.parsed({key: said})
