"""Keeps large traces in columns beside them, so that each is parsed once.

The cache of `trace.json` is `.trace.json.hvdtune`: a Parquet file with the rows of
`halves.SCHEMA`, and in its metadata everything else. It is good for a file of the same content:
of the same size and modification time, or else of the same size and CRC-32. It may be deleted any
time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from hvdtune.own_files import replacement
from hvdtune.timeline.model.statistics import SliceTally, Statistics, Track
from hvdtune.timeline.reading.formats.detection import format_of
from hvdtune.timeline.reading.formats.frame import process_title, thread_title
from hvdtune.timeline.reading.inspection import InspectedFile
from hvdtune.timeline.reading.json.assemble import Tracks
from hvdtune.timeline.reading.json.begin_end_pairing import SCHEMA
from hvdtune.timeline.reading.json.damage import DamageReport
from hvdtune.timeline.reading.json.parsed import ParsedFile
from hvdtune.timeline.reading.json.source import CHUNK_BYTES, Summed, opened
from hvdtune.timeline.reading.parsing import parse

if TYPE_CHECKING:
    from typing_extensions import Self

VERSION = 1
# Smaller files are parsed in less time than it takes to notice.
MIN_BYTES = 8 << 20
ROWS_PER_GROUP = 1 << 16
_HEAD, _TEXTS, _STATISTICS = b"hvdtune.cache", b"hvdtune.texts", b"hvdtune.statistics"
# What a tally takes, in its order.
_NARROW = ("name", "category", "track", "phase", "begin_ns", "end_ns")
# A file that changes within a tick of the disk's clock may keep its time.
_TICK_NS = 50_000_000


class _Head(msgspec.Struct):
    version: int
    path: str
    size: int
    mtime_ns: int
    begun_ns: int
    crc: int
    tracks: Tracks
    around: dict[str, Any]
    counts: dict[str, dict[str, int]]
    warnings: list[str]
    format: str
    origin_unix_ns: int | None


class Cached:
    """A trace that was parsed, open in its cache."""

    def __init__(self, path: Path, file: pq.ParquetFile, head: _Head) -> None:
        self._path = path
        self._file = file
        self._head = head

    @property
    def format(self) -> tuple[str, int | None]:
        """The name of its format and its time 0 in ns since 1970."""
        return self._head.format, self._head.origin_unix_ns

    def parsed(self) -> ParsedFile:
        """All of it."""
        return self._parsed(self._file.read(), self.texts)

    def statistics(self) -> tuple[ParsedFile, Statistics]:
        """Return the file's statistics, and the file without the rows of `ParsedFile.table`."""
        told = msgspec.json.decode(self._said(_STATISTICS), type=Statistics)
        return self._parsed(SCHEMA.empty_table(), []), told

    @property
    def texts(self) -> list[str]:
        """Text of each number."""
        texts: list[str] = msgspec.json.decode(self._said(_TEXTS))
        return texts

    @property
    def content(self) -> tuple[int, int]:
        """The size in bytes and the CRC-32 of the trace."""
        return self._head.size, self._head.crc

    def group_starts(self) -> list[int]:
        """The number of the first row of each group of rows, and of all rows."""
        metadata = self._file.metadata
        lengths = (metadata.row_group(k).num_rows for k in range(metadata.num_row_groups))
        return [0, *accumulate(lengths)]

    def group(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Some columns, or all, of a group of rows."""
        return self._file.read_row_group(number, columns, use_threads=True)

    def parsed_but(self, table: pa.Table) -> ParsedFile:
        """The file with only these rows."""
        return self._parsed(table, self.texts)

    def _parsed(self, table: pa.Table, texts: list[str]) -> ParsedFile:
        head = self._head
        mine = f"{self._path}: "
        warnings = [mine + text.removeprefix(f"{head.path}: ") for text in head.warnings]
        return ParsedFile(
            str(self._path), table, texts, head.tracks, head.around, head.counts, warnings
        )

    def _said(self, key: bytes) -> bytes:
        return bytes(self._file.metadata.metadata[key])


def is_worth_it(file: InspectedFile) -> bool:
    """Whether parsing takes longer than anybody likes to wait twice."""
    if file.kind not in ("text", "database"):
        return False
    return file.path.stat().st_size * (10 if file.packed else 1) >= MIN_BYTES


def cache_path(path: Path) -> Path:
    """Where the cache of a trace is."""
    return path.with_name(f".{path.name}.hvdtune")


@contextmanager
def cached(path: Path) -> Iterator[Cached | None]:
    """The cache of a trace, built where there is none; None: it cannot be kept beside the trace.

    Raises:
        TraceFormatError: the trace cannot be read.
    """
    if not _is_good(path) and not _build(path):
        yield None
        return
    with pq.ParquetFile(cache_path(path), memory_map=True) as file:
        head = msgspec.json.decode(file.metadata.metadata[_HEAD], type=_Head)
        yield Cached(path, file, head)


def _is_good(path: Path) -> bool:
    try:
        with pq.ParquetFile(cache_path(path)) as file:
            said = (file.metadata.metadata or {}).get(_HEAD, b"")
        head = msgspec.json.decode(said, type=_Head)
        stat = path.stat()
    except (OSError, pa.ArrowException, msgspec.MsgspecError):
        return False
    if head.version != VERSION or head.size != stat.st_size:
        return False
    if head.mtime_ns == stat.st_mtime_ns and head.mtime_ns < head.begun_ns - _TICK_NS:
        return True
    with opened(path) as trace:
        return Summed(trace).crc() == head.crc


def _build(path: Path) -> bool:
    """Parses a trace into its cache; False where that cannot be written."""
    try:
        with replacement(cache_path(path)) as part:
            _write(path, part)
    except OSError:  # a full disk, say
        return False
    return True


def _write(path: Path, partial: Path) -> None:
    begun_ns = time.time_ns()
    stat = path.stat()
    report = DamageReport(str(path))
    with _Writer(partial) as writer, opened(path) as file:
        summed = Summed(file)
        parsed = parse(path, summed, summed.read(CHUNK_BYTES), report, writer.add)
        writer.flush()
        kind = format_of(parsed)
        head = _Head(
            VERSION,
            str(path),
            stat.st_size,
            stat.st_mtime_ns,
            begun_ns,
            summed.crc(),
            parsed.tracks,
            parsed.around,
            parsed.counts,
            parsed.warnings,
            kind.NAME,
            kind.origin_unix_ns(parsed),
        )
        told = writer.tally.statistics(parsed.texts, parsed.texts, kind.kind, _tracks(parsed))
        writer.say(
            {
                _HEAD: msgspec.json.encode(head),
                _TEXTS: msgspec.json.encode(parsed.texts),
                _STATISTICS: msgspec.json.encode(told),
            }
        )


class _Writer:
    """Writes rows as they come, in groups of many."""

    def __init__(self, path: Path) -> None:
        self._file = pq.ParquetWriter(
            path,
            SCHEMA,
            compression="lz4",
            use_dictionary=["track", "phase", "name", "category", "process_set", "cached"],
            write_statistics=["begin_ns", "end_ns"],
            write_batch_size=ROWS_PER_GROUP,
        )
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self.tally = SliceTally()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._rows += len(batch)
        if self._rows >= ROWS_PER_GROUP:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            self._file.write_table(table, row_group_size=2 * ROWS_PER_GROUP)
            column = (table[name].to_numpy() for name in _NARROW)
            self.tally.add(*column)
        self._waiting, self._rows = [], 0

    def say(self, metadata: dict[bytes, bytes]) -> None:
        self._file.add_key_value_metadata(metadata)


def _tracks(parsed: ParsedFile) -> list[Track]:
    ids = list(zip(parsed.tracks.pid, parsed.tracks.tid, strict=True))
    ranks = format_of(parsed).rank_of_track(parsed)
    return [
        (rank, process_title(parsed, pid), thread_title(parsed, pid, tid))
        for rank, (pid, tid) in zip(ranks, ids, strict=True)
    ]
