"""Reads of a trace what findings and drawings need, so that large ones are never held whole."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hvdtune.timeline.model.counters import COUNTER_LETTER, counters_of
from hvdtune.timeline.model.duplicate_ranks import files_of_ranks
from hvdtune.timeline.model.events_of_slices import DRAWN, others_of
from hvdtune.timeline.model.flows import FLOW_LETTERS, flows_of
from hvdtune.timeline.model.interning import PairInterner
from hvdtune.timeline.model.other_slices import (
    ArgsOf,
    ThreadPlace,
    UnsortedOthers,
    from_slices,
    sort_others,
)
from hvdtune.timeline.model.slices import KIND_TEXTS
from hvdtune.timeline.model.trace import Trace
from hvdtune.timeline.reading import cache
from hvdtune.timeline.reading.formats.detection import Format, format_of
from hvdtune.timeline.reading.formats.file_slices import FileSlices
from hvdtune.timeline.reading.formats.frame import process_title, thread_title
from hvdtune.timeline.reading.json.begin_end_pairing import SCHEMA
from hvdtune.timeline.reading.json.parsed import ParsedFile

# Slices of these kinds are only drawn; of the others formats and findings take more.
_ONLY_DRAWN: Final = np.array([kind in ("", "COMPUTE", "COPY") for kind in KIND_TEXTS])
_DRAWN: Final = np.isin(np.arange(256), [ord(letter) for letter in DRAWN])
# Events that are no slices.
_APART: Final = (*FLOW_LETTERS, COUNTER_LETTER)
_IS_APART: Final = np.isin(np.arange(256), [ord(letter) for letter in _APART])
_COLUMNS: Final = ("track", "name", "category", "phase", "begin_ns", "end_ns")
_CHANGED = "not known: the trace has changed since it was opened"


def parsed_of(kept: cache.Cached) -> tuple[ParsedFile, UnsortedOthers]:
    """A file from its cache, apart from the slices that are only drawn, and these."""
    bare = kept.parsed_but(SCHEMA.empty_table())
    means = format_of(bare, kept.format[0])
    kinds = _Kinds(means, bare.texts)
    starts = kept.group_starts()
    columns = _room(starts[-1], len(bare.texts), len(bare.tracks.pid))
    tables, rows, unused = [], 0, 0
    for number, start in enumerate(starts[:-1]):
        table = kept.group(number, _COLUMNS)
        column = {name: table[name].to_numpy() for name in _COLUMNS}
        kind = kinds.of(column["name"], column["category"])
        others = _ONLY_DRAWN[kind] & ~_IS_APART[column["phase"]]
        if not others.all():
            tables.append(kept.group(number).filter(pa.array(~others)))
        drawn = others & _DRAWN[column.pop("phase")]
        unused += int(others.sum() - drawn.sum())
        column |= {"kind": kind, "line": np.arange(start, starts[number + 1], dtype=np.int32)}
        column["thread"] = column.pop("track")
        count = int(drawn.sum())
        for key, whole in columns.items():
            whole[rows : rows + count] = column[key] if drawn.all() else column[key][drawn]
        rows += count
    rest = kept.parsed_but(pa.concat_tables(tables) if tables else SCHEMA.empty_table())
    return rest, UnsortedOthers(
        {key: whole[:rows] for key, whole in columns.items()},
        _places(bare, means),
        bare.texts,
        bare.texts,
        _args_in(Path(bare.path), kept.content),
        unused,
    )


class _Kinds:
    """The numbers of kinds of names and categories."""

    def __init__(self, means: Format, texts: list[str]) -> None:
        self._means = means
        self._texts = texts
        self._pairs = PairInterner()
        self._kinds = np.zeros(0, np.uint8)

    def of(self, name: NDArray[Any], category: NDArray[Any]) -> NDArray[np.uint8]:
        pairs = self._pairs.of(name, category)
        new = zip(*(codes.tolist() for codes in self._pairs.pairs(len(self._kinds))), strict=True)
        kinds = [
            KIND_TEXTS.index(self._means.kind(self._texts[one], self._texts[other]))
            for one, other in new
        ]
        self._kinds = np.concatenate((self._kinds, np.array(kinds, np.uint8)))
        return self._kinds[pairs]


def _room(rows: int, texts: int, threads: int) -> dict[str, NDArray[Any]]:
    """Columns for so many rows: memory that is used as it is filled, and freed as a whole."""
    columns: dict[str, type] = {"kind": np.uint8, "line": np.int32}
    columns |= {"begin_ns": np.int64, "end_ns": np.int64}
    for name, numbers in (("thread", threads), ("name", texts), ("category", texts)):
        columns[name] = np.int16 if numbers < 1 << 15 else np.int32
    return {name: np.empty(rows, dtype) for name, dtype in columns.items()}


def _places(parsed: ParsedFile, means: Format) -> list[ThreadPlace]:
    ids = zip(means.rank_of_track(parsed), parsed.tracks.pid, parsed.tracks.tid, strict=True)
    return [
        ThreadPlace(rank, process_title(parsed, pid), thread_title(parsed, pid, tid), pid, tid)
        for rank, pid, tid in ids
    ]


def _args_in(path: Path, content: tuple[int, int]) -> ArgsOf:
    """The arguments of slices by their row in the cache of the trace at `path`."""

    def args(line: int) -> str:
        with cache.cached(path) as kept:
            if kept is None or kept.content != content:
                return _CHANGED
            starts = kept.group_starts()
            group = bisect_right(starts, line) - 1
            return str(kept.group(group, ["args"])["args"][line - starts[group]])

    return args


def lighten(part: FileSlices) -> None:
    """Moves the slices that are only drawn from the frame to the others."""
    only_drawn = _ONLY_DRAWN[part.frame["kind"].cat.codes.to_numpy()]
    only_drawn = only_drawn & ~part.frame["phase"].isin(_APART).to_numpy()
    drawn = part.frame["phase"].isin(DRAWN).to_numpy()
    part.others = from_slices(part.frame, only_drawn & drawn)
    part.others.unused = int((only_drawn & ~drawn).sum())
    part.frame = part.frame[~only_drawn].reset_index(drop=True)


def without_slices(trace: Trace, others: Sequence[UnsortedOthers], first_ns: int) -> Trace:
    """A trace of light parts: its events, flows and counters, and what is only drawn.

    Args:
        first_ns: time 0 on the clock of `others`.
    """
    assert trace.parsed is not None
    for part in others:
        part.shift(-first_ns)
    events, flows, counters = trace.events, flows_of(trace.parsed), counters_of(trace.parsed)
    slices = len(trace.parsed) + sum(len(part.columns["line"]) + part.unused for part in others)
    parts = [others_of(trace.parsed), *others]
    return replace(
        trace,
        recorded=events,
        parsed=None,
        infer=None,
        kept_others=sort_others(parts),
        kept_flows=flows,
        kept_counters=counters,
        unused=sum(part.unused for part in parts) - flows.events - counters.events,
        kept_slices=slices,
        kept_files_of_ranks=tuple(files_of_ranks(trace)) if len(trace.files) > 1 else (),
    )
