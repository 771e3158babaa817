"""Joins the files of an elastic job's workers, each of which has one for every generation.

    worker-3.hvt, worker-3-job2.hvt    worker 3 in generation 0 and in generation 2

A rank's number changes from one generation to the next, a worker's never does: in the joint trace a
worker's number is its rank. What is counted from 0 in each generation goes on.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hvdtune.errors import TraceFormatError
from hvdtune.plural import counted
from hvdtune.timeline.model.event_table import make_events
from hvdtune.timeline.model.schema import COLUMNS, INT_COLUMNS, KIND_NAMES, KINDS, Column
from hvdtune.timeline.model.trace import Trace
from hvdtune.timeline.reading.merge import merge_files, read_files

_NAME: Final = re.compile(r"worker-(?P<worker>\d{1,9})(-job(?P<generation>\d{1,9}))?\.hvt")
# Of numbers that a generation counts from 0 or 1, and that a file has 32 bits for.
_APART: Final = 2**32
# Workers in a sentence
_NAMED: Final = 2
_COUNTED: Final[Mapping[Column, Sequence[str]]] = {"seq": ("seq", "cycle"), "bucket": ("bucket",)}

_Columns = dict[str, NDArray[Any]]


def worker_of(path: Path) -> tuple[int, int] | None:
    """The worker and the generation of a file, by its name; None: it is no worker's."""
    match = _NAME.fullmatch(path.name)
    return None if match is None else (int(match["worker"]), int(match["generation"] or 0))


@dataclass(frozen=True)
class _Generation:
    """`workers` are those of its ranks."""

    number: int
    trace: Trace
    workers: Mapping[int, int]


def merge_generations(paths: Iterable[Path], *, still_recorded: bool = False) -> Trace:
    """Reads the files of an elastic job's workers, any number of them.

    Raises TraceFormatError where nothing of any can be read.
    """
    files: defaultdict[int, list[Path]] = defaultdict(list)
    for path in paths:
        found = worker_of(path)
        assert found is not None
        files[found[1]].append(path)
    generations, unreadable, unclosed = [], [], []
    for number, own in sorted(files.items()):
        try:
            read, warnings = read_files(own, still_recorded=True)
        except TraceFormatError as error:  # its ranks were killed before they recorded anything
            unreadable.append(error)
            continue
        found_workers = {rank: worker_of(file.path) for rank, file in read.items()}
        workers = {rank: found[0] for rank, found in found_workers.items() if found is not None}
        unclosed += [
            f"worker {workers[rank]} in generation {number}"
            for rank, file in read.items()
            if not (file.is_closed or still_recorded)
        ]
        generations.append(_Generation(number, merge_files(read, warnings), workers))
    if not generations:
        raise unreadable[0]
    warnings = [str(error) for error in unreadable]
    if unclosed:
        warnings.append(_not_closed(unclosed))
    return _joint(generations, warnings)


def _not_closed(workers: Sequence[str]) -> str:
    """One sentence for all: where ranks come and go, some are always killed."""
    named = " and ".join(workers[:_NAMED])
    more = f" and {len(workers) - _NAMED:,} more" if len(workers) > _NAMED else ""
    return f"{counted(len(workers), 'file')} not closed (killed or still running): {named}{more}"


def _joint(generations: Sequence[_Generation], warnings: list[str]) -> Trace:
    names: dict[str, int] = {"": 0}
    parts: list[_Columns] = []
    steps = 0
    meta: dict[str, Any] = {"ranks": {}, "dropped": {}, "clock": {}, "shapes": {}}
    first = generations[0]
    if len(generations) > 1:
        text = "ranks are numbered by worker; only steps that all workers took are counted"
        warnings.insert(0, f"{counted(len(generations), 'generation')} of an elastic job: {text}")
    for index, each in enumerate(generations):
        columns = _columns(each, names)
        shift = _shift(each, first, warnings)
        columns["begin_ns"] += shift
        columns["end_ns"] += shift
        steps = _go_on_counting(columns, index, steps)
        parts.append(columns)
        warnings += [f"generation {each.number}: {text}" for text in each.trace.warnings]
        _add_meta(meta, each)
    columns = {key: np.concatenate([part[key] for part in parts]) for key in COLUMNS}
    origin = int(columns["begin_ns"].min()) if len(columns["begin_ns"]) else 0
    columns["begin_ns"] -= origin
    columns["end_ns"] -= origin
    for key in ("origin_ns", "origin_unix_ns"):
        if key in first.trace.meta:
            meta[key] = first.trace.meta[key] + origin
    return Trace(make_events(columns, list(names)), meta, warnings, first.trace.files)


def _columns(generation: _Generation, names: dict[str, int]) -> _Columns:
    """The events as numbers, with workers for ranks."""
    events, workers = generation.trace.events, generation.workers
    texts = [str(text) for text in events["name"].cat.categories]
    codes = np.array([names.setdefault(text, len(names)) for text in texts], np.int64)
    columns: _Columns = {key: events[key].to_numpy().astype(np.int64) for key in INT_COLUMNS}
    columns["kind"] = events["kind"].cat.codes.to_numpy().astype(np.int64)
    columns["name"] = codes[events["name"].cat.codes.to_numpy()]
    columns["rank"] = _renamed(events["rank"].to_numpy(), workers).astype(np.int32)
    peer = columns["kind"] == KIND_NAMES.index("PEER")
    columns["seq"][peer] = _renamed(columns["seq"][peer], workers)
    return columns


def _renamed(ranks: NDArray[Any], workers: Mapping[int, int]) -> NDArray[np.int64]:
    """The workers' numbers; -1 for one without a file."""
    found = np.full(len(ranks), -1, np.int64)
    for rank, worker in workers.items():
        found[ranks == rank] = worker
    return found


def _shift(generation: _Generation, first: _Generation, warnings: list[str]) -> int:
    """What brings a generation's times to the first one's clock."""
    own, other = generation.trace.meta, first.trace.meta
    if _boot(generation) == _boot(first) is not None:
        return int(own["origin_ns"] - other["origin_ns"])
    if "origin_unix_ns" in own and "origin_unix_ns" in other:
        return int(own["origin_unix_ns"] - other["origin_unix_ns"])
    warnings.append(f"generation {generation.number}: its clock is unknown")
    return 0


def _boot(generation: _Generation) -> object:
    """Which machine's start rank 0 counts from."""
    return generation.trace.meta["ranks"].get(0, {}).get("boot_id")


def _go_on_counting(columns: _Columns, index: int, steps: int) -> int:
    """Numbers that every generation counts anew go on; returns how many steps there were."""
    for column, meanings in _COUNTED.items():
        kinds = [n for n, name in enumerate(KIND_NAMES) if _means(name, column, meanings)]
        counted_anew = np.isin(columns["kind"], kinds)
        if column == "bucket":
            counted_anew &= columns[column] > 0  # 0 is none
        columns[column][counted_anew] += index * _APART
    step = columns["kind"] == KIND_NAMES.index("STEP")
    columns["seq"][step] += steps
    return int(columns["seq"][step].max()) + 1 if step.any() else steps


def _means(kind: str, column: Column, meanings: Sequence[str]) -> bool:
    return KINDS[kind].fields.get(column) in meanings


def _add_meta(meta: dict[str, Any], generation: _Generation) -> None:
    own = generation.trace.meta
    for rank, worker in generation.workers.items():
        meta["ranks"][worker] = own["ranks"][rank]
        meta["clock"][worker] = own["clock"][rank]
        meta["dropped"][worker] = meta["dropped"].get(worker, 0) + own["dropped"][rank]
    meta["shapes"] |= own.get("shapes", {})
