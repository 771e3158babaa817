"""Joins the files of all ranks into one trace on one clock."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hvdtune.errors import TraceFormatError
from hvdtune.plural import counted
from hvdtune.timeline.model.event_table import make_events
from hvdtune.timeline.model.schema import (
    COLUMNS,
    KIND_NAMES,
    KINDS,
    RECORD,
    Column,
)
from hvdtune.timeline.model.slices import File
from hvdtune.timeline.model.trace import Trace
from hvdtune.timeline.reading.causality import align
from hvdtune.timeline.reading.clock import ClockFit, fit_clock
from hvdtune.timeline.reading.formats.hvt import RankFile, read_rank_file

# Times beyond 36 years of uptime are damage; below, sums of a time and an offset fit 64 bits.
MAX_TIME_NS = 2**60

_DURATION_BITS = 48
_OPTIONAL: tuple[Column, ...] = ("name", "seq", "bucket", "arg")

_NO_RECORDS = np.empty(0, RECORD)

Columns = dict[str, NDArray[Any]]

_DTYPES = {
    "rank": np.int32,
    "kind": np.int8,
    "name": np.int32,
    "begin_ns": np.int64,
    "end_ns": np.int64,
    "seq": np.int64,
    "bucket": np.uint32,
    "arg": np.uint32,
}
assert _DTYPES.keys() == set(COLUMNS)


def merge(paths: Iterable[Path | str], *, still_recorded: bool = False) -> Trace:
    """Read the files of a job's ranks, any number of them, and align their clocks.

    A file that cannot be read becomes a warning as long as another can; so does one that its rank
    did not close, unless it is `still_recorded`.

    Raises:
        TraceFormatError: none can be read, or two are of the same rank.
    """
    return merge_files(*read_files(paths, still_recorded=still_recorded))


def read_files(
    paths: Iterable[Path | str], *, still_recorded: bool = False
) -> tuple[dict[int, RankFile], list[str]]:
    """The files of a job's ranks by rank, and what is known of them, for `merge_files`.

    Raises TraceFormatError as `merge` does.
    """
    files: dict[int, RankFile] = {}
    warnings: list[str] = []
    unreadable: TraceFormatError | None = None
    for path in paths:
        try:
            file = read_rank_file(path)
        except TraceFormatError as error:
            unreadable = unreadable or error
            warnings.append(str(error))
            continue
        if file.rank in files:
            known = files[file.rank].path
            raise TraceFormatError(f"{known} and {file.path} both belong to rank {file.rank}")
        files[file.rank] = file
        if not (file.is_closed or still_recorded):
            warnings.append(f"{path}: rank {file.rank} did not close it (killed or still running)")
    if not files:
        raise unreadable or TraceFormatError("no timeline to read")
    return files, warnings


def merge_files(read: dict[int, RankFile], warnings: list[str]) -> Trace:
    """Merge files that are read already, as `merge` does.

    Args:
        read: the file of each rank, at least one; their records are taken from them.
        warnings: what is known of them; what merging finds is added.
    """
    first = str(next(iter(read.values())).path)
    files = dict(sorted(read.items()))
    names: dict[str, int] = {"": 0}
    clocks = {}
    # What several ranks have in memory at once may be large: their columns are parts of one table.
    columns = _empty(sum(len(file.records) + len(file.carried) for file in files.values()))
    own: dict[int, Columns] = {}
    filled = 0
    for rank, file in files.items():
        warnings += file.warnings
        decoded = _decode(file, names, warnings)
        read[rank] = files[rank] = replace(file, records=_NO_RECORDS, carried=_NO_RECORDS)
        clocks[rank] = _clock_of(file, decoded, files.get(0), warnings)
        own[rank] = _put(_without_carried_clocks(decoded), columns, filled)
        filled += len(own[rank]["kind"])
    del decoded, file
    clocks = align(clocks, own)
    warnings += [
        f"rank {rank}: its clock jumps, or drifts unevenly: some of its times are wrong by "
        f"{fit.violation_us / 1000:.3g} ms or more"
        for rank, fit in clocks.items()
        if fit.violation_us > 0
    ]
    for rank, part in own.items():
        begin = clocks[rank].to_rank_0(part["begin_ns"])
        part["end_ns"][:] = begin + (part["end_ns"] - part["begin_ns"])
        part["begin_ns"][:] = begin
        if dropped := files[rank].dropped:
            warnings.append(
                f"rank {rank} dropped {counted(dropped, 'record')}: its buffer was full"
            )
    del part
    own.clear()
    columns = {key: values[:filled] for key, values in columns.items()}
    missing = set(range(max(_size(file) for file in files.values()))) - set(files)
    if missing:
        warnings.append(f"no timeline of rank {', '.join(map(str, sorted(missing)))}")
    origin = int(columns["begin_ns"].min()) if len(columns["begin_ns"]) else 0
    columns["begin_ns"] -= origin
    columns["end_ns"] -= origin
    meta: dict[str, Any] = {
        "ranks": {rank: file.metadata for rank, file in files.items()},
        "dropped": {rank: file.dropped for rank, file in files.items()},
        "clock": {rank: asdict(fit) for rank, fit in clocks.items()},
        "origin_ns": origin,
    }
    if shapes := _shapes(files.values()):
        meta["shapes"] = shapes
    wall = _wall_offset(files.get(0))
    if wall is not None:
        meta["origin_unix_ns"] = origin + wall
    return Trace(make_events(columns, list(names)), meta, warnings, (File(first, "hvdtune"),))


def _shapes(files: Iterable[RankFile]) -> dict[str, str]:
    return {
        file.names[name]: text
        for file in files
        for name, text in file.details.items()
        if name in file.names
    }


def _size(file: RankFile) -> int:
    # A size that no job has would make an endless list of missing ranks.
    size = file.metadata.get("size", 0)
    return size if isinstance(size, int) and 0 <= size <= 1_000_000 else 0


def _empty(count: int) -> Columns:
    """Room for the columns of so many records; not all of it need be used."""
    return {key: np.empty(count, dtype) for key, dtype in _DTYPES.items()}


def _put(part: Columns, columns: Columns, at: int) -> Columns:
    """Copies rows into the columns; returns them where they are then."""
    places = slice(at, at + len(part["kind"]))
    for key, values in part.items():
        columns[key][places] = values
    return {key: columns[key][places] for key in part}


def _decode(file: RankFile, names: dict[str, int], warnings: list[str]) -> Columns:
    records = np.concatenate([file.carried, file.records])
    codes = (records["duration_and_kind"] >> np.uint64(_DURATION_BITS)).astype(np.int64)
    known = (codes >= 1) & (codes <= len(KIND_NAMES)) & (records["begin_ns"] < MAX_TIME_NS)
    if not known.all():
        left_out = int((~known).sum())
        warnings.append(
            f"{file.path}: {counted(left_out, 'record')} of unknown kind or time skipped"
        )
    records = records[known]
    kind = codes[known] - 1
    duration = records["duration_and_kind"] & np.uint64((1 << _DURATION_BITS) - 1)
    begin = records["begin_ns"].astype(np.int64)
    carried = int(known[: len(file.carried)].sum())
    own_from = int(begin[carried:].min()) if len(begin) > carried else 0
    columns: Columns = {
        "rank": np.full(len(records), file.rank, np.int32),
        "kind": kind.astype(np.int8),
        "name": _global_names(records["name"], file, names, warnings),
        "begin_ns": begin,
        "end_ns": begin + duration.astype(np.int64),
        "seq": records["seq"].astype(np.int64),  # of a clock it is an offset
        "bucket": records["bucket"].copy(),
        "arg": records["arg"].copy(),
        "carried": np.arange(len(records)) < carried,
    }
    _decode_offsets(columns)
    _clear_unused(columns)
    columns["seq"][kind == KIND_NAMES.index("PEER")] -= 1  # a rank; -1: unknown
    # A carried setting is in force where the kept records begin; it was adopted earlier.
    late = columns["carried"] & (kind == KIND_NAMES.index("KNOB_ADOPTED"))
    columns["begin_ns"][late] = np.maximum(columns["begin_ns"][late], own_from)
    columns["end_ns"][late] = columns["begin_ns"][late]
    return columns


def _global_names(
    ids: NDArray[Any], file: RankFile, names: dict[str, int], warnings: list[str]
) -> NDArray[np.int32]:
    used = np.unique(ids)
    codes = np.empty(len(used), np.int32)
    lost = 0
    for index, name in enumerate(used.tolist()):
        text = "" if name == 0 else file.names.get(name)
        lost += text is None
        codes[index] = names.setdefault(f"#{name}" if text is None else text, len(names))
    if lost:
        warnings.append(f"{file.path}: {counted(lost, 'name')} lost; numbers are shown instead")
    return codes[np.searchsorted(used, ids)]


def _decode_offsets(columns: Columns) -> None:
    clock = columns["kind"] == KIND_NAMES.index("CLOCK")
    high, low = columns["bucket"][clock].astype(np.int64), columns["seq"][clock]
    columns["seq"][clock] = (high - ((high >> 31) << 32)) * 2**32 + low
    columns["bucket"][clock] = 0


def _clear_unused(columns: Columns) -> None:
    for code, name in enumerate(KIND_NAMES):
        kind = KINDS[name]
        of_kind = np.flatnonzero(columns["kind"] == code)
        for column in _OPTIONAL:
            named_by_row = column == "name" and kind.row == "tensor"
            if column not in kind.fields and not named_by_row:
                columns[column][of_kind] = 0
        if not kind.span and not kind.duration:
            columns["end_ns"][of_kind] = columns["begin_ns"][of_kind]


def _without_carried_clocks(columns: Columns) -> Columns:
    keep = ~(columns["carried"] & (columns["kind"] == KIND_NAMES.index("CLOCK")))
    return {key: columns[key][keep] for key in COLUMNS}


def _clock_of(
    file: RankFile,
    columns: Mapping[str, NDArray[Any]],
    rank_0: RankFile | None,
    warnings: list[str],
) -> ClockFit:
    if file.rank == 0:
        return ClockFit(is_exact=True)
    sample = columns["kind"] == KIND_NAMES.index("CLOCK")
    sample &= np.abs(columns["seq"]) < MAX_TIME_NS
    begin, end = columns["begin_ns"][sample], columns["end_ns"][sample]
    fit = fit_clock(begin, columns["seq"][sample], end - begin)
    if fit.samples:
        return _same_clock(fit, file, rank_0) or fit
    return _wall_clock_fit(file, rank_0, warnings)


def _same_clock(fit: ClockFit, file: RankFile, rank_0: RankFile | None) -> ClockFit | None:
    # Processes of one host share CLOCK_MONOTONIC: an offset that the round trip cannot tell from
    # zero is zero.
    host = file.metadata.get("host")
    if rank_0 is None or host is None or host != rank_0.metadata.get("host"):
        return None
    if abs(fit.offset_ns) > 500 * fit.round_trip_us:
        return None
    return ClockFit(round_trip_us=fit.round_trip_us, samples=fit.samples, is_exact=True)


def _wall_clock_fit(file: RankFile, rank_0: RankFile | None, warnings: list[str]) -> ClockFit:
    if rank_0 is not None and file.metadata.get("host") == rank_0.metadata.get("host"):
        return ClockFit(is_exact=True)
    own, other = _wall_offset(file), _wall_offset(rank_0)
    if own is None or other is None or abs(own - other) >= MAX_TIME_NS:
        warnings.append(f"rank {file.rank}: clock not measured, its times may be shifted")
        return ClockFit()
    warnings.append(f"rank {file.rank}: clock not measured, aligned by time of day")
    return ClockFit(offset_ns=own - other)


def _wall_offset(file: RankFile | None) -> int | None:
    """The number to add to the monotonic clock to get ns since 1970."""
    if file is None:
        return None
    unix, monotonic = file.metadata.get("unix_ns"), file.metadata.get("monotonic_ns")
    if not isinstance(unix, int) or not isinstance(monotonic, int):
        return None
    return unix - monotonic if max(abs(unix), abs(monotonic)) < 2 * MAX_TIME_NS else None
