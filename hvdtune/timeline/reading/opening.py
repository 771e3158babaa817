"""Opens traces of any format, by what is in them rather than what they are called."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd

from hvdtune.errors import HvdtuneError, TraceFormatError, UsageError
from hvdtune.timeline.model.event_labels import head_of
from hvdtune.timeline.model.ordering import slice_order
from hvdtune.timeline.model.slices import File
from hvdtune.timeline.model.trace import Trace, meta_of
from hvdtune.timeline.model.viewer_rows import assign_rows
from hvdtune.timeline.reading import cache, light
from hvdtune.timeline.reading.folders import TraceFiles, find, folder_of, named
from hvdtune.timeline.reading.formats import container, horovod, hvdtune_json, parquet
from hvdtune.timeline.reading.formats.detection import (
    evidence_of,
    format_of,
    infers_events,
    names_tensors,
)
from hvdtune.timeline.reading.formats.file_slices import FileSlices
from hvdtune.timeline.reading.formats.frame import frame_of
from hvdtune.timeline.reading.generations import merge_generations, worker_of
from hvdtune.timeline.reading.inspection import InspectedFile
from hvdtune.timeline.reading.json import archive
from hvdtune.timeline.reading.json.chrome_json import parse as parse_json
from hvdtune.timeline.reading.json.damage import DamageReport, NoTraceError
from hvdtune.timeline.reading.json.parsed import ParsedFile
from hvdtune.timeline.reading.json.source import opened
from hvdtune.timeline.reading.merge import merge
from hvdtune.timeline.reading.parsing import START_BYTES, parse

_RANK_IN_NAME = re.compile(r"rank[-_.]?([0-9]{1,7})(?![0-9])", re.IGNORECASE)


def open_trace(paths: Path | str | Iterable[Path | str]) -> Trace:
    """Open a trace: one file, the files of several ranks, or folders of them.

    Known are hvdtune's own files and exports, Horovod's timelines, torch.profiler's traces,
    databases of nsys and rocprofv3, and Chrome traces of any program; plain or, except databases,
    packed by gzip, bzip2, xz or zstd or in a zip archive; whole, cut off or damaged. Files of a
    folder that are not traces are ignored; `Trace.warnings` lists what cannot be read of a trace.

    Raises:
        UsageError: a folder holds no trace.
        TraceFormatError: nothing can be read; its `offset` is the byte where that failed.

    Example:
        >>> trace = open_trace("traces/")  # doctest: +SKIP
        >>> trace.slices.query("kind == 'ALLREDUCE'")  # doctest: +SKIP
    """
    return open_files(find([paths] if isinstance(paths, Path | str) else paths))


def open_light(path: Path | str) -> Trace:
    """Open a trace as `open_trace` does, without its `slices`, in a fraction of the memory."""
    return open_files(find([path]), read=_light_parts_of)


def open_files(
    found: TraceFiles, read: Callable[[InspectedFile], list[FileSlices]] | None = None
) -> Trace:
    """Open known files as `open_trace` does; leaves in `found` the ones that were read.

    Args:
        read: another reader of files that are no recordings.
    """
    read = read or _parts_of
    failures = Failures(found)
    recordings = [file.path for file in found.files if file.kind == "recording"]
    recorded = _merged(recordings, still_recorded=found.still_recorded) if recordings else None
    parts: list[FileSlices] = []
    eventless: dict[Path, list[FileSlices]] = {}  # `[]` beside traces may be anything
    for file in found.files:
        if file.kind == "recording":
            continue
        try:
            own = read(file)
        except TraceFormatError as error:
            failures.add(file, error)
            continue
        if file.listed and not any(part.counts or part.warnings for part in own):
            eventless[file.path] = own
        else:
            parts += own
    passed_over = {*failures.paths, *(eventless if parts or recorded else ())}
    if not parts and recorded is None:
        parts = [part for own in eventless.values() for part in own]
        if not parts:
            raise failures.error()
    found.files = [file for file in found.files if file.path not in passed_over]
    notes = [*found.notes, *failures.warnings]
    if recorded is None:
        return join(parts, notes)
    if not parts:
        return replace(recorded, warnings=[*notes, *recorded.warnings])
    return join([_part_of(recorded), *parts], notes)


def _merged(recordings: Sequence[Path], *, still_recorded: bool) -> Trace:
    """The ranks' recordings, or those of an elastic job's workers."""
    if all(map(worker_of, recordings)):
        return merge_generations(recordings, still_recorded=still_recorded)
    return merge(recordings, still_recorded=still_recorded)


class Failures:
    """What could not be read of what paths stand for.

    Attributes:
        paths: all of it.
        warnings: a sentence for each file, but for what only lies beside traces.
    """

    def __init__(self, found: TraceFiles) -> None:
        self.paths: list[Path] = []
        self.warnings: list[str] = []
        self._listed = sorted(file.path for file in found.files if file.listed)
        self._first: TraceFormatError | None = None

    def add(self, file: InspectedFile, error: TraceFormatError) -> None:
        """`file` could not be read."""
        self.paths.append(file.path)
        if not (file.listed and isinstance(error, NoTraceError)):
            self._first = self._first or error
            self.warnings.append(str(error))

    def error(self) -> HvdtuneError:
        """The error to raise where nothing could be read."""
        if self._first is None and self._listed:
            return UsageError(f"{folder_of(self._listed)} holds no trace")
        return self._first or TraceFormatError("no trace to read")


def _part_of(trace: Trace) -> FileSlices:
    """A recording, to be joined with what other programs recorded."""
    around = {"otherData": head_of(trace, assign_rows(trace))}
    return FileSlices(
        file=replace(trace.files[0], around=around),
        frame=trace.slices.drop(columns="file"),
        origin_unix_ns=trace.origin_unix_ns,
        ranks=trace.ranks,
        counts={phase: dict(numbers) for phase, numbers in trace.counts.items()},
        warnings=trace.warnings,
    )


def _parts_of(file: InspectedFile) -> list[FileSlices]:
    """Read a file that is no recording; archives and exports hold several parts.

    Raises:
        TraceFormatError: nothing of it can be read.
    """
    if file.error is not None:
        raise file.error
    if file.kind == "parquet":
        return parquet.read_parts(file.path)
    parts = []
    for parsed in _parse(file):
        held = container.files_in(parsed)
        parts += [_describe(parsed)] if held is None else _unpacked(parsed, held)
    return parts


def _light_parts_of(file: InspectedFile) -> list[FileSlices]:
    """Read a file as `_parts_of` does; its large ones are never in memory as a whole."""
    if file.error is None and cache.is_worth_it(file):
        with cache.cached(file.path) as kept:
            if kept is not None and container.files_in(kept.statistics()[0]) is None:
                parsed, others = light.parsed_of(kept)
                part = _describe(parsed, kept.format[0])
                part.others = others
                return [part]
    parts = _parts_of(file)
    for part in parts:
        light.lighten(part)
    return parts


def _unpacked(
    parsed: ParsedFile, held: Sequence[tuple[ParsedFile, Mapping[str, Any]]]
) -> list[FileSlices]:
    """The parts of an export, all on one clock."""
    said = parsed.around["otherData"][container.KEY]
    origin = said.get("origin_unix_ns")
    parts = []
    for held_file, file in held:
        part = _describe(held_file, str(file.get("format")))
        part.origin_unix_ns = origin if isinstance(origin, int) and abs(origin) < 2**62 else None
        part.counts, part.warnings = {}, []
        rank = file.get("rank")
        if isinstance(rank, int) and 0 <= rank < 2**31 and (part.frame["rank"] == -1).all():
            part.name_rank(rank)
        parts.append(part)
    if parts:
        parts[0].counts = parsed.counts
        parts[0].warnings = hvdtune_json.warnings_of(parsed)
    return parts


def _parse(file: InspectedFile) -> list[ParsedFile]:
    with opened(file.path) as text:
        if file.kind == "archive":
            return _archived(text, file.path)
        if cache.is_worth_it(file):
            with cache.cached(file.path) as kept:
                if kept is not None:
                    return [kept.parsed()]
        report = DamageReport(str(file.path))
        return [parse(file.path, text, text.read(START_BYTES), report)]


def _archived(file: IO[bytes], path: Path) -> list[ParsedFile]:
    around = DamageReport(str(path))
    found, failed = [], []
    for member in archive.members(file, around):
        report = DamageReport(f"{path}/{member.name}")
        try:
            found.append(parse_json(archive.texts(file, member, report), report))
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


def _describe(parsed: ParsedFile, format_name: str = "") -> FileSlices:
    """Interpret a file by the reader of its format, which is told or recognized."""
    kind = format_of(parsed, format_name)
    frame = frame_of(parsed)
    ranks = kind.finish(frame, parsed)
    return FileSlices(
        file=File(parsed.path, kind.NAME, parsed.around | parsed.tracks.clues),
        frame=frame,
        origin_unix_ns=kind.origin_unix_ns(parsed),
        ranks=ranks,
        meta=hvdtune_json.meta_of(parsed) if kind.NAME == hvdtune_json.NAME else {},
        counts=parsed.counts,
        warnings=hvdtune_json.warnings_of(parsed),
    )


def join(parts: Sequence[FileSlices], warnings: list[str]) -> Trace:
    """One trace of several parts, on one clock as far as that is known.

    Args:
        warnings: what is known already; the parts' follow.
    """
    warnings = [*warnings, *_warnings_of(parts)]
    _name_ranks(parts, warnings)
    origin = _align(parts, warnings)
    for index, part in enumerate(parts):
        part.frame["file"] = np.full(len(part.frame), index, np.int16)
    first = min((at for part in parts for at in part.first_ns()), default=0)
    frame = parts[0].frame if len(parts) == 1 else _stacked([part.frame for part in parts])
    frame["begin_ns"] = frame["begin_ns"].to_numpy() - first
    frame["end_ns"] = frame["end_ns"].to_numpy() - first
    order = slice_order(frame["begin_ns"].to_numpy(), frame["end_ns"].to_numpy())
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
    formats = [part.file.format for part in parts]
    gaps, infer = evidence_of(formats)
    meta = meta_of(dict(sorted(ranks.items()))) | ({"gaps": gaps} if gaps else {})
    if not names_tensors({*formats}):
        meta["unnamed_tensors"] = True
    if horovod.NAME in formats and not any((part.frame["cached"] >= 0).any() for part in parts):
        meta["unknown_cache"] = True
    trace = Trace(
        meta=meta | _own_meta(parts, origin, first),
        warnings=warnings,
        files=tuple(part.file for part in parts),
        parsed=frame.reset_index(drop=True),
        parsed_counts=dict(sorted(counts.items())),
        infer=infer,
    )
    others = [part.others for part in parts if part.others is not None]
    return light.without_slices(trace, others, first) if others else trace


def _warnings_of(parts: Sequence[FileSlices]) -> list[str]:
    """What is wrong with the parts; what is wrong with several of them is one sentence."""
    paths: dict[str, list[str]] = {}
    for part in parts:
        before = f"{part.file.path}: "
        for text in part.warnings:
            own = [part.file.path] if text.startswith(before) else []
            paths.setdefault(text.removeprefix(before), []).extend(own)
    return [f"{named(of)}: {text}" if of else text for text, of in paths.items()]


def _own_meta(parts: Sequence[FileSlices], origin: int | None, first: int) -> dict[str, Any]:
    """Metadata that only hvdtune writes; the first slice begins at `first` of its clock."""
    meta: dict[str, Any] = {}
    shapes = {name: text for part in parts for name, text in part.meta.get("shapes", {}).items()}
    if shapes:
        meta["shapes"] = shapes
    if len(parts) == 1 and "origin_ns" in parts[0].meta:
        meta["origin_ns"] = parts[0].meta["origin_ns"] + first
    if origin is not None:
        meta["origin_unix_ns"] = origin + first
    return meta


def _name_ranks(parts: Sequence[FileSlices], warnings: list[str]) -> None:
    """Gives files that say nothing of ranks theirs, from the files' names or their order."""
    if len(parts) == 1:
        # A program whose steps and collectives are known, alone: its events are of rank 0.
        if parts[0].names_no_rank and infers_events(parts[0].file.format):
            parts[0].name_rank(0)
        return
    silent = [part for part in parts if part.names_no_rank]
    matches = {id(part): _RANK_IN_NAME.search(Path(part.file.path).name) for part in silent}
    if silent and not all(matches.values()):
        text = "no rank recorded; ranks are numbered in the order of the file names"
        warnings.append(f"{named([part.file.path for part in silent])}: {text}")
    for index, part in enumerate(silent):
        match = matches[id(part)] if all(matches.values()) else None
        rank = int(match[1]) if match else index
        part.name_rank(rank)


def _align(parts: Sequence[FileSlices], warnings: list[str]) -> int | None:
    """Puts all parts on the first's clock; time 0 of that in ns since 1970."""
    first = parts[0].origin_unix_ns
    unknown = [part.file.path for part in parts if part.origin_unix_ns is None]
    if unknown:
        if len(parts) > 1:
            text = "clock unknown; times are not aligned"
            warnings.append(f"{named(unknown)}: {text}")
        return first if len(parts) == 1 else None
    for part in parts[1:]:
        assert first is not None
        assert part.origin_unix_ns is not None
        part.shift(part.origin_unix_ns - first)
    return first


def _stacked(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    columns: dict[str, Any] = {}
    for name in frames[0].columns:
        if isinstance(frames[0][name].dtype, pd.CategoricalDtype):
            columns[name] = pd.api.types.union_categoricals([frame[name] for frame in frames])
        else:
            columns[name] = pd.concat([frame[name] for frame in frames], ignore_index=True)
    return pd.DataFrame(columns, copy=False)
