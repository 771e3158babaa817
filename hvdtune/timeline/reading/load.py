"""Opens traces of any format, by what is in them rather than what they are called."""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.errors import HvdtuneError, TraceFormatError, UsageError
from hvdtune.timeline.model.slices import File, Model
from hvdtune.timeline.reading import cache
from hvdtune.timeline.reading.folders import TraceFiles, find, folder_of, named
from hvdtune.timeline.reading.formats import container, hvdtune_json, hvt, native_reader, parquet
from hvdtune.timeline.reading.formats.detection import format_of
from hvdtune.timeline.reading.formats.file_slices import FileSlices
from hvdtune.timeline.reading.formats.frame import frame_of
from hvdtune.timeline.reading.json import archive
from hvdtune.timeline.reading.json.chrome_json import parse
from hvdtune.timeline.reading.json.damage import DamageReport, NoTraceError
from hvdtune.timeline.reading.json.parsed import ParsedFile
from hvdtune.timeline.reading.json.source import chunks, is_archive, opened
from hvdtune.timeline.reading.merge import merge

_RANK_IN_NAME = re.compile(r"rank[-_.]?([0-9]{1,7})(?![0-9])", re.IGNORECASE)
_MAGIC_BYTES = 8


def load(paths: Path | str | Iterable[Path | str]) -> Model:
    """Open a trace: one file, the files of several ranks, or folders of them.

    Known are hvdtune's own files and exports, Horovod's timelines, torch.profiler's traces and
    Chrome traces of any program; plain, gzipped or in a zip archive; whole, cut off or damaged.
    Files of a folder that are no traces are passed over; what cannot be read of a trace is told
    in `Model.warnings`.

    Raises:
        UsageError: a folder holds no trace.
        TraceFormatError: nothing can be read; its `offset` is the byte where that failed.

    Example:
        >>> model = load("traces/")  # doctest: +SKIP
        >>> model.slices.query("kind == 'ALLREDUCE'")  # doctest: +SKIP
    """
    return load_found(find([paths] if isinstance(paths, Path | str) else paths))


def load_found(found: TraceFiles) -> Model:
    """As `load`, where the files are known; leaves in `found` those that were read."""
    failures = Failures(found)
    parts: list[FileSlices] = []
    eventless: dict[Path, list[FileSlices]] = {}  # `[]` beside traces may be anything
    own_files = [path for path in found.files if _is_own(path)]
    if own_files:
        parts.append(native_reader.part_of(merge(own_files), str(own_files[0])))
    for path in found.files:
        if path in own_files:
            continue
        try:
            read = parts_of(path)
        except TraceFormatError as error:
            failures.add(path, error)
            continue
        if path in found.guesses and not any(part.counts or part.warnings for part in read):
            eventless[path] = read
        else:
            parts += read
    passed_over = {*failures.paths, *(eventless if parts else ())}
    parts = parts or [part for read in eventless.values() for part in read]
    if not parts:
        raise failures.error()
    found.files = [path for path in found.files if path not in passed_over]
    return join(parts, [*found.notes, *failures.warnings])


class Failures:
    """What could not be read of what paths stand for.

    Attributes:
        paths: all of it.
        warnings: a sentence for each file, but for what only lies beside traces.
    """

    def __init__(self, found: TraceFiles) -> None:
        self.paths: list[Path] = []
        self.warnings: list[str] = []
        self._guesses = found.guesses
        self._first: TraceFormatError | None = None

    def add(self, path: Path, error: TraceFormatError) -> None:
        """`path` could not be read."""
        self.paths.append(path)
        if not (path in self._guesses and isinstance(error, NoTraceError)):
            self._first = self._first or error
            self.warnings.append(str(error))

    def error(self) -> HvdtuneError:
        """What to raise where nothing could be read."""
        if self._first is None and self._guesses:
            return UsageError(f"{folder_of(sorted(self._guesses))}: holds no trace")
        return self._first or TraceFormatError("no trace to read")


def parts_of(path: Path) -> list[FileSlices]:
    """What is in a file that is not hvdtune's own; archives and exports hold several parts.

    Raises:
        TraceFormatError: nothing of it can be read.
    """
    with opened(path) as file:
        if file.read(len(parquet.MAGIC)) == parquet.MAGIC:
            return parquet.read_parts(path)
    parts = []
    for parsed in parse_file(path):
        held = container.files_in(parsed)
        parts += [describe(parsed)] if held is None else _unpacked(parsed, held)
    return parts


def _unpacked(
    parsed: ParsedFile, held: Sequence[tuple[ParsedFile, Mapping[str, Any]]]
) -> list[FileSlices]:
    """The parts of an export, all on one clock."""
    said = parsed.around["otherData"][container.KEY]
    origin = said.get("origin_unix_ns")
    parts = []
    for held_file, file in held:
        part = describe(held_file)
        part.origin_unix_ns = origin if isinstance(origin, int) and abs(origin) < 2**62 else None
        part.counts, part.warnings = {}, []
        rank = file.get("rank")
        if isinstance(rank, int) and 0 <= rank < 2**31 and (part.frame["rank"] == -1).all():
            part.frame["rank"] = np.full(len(part.frame), rank, np.int32)
            part.ranks = {rank: part.ranks.get(-1, {})}
        parts.append(part)
    if parts:
        parts[0].counts = parsed.counts
        parts[0].warnings = hvdtune_json.warnings_of(parsed) + parsed.warnings
    return parts


def parse_file(path: Path) -> list[ParsedFile]:
    """As `parts_of`, before it is known what the parts mean."""
    with opened(path) as file:
        start = file.read(_MAGIC_BYTES)
        if not start:
            raise TraceFormatError(f"{path}: the file is empty", str(path), 0)
        if is_archive(start):
            return _archived(file, path)
        if cache.is_worth_it(path, start):
            with cache.cached(path) as kept:
                if kept is not None:
                    return [kept.parsed()]
        report = DamageReport(str(path))
        return [parse(chunks(file, start, report), report)]


def _archived(file: IO[bytes], path: Path) -> list[ParsedFile]:
    around = DamageReport(str(path))
    found, failed = [], []
    for member in archive.members(file, around):
        report = DamageReport(f"{path}/{member.name}")
        try:
            found.append(parse(archive.texts(file, member, report), report))
        except TraceFormatError as error:
            failed.append(error)
    unread = [str(error) for error in failed if not isinstance(error, NoTraceError)]
    if found:
        found[0].warnings[:0] = around.warnings() + unread
        return found
    if failed and (unread or not around.warnings()):
        raise next((each for each in failed if not isinstance(each, NoTraceError)), failed[0])
    text = next(iter(around.warnings()), f"{path}: an archive without files")
    raise TraceFormatError(text, str(path), max(around.first_offset, 0))


def describe(parsed: ParsedFile) -> FileSlices:
    """What a file means."""
    kind = format_of(parsed)
    frame = frame_of(parsed)
    ranks = kind.finish(frame, parsed)
    warnings = hvdtune_json.warnings_of(parsed) + parsed.warnings
    origin = kind.origin_unix_ns(parsed)
    file = File(parsed.path, kind.NAME, parsed.around | parsed.tracks.clues)
    return FileSlices(file, frame, origin, ranks, parsed.counts, warnings)


def join(parts: Sequence[FileSlices], warnings: list[str]) -> Model:
    """One model of several parts, on one clock as far as that is known.

    Args:
        warnings: what is known already; the parts' follow.
    """
    warnings = [*warnings, *(text for part in parts for text in part.warnings)]
    _name_ranks(parts, warnings)
    origin = _align(parts, warnings)
    for index, part in enumerate(parts):
        part.frame["file"] = np.full(len(part.frame), index, np.int16)
    frame = parts[0].frame if len(parts) == 1 else _stacked([part.frame for part in parts])
    begin = frame["begin_ns"].to_numpy()
    first = int(begin.min()) if len(begin) else 0
    frame["begin_ns"] = begin - first
    frame["end_ns"] = frame["end_ns"].to_numpy() - first
    order = order_of(frame["begin_ns"].to_numpy(), frame["end_ns"].to_numpy())
    if order is not None:
        frame = frame.take(order)
    ranks: dict[int, dict[str, Any]] = {}
    counts: dict[str, dict[str, int]] = {}
    for part in parts:
        for rank, said in part.ranks.items():
            ranks.setdefault(rank, {}).update(said)
        for phase, numbers in part.counts.items():
            sums = counts.setdefault(phase, dict.fromkeys(numbers, 0))
            for key, number in numbers.items():
                sums[key] += number
    return Model(
        slices=frame.reset_index(drop=True),
        files=tuple(part.file for part in parts),
        origin_unix_ns=None if origin is None else origin + first,
        ranks=dict(sorted(ranks.items())),
        counts=dict(sorted(counts.items())),
        warnings=warnings,
    )


def order_of(begin: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.intp] | None:
    """Indices that order by begin, the longer first among equal begins; None: it is so already."""
    later = begin[1:] > begin[:-1]
    if (later | ((begin[1:] == begin[:-1]) & (end[1:] <= end[:-1]))).all():
        return None
    order = np.argsort(begin, kind="stable")
    equal = begin[order][1:] == begin[order][:-1]
    tied = np.zeros(len(order), dtype=bool)
    tied[1:] |= equal
    tied[:-1] |= equal
    rows = order[tied]
    order[tied] = rows[np.lexsort((-end[rows], begin[rows]))]
    return order


def _is_own(path: Path) -> bool:
    with opened(path) as file:
        start = file.read(len(hvt.MAGIC))
    # A rank killed as it began a new segment leaves PATH empty and PATH.1 whole.
    return start == hvt.MAGIC or (not start and path.with_name(path.name + ".1").exists())


def _name_ranks(parts: Sequence[FileSlices], warnings: list[str]) -> None:
    """Gives files that say nothing of ranks theirs, from the files' names or their order."""
    if len(parts) == 1:
        return
    silent = [part for part in parts if (part.frame["rank"].to_numpy() == -1).all()]
    matches = {id(part): _RANK_IN_NAME.search(Path(part.file.path).name) for part in silent}
    if silent and not all(matches.values()):
        text = "they do not say which rank they are of: numbered in the order of their names"
        warnings.append(f"{named([part.file.path for part in silent])}: {text}")
    for index, part in enumerate(silent):
        match = matches[id(part)] if all(matches.values()) else None
        rank = int(match[1]) if match else index
        part.frame["rank"] = np.full(len(part.frame), rank, np.int32)
        part.ranks = {rank: part.ranks.get(-1, {})}


def _align(parts: Sequence[FileSlices], warnings: list[str]) -> int | None:
    """Puts all parts on the first's clock; time 0 of that in ns since 1970."""
    first = parts[0].origin_unix_ns
    unknown = [part.file.path for part in parts if part.origin_unix_ns is None]
    if unknown:
        if len(parts) > 1:
            text = "their clock is not known, their times are taken as they are"
            warnings.append(f"{named(unknown)}: {text}")
        return first if len(parts) == 1 else None
    for part in parts[1:]:
        assert first is not None
        assert part.origin_unix_ns is not None
        shift = part.origin_unix_ns - first
        part.frame["begin_ns"] = part.frame["begin_ns"].to_numpy() + shift
        part.frame["end_ns"] = part.frame["end_ns"].to_numpy() + shift
    return first


def _stacked(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for name in frames[0].columns:
        if isinstance(frames[0][name].dtype, pd.CategoricalDtype):
            columns[name] = pd.api.types.union_categoricals([frame[name] for frame in frames])
        else:
            columns[name] = pd.concat([frame[name] for frame in frames], ignore_index=True)
    return pd.DataFrame(columns, copy=False)
