"""A model as Parquet: its columns, and the rest of it in the file's metadata."""

from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from hvdtune.errors import TraceFormatError
from hvdtune.timeline.model.slices import COLUMNS, KIND_TEXTS, File, kind_column
from hvdtune.timeline.model.trace import Trace
from hvdtune.timeline.reading.formats.file_slices import FileSlices

MAGIC = b"PAR1"
KEY = b"hvdtune.model"
VERSION = 1
# The times alone take more bytes per row.
MAX_ROWS, _BYTES_PER_ROW = 500_000, 2


class _Said(msgspec.Struct):
    version: int
    files: list[File]
    origin_unix_ns: int | None
    ranks: dict[int, dict[str, Any]]
    counts: dict[str, dict[str, int]]
    warnings: list[str]


def write_parquet(trace: Trace, file: IO[bytes]) -> None:
    """Write the columns of a model, texts as texts."""
    head = _Said(
        VERSION,
        list(trace.files),
        trace.origin_unix_ns,
        {rank: dict(known) for rank, known in trace.ranks.items()},
        {phase: dict(numbers) for phase, numbers in trace.counts.items()},
        trace.warnings,
    )
    table = pa.Table.from_pandas(trace.slices, preserve_index=False)
    table = table.replace_schema_metadata({KEY: msgspec.json.encode(head)})
    pq.write_table(table, file, compression="zstd")


def read_parts(path: Path) -> list[FileSlices]:
    """The parts of a model that was written.

    Raises:
        TraceFormatError: it is damaged, or something else is in it.
    """
    try:
        with pq.ParquetFile(path) as file:
            head = msgspec.json.decode((file.schema_arrow.metadata or {}).get(KEY, b""), type=_Said)
            rows = file.metadata.num_rows
            if rows > MAX_ROWS + path.stat().st_size // _BYTES_PER_ROW:
                raise ValueError(f"it claims {rows:,} rows")
            frame = file.read().to_pandas()
    except (pa.ArrowException, OSError, msgspec.MsgspecError, ValueError) as error:
        text = f"{path}: not a Parquet file of hvdtune, or damaged from byte 0 on ({error})"
        raise TraceFormatError(" ".join(text.split()), str(path), 0) from error
    if head.version != VERSION or list(frame.columns) != list(COLUMNS):
        raise TraceFormatError(f"{path}: version {head.version} is unknown", str(path), 0)
    return _parts(path, frame, head)


def _parts(path: Path, frame: pd.DataFrame, head: _Said) -> list[FileSlices]:
    codes = pd.Index(KIND_TEXTS).get_indexer(pd.Index(frame["kind"].astype(object)))
    frame["kind"] = kind_column(np.maximum(codes, 0).astype(np.int8))
    frame = frame.astype({name: kind for name, kind in COLUMNS.items() if name != "kind"})
    if backwards := int((frame["end_ns"] < frame["begin_ns"]).sum()):
        # Pages have no checksum: a damaged one may still be unpacked.
        text = f"{path}: damaged: {backwards:,} of its slices end before they begin"
        raise TraceFormatError(text, str(path), 0)
    parts = []
    for index, file in enumerate(head.files):
        own = frame[frame["file"] == index].reset_index(drop=True)
        for name, dtype in own.dtypes.items():
            if isinstance(dtype, pd.CategoricalDtype) and name != "kind":
                own[name] = own[name].cat.remove_unused_categories()
        parts.append(FileSlices(file, own, head.origin_unix_ns))
    if parts:
        parts[0].ranks, parts[0].counts, parts[0].warnings = head.ranks, head.counts, head.warnings
    return parts
