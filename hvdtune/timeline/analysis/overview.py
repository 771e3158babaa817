"""The statistics of a trace of any size: from the caches of its files where they have one."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hvdtune.errors import TraceFormatError, UsageError
from hvdtune.timeline.model.duplicate_ranks import files_of_ranks, refuse_twice
from hvdtune.timeline.model.schema import KIND_NAMES
from hvdtune.timeline.model.statistics import KindRow, NameRow, Statistics, statistics_of
from hvdtune.timeline.reading import cache
from hvdtune.timeline.reading.folders import TraceFiles, find, folder_of
from hvdtune.timeline.reading.formats import hvdtune_json
from hvdtune.timeline.reading.inspection import InspectedFile
from hvdtune.timeline.reading.opening import Failures, open_files


@dataclass(frozen=True)
class FileOverview:
    """What is known of one file, or of files that were opened together.

    Attributes:
        path: the file, or the folder that has all of them.
        count: how many files there are.
        formats: see `slices.File`.
        origin_unix_ns: time 0 of `statistics`.
        ranks: see `duplicate_ranks.files_of_ranks`.
    """

    path: str
    formats: tuple[str, ...]
    statistics: Statistics
    counts: dict[str, dict[str, int]]
    warnings: list[str]
    origin_unix_ns: int | None
    ranks: Sequence[tuple[int, str, str]]
    count: int = 1


@dataclass(frozen=True)
class Overview:
    """All files of a trace.

    Attributes:
        notes: what is to be known of the choice of files, and which could not be read.
    """

    files: Sequence[FileOverview]
    notes: Sequence[str] = ()

    def duration_ms(self) -> float | None:
        """Return the time from the first begin to the last end; None: there are no slices."""
        known = [file for file in self.files if file.statistics.slices]
        if not known:
            return None
        together = all(file.origin_unix_ns is not None for file in known)
        shifts = [(file.origin_unix_ns or 0) if together else 0 for file in known]
        pairs = list(zip(known, shifts, strict=True))
        first = min(file.statistics.first_ns + shift for file, shift in pairs)
        return (max(file.statistics.last_ns + shift for file, shift in pairs) - first) / 1e6

    def kinds(self) -> list[KindRow]:
        """Return slices and covered time by rank and kind."""
        rows = [row for file in self.files for row in file.statistics.kinds]
        return sorted(rows, key=lambda row: (row.rank, -row.busy_ms, row.kind))

    def names(self) -> list[NameRow]:
        """The largest totals first."""
        by_name: dict[str, NameRow] = {}
        for row in (row for file in self.files for row in file.statistics.names):
            known = by_name.get(row.name)
            by_name[row.name] = row if known is None else _both(known, row)
        return sorted(by_name.values(), key=lambda row: (-row.total_ms, -row.count))

    def counts(self) -> dict[str, dict[str, int]]:
        """Events by phase letter: read, shown, reported."""
        sums: dict[str, dict[str, int]] = {}
        for phase, numbers in (item for file in self.files for item in file.counts.items()):
            for key, number in numbers.items():
                of_phase = sums.setdefault(phase, {})
                of_phase[key] = of_phase.get(key, 0) + number
        return dict(sorted(sums.items()))

    def warnings(self) -> list[str]:
        """The warnings of all files."""
        return [*self.notes, *(text for file in self.files for text in file.warnings)]

    def document(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "files": [
                {"path": file.path, "count": file.count, "formats": file.formats}
                for file in self.files
            ],
            "slices": sum(file.statistics.slices for file in self.files),
            "duration_ms": self.duration_ms(),
            "counts": self.counts(),
            "kinds": msgspec.to_builtins(self.kinds()),
            "names": msgspec.to_builtins(self.names()),
            "threads": [
                row for file in self.files for row in msgspec.to_builtins(file.statistics.threads)
            ],
            "warnings": self.warnings(),
        }


def overview(paths: Iterable[Path]) -> Overview:
    """The statistics of files, of several ranks' files, or of folders of them.

    Large files are parsed into their caches at the first time; then their rows are not read.

    Raises:
        TraceFormatError: there is nothing to read.
        UsageError: a rank is in two files.
    """
    found = find(paths)
    failures = Failures(found)
    files: list[FileOverview] = []
    small: list[InspectedFile] = []
    for file in found.files:
        try:
            kept = _from_cache(file)
        except TraceFormatError as error:
            failures.add(file, error)
            continue
        if kept is None:
            small.append(file)
        else:
            files.append(kept)
    if small:
        try:
            files.append(_loaded(TraceFiles(small, still_recorded=found.still_recorded)))
        except (TraceFormatError, UsageError) as error:
            if not files:
                raise
            if isinstance(error, TraceFormatError):
                failures.add(small[0], error)
    if not files:
        raise failures.error()
    refuse_twice(sorted({rank for file in files for rank in file.ranks}))
    return Overview(files, [*found.notes, *failures.warnings])


def _from_cache(file: InspectedFile) -> FileOverview | None:
    if not cache.is_worth_it(file):
        return None
    with cache.cached(file.path) as kept:
        if kept is None:
            return None
        parsed, told = kept.statistics()
        name, origin = kept.format
    warnings = hvdtune_json.warnings_of(parsed)
    own = {row.rank for row in told.kinds if row.kind in KIND_NAMES}
    ranks = [(rank, str(file.path), name) for rank in sorted(own)]
    return FileOverview(str(file.path), (name,), told, parsed.counts, warnings, origin, ranks)


def _loaded(found: TraceFiles) -> FileOverview:
    trace = open_files(found)
    paths = [file.path for file in found.files]
    return FileOverview(
        path=str(paths[0]) if len(paths) == 1 else folder_of(paths),
        formats=tuple(dict.fromkeys(file.format for file in trace.files)),
        statistics=statistics_of(trace),
        counts={phase: dict(numbers) for phase, numbers in trace.counts.items()},
        warnings=trace.warnings,
        origin_unix_ns=trace.origin_unix_ns,
        ranks=files_of_ranks(trace),
        count=len(paths),
    )


def _both(one: NameRow, other: NameRow) -> NameRow:
    return NameRow(
        one.name,
        one.count + other.count,
        one.total_ms + other.total_ms,
        max(one.longest_ms, other.longest_ms),
    )
