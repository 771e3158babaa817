"""Writes a trace as Horovod's own timeline: for tools that were made for that.

One process per tensor, as Horovod's coordinator draws them: NEGOTIATE_<OPERATION> with a tick when
each rank was ready, then the operation with QUEUE, MEMCPY_IN_FUSION_BUFFER, the communication, here
under the names of Gloo, whose part hvdtune plays, and MEMCPY_OUT_FUSION_BUFFER in it. A tensor's
slices never overlap, so what another rank announces while this one still ends the operation before
is drawn when that has ended. Chunks of a large bucket are copied while others travel: the copies
drawn are those before the first and after the last chunk travels. All else that a trace holds is
left out; see `left_out`.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pandas as pd

from hvdtune.timeline.model.schema import COLLECTIVES, KINDS, PROCESS_SET_UNIT
from hvdtune.timeline.model.trace import Trace
from hvdtune.timeline.writing.export import replacing

_KEY: Final = ["name", "process_set", "seq"]
_SPEC: Final = re.compile(r"(\w+)\[([\d,]*)\]")


# Of the first rank, what is drawn as its operations, whole or joined with others of a bucket.
_DRAWN: Final = frozenset(
    (
        *("QUEUE", "PACK", "REDUCE", "EXCHANGE", "WAIT", "UNPACK"),
        *(kind for kind in COLLECTIVES if KINDS[kind].horovod),
    )
)


@dataclass(frozen=True)
class WrittenTimeline:
    """What is in a timeline of Horovod's that was written.

    Attributes:
        rank: whose operations it holds.
        slices: how many slices, instants and ticks there are.
        ticks: how many of them are announcements of a rank.
        mark_cycles: whether cycles are marked.
    """

    rank: int
    slices: int
    ticks: int
    mark_cycles: bool


def can_write(trace: Trace) -> bool:
    """Whether a trace has anything of what the format consists of."""
    return bool(trace.events["kind"].isin([*COLLECTIVES, "NEGOTIATE"]).any())


def left_out(trace: Trace, written: WrittenTimeline) -> dict[str, int]:
    """How many slices of each kind Horovod's format has no place for, most first.

    Slices of kinds that hvdtune does not know are "others".
    """
    rank, kind = trace.slices["rank"].to_numpy(), trace.slices["kind"].astype("str")
    is_drawn = kind.isin(_DRAWN | ({"CYCLE"} if written.mark_cycles else set()))
    is_drawn &= np.maximum(rank, 0) == written.rank
    gone = kind[~is_drawn & ~kind.isin(["NEGOTIATE", "READY"])].value_counts()
    counts = {str(name) or "others": int(count) for name, count in gone.items()}
    # Announcements are ticks, also those of other ranks, if the first rank announced the same.
    announced = sum(len(ranks) for ranks in _ready(trace).values())
    counts["NEGOTIATE"] = announced - written.ticks
    by_count = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {name: count for name, count in by_count if count > 0}


def write_horovod(trace: Trace, path: Path | str, *, mark_cycles: bool = False) -> WrittenTimeline:
    """Write what rank 0 (or the first rank there is) did, with the other ranks' ready ticks.

    Args:
        path: replaced when the file is whole; compressed when it ends in ".gz".
        mark_cycles: with a CYCLE_START for each cycle, as HOROVOD_TIMELINE_MARK_CYCLES asks.
    """
    events = trace.events
    first = int(events["rank"].min()) if len(events) else 0
    own = events[events["rank"] == first]
    tensors = list(own[own["kind"].isin([*COLLECTIVES, "NEGOTIATE"])]["name"].unique())
    pids = {name: pid for pid, name in enumerate(tensors, start=1)}
    rows = list(_in_turn(_works(trace, own), pids, trace))
    if mark_cycles:
        rows += [
            _Row(int(ns), '{"ph": "i", "name": "CYCLE_START", "ts": %d, "s": "g"}')
            for ns in own.loc[own["kind"] == "CYCLE", "begin_ns"]
        ]
    # Stable: rows of one tensor are in their order already.
    order = np.argsort([row.ns // 1000 for row in rows], kind="stable")
    lines = [*_titles(trace, pids), *(rows[at].text % (rows[at].ns // 1000) for at in order)]
    with replacing(Path(path)) as file:
        file.write(b"[\n" + ",\n".join(lines).encode() + b"\n]\n")
    letters = Counter(row.text[_LETTER] for row in rows)
    slices = letters["B"] + letters["X"] + letters["i"]
    return WrittenTimeline(first, slices, letters["X"], mark_cycles)


class _Row(NamedTuple):
    ns: int
    text: str  # with %d for the time


_LETTER: Final = len('{"ph": "')  # where a row's is


class _Work(NamedTuple):
    """One operation on one tensor, as rank 0 saw it; times in ns, -1 for what is not recorded."""

    name: str
    operation: str
    ready: tuple[tuple[int, int], ...]  # rank, time
    answered: int
    queued: int
    begun: int
    copied_in: int
    travelled: int
    done: int


def _in_turn(works: Iterable[_Work], pids: dict[str, int], trace: Trace) -> Iterator[_Row]:
    free_ns: dict[str, int] = {}
    for work in works:
        for row in _rows(work, pids[work.name], trace):
            free_ns[work.name] = max(row.ns, free_ns.get(work.name, row.ns))
            yield row._replace(ns=free_ns[work.name])


def _works(trace: Trace, own: pd.DataFrame) -> Iterator[_Work]:
    """By tensor, in the order of time."""
    ready = _ready(trace)
    done = trace.events[trace.events["kind"].isin(COLLECTIVES)]
    operations = dict(zip(done["name"].astype("str"), done["kind"].astype("str"), strict=True))
    table = _negotiations(own).merge(_operations(own), on=["name", "seq", "bucket"], how="outer")
    table = table.fillna({"process_set": 0, "answered": -1, "begun": -1, "queued": -1, "done": -1})
    copies = _copies(own)
    table = table.assign(at=table[["answered", "begun"]].max(axis=1)).sort_values(["name", "at"])
    keys = ("name", "process_set", "seq", "bucket", "kind", "answered", "queued", "begun", "done")
    for row in zip(*(table[key].tolist() for key in keys), strict=True):
        name, process_set, seq, bucket, kind, *times = row
        answered, queued, begun, ended = (int(at) for at in times)
        copied_in, travelled = copies.get(int(bucket), (begun, ended))
        yield _Work(
            name=name,
            # What was announced and never done is most likely what this tensor is always for.
            operation=kind if begun >= 0 else operations.get(name, "ALLREDUCE"),
            ready=ready.get((name, int(process_set), int(seq)), ()),
            answered=answered,
            queued=queued,
            begun=begun,
            copied_in=copied_in,
            travelled=travelled,
            done=ended,
        )


def _ready(trace: Trace) -> dict[Any, tuple[tuple[int, int], ...]]:
    """When which ranks announced an operation: by events, or by ticks of Horovod's own."""
    announced = trace.events[trace.events["kind"] == "NEGOTIATE"]
    announced = announced.assign(process_set=announced["arg"] // PROCESS_SET_UNIT)
    tables = [announced]
    if trace.parsed is not None:
        ticks = trace.parsed[trace.parsed["kind"] == "READY"]
        ticks = ticks.assign(name=ticks["tensor"], process_set=ticks["process_set"].clip(lower=0))
        tables.append(ticks)
    found: dict[Any, dict[int, int]] = {}
    for table in tables:
        columns = (table[key].tolist() for key in (*_KEY, "rank", "begin_ns"))
        for name, process_set, seq, rank, begin_ns in zip(*columns, strict=True):
            found.setdefault((name, process_set, seq), {})[rank] = begin_ns
    return {key: tuple(sorted(ranks.items())) for key, ranks in found.items()}


def _negotiations(own: pd.DataFrame) -> pd.DataFrame:
    rows = own[own["kind"] == "NEGOTIATE"]
    rows = rows.assign(process_set=rows["arg"] // PROCESS_SET_UNIT, answered=rows["end_ns"])
    return rows[["name", "seq", "bucket", "process_set", "answered"]].astype({"name": "str"})


def _operations(own: pd.DataFrame) -> pd.DataFrame:
    done = own[own["kind"].isin(COLLECTIVES)].rename(
        columns={"begin_ns": "begun", "end_ns": "done"}
    )
    queued = own[own["kind"] == "QUEUE"].rename(columns={"begin_ns": "queued"})
    keys = ["name", "seq", "bucket"]
    done = done[[*keys, "kind", "begun", "done"]].astype({"name": "str", "kind": "str"})
    return done.merge(queued[[*keys, "queued"]].astype({"name": "str"}), on=keys, how="left")


def _copies(own: pd.DataFrame) -> dict[int, tuple[int, int]]:
    """For each bucket with copies, when the first ones ended and when the last ones began."""
    inside = own[own["kind"].isin(["PACK", "EXCHANGE", "REDUCE", "WAIT", "UNPACK"])]
    spans: defaultdict[int, list[tuple[str, int, int]]] = defaultdict(list)
    columns = (inside[key].tolist() for key in ("bucket", "kind", "begin_ns", "end_ns"))
    for bucket, *span in zip(*columns, strict=True):
        spans[bucket].append((span[0], span[1], span[2]))
    found = {}
    for bucket, rows in spans.items():
        copied_in, travelled = rows[0][1], rows[-1][2]
        for _, _, end in itertools.takewhile(lambda span: span[0] == "PACK", rows):
            copied_in = end
        for _, begin, _ in itertools.takewhile(lambda span: span[0] == "UNPACK", reversed(rows)):
            travelled = begin
        found[bucket] = copied_in, max(copied_in, travelled)
    return found


def _rows(work: _Work, pid: int, trace: Trace) -> Iterator[_Row]:
    begin = '{"ph": "B", "name": "%s", "ts": %%d, "pid": %d}'
    end = f'{{"ph": "E", "ts": %d, "pid": {pid}}}'
    if work.answered >= 0:
        ticks = [(rank, min(ns, work.answered)) for rank, ns in work.ready]
        since = min((ns for _, ns in ticks), default=work.answered)
        yield _Row(since, begin % (f"NEGOTIATE_{work.operation}", pid))
        for rank, ns in sorted(ticks, key=lambda tick: tick[1]):
            text = f'{{"ph": "X", "name": "{rank}", "ts": %d, "pid": {pid}, "dur": 0}}'
            yield _Row(ns, text)
        yield _Row(work.answered, end)
    travel = KINDS[work.operation].horovod
    if not travel or work.begun < 0:
        return
    spans = (
        ("QUEUE", work.queued, work.begun),
        ("MEMCPY_IN_FUSION_BUFFER", work.begun, work.copied_in),
        (travel, work.copied_in, work.travelled),
        ("MEMCPY_OUT_FUSION_BUFFER", work.travelled, work.done),
    )
    yield _Row(work.queued if work.queued >= 0 else work.begun, begin % (work.operation, pid))
    for name, since, until in spans:
        if 0 <= since < until:
            yield _Row(since, begin % (name, pid))
            yield _Row(until, end)
    args = _args(trace.meta.get("shapes", {}).get(work.name, ""))
    yield _Row(work.done, end.removesuffix("}") + (f', "args": {args}}}' if args else "}"))


def _args(detail: str) -> str:
    specs = _SPEC.findall(detail)
    if not specs:
        return ""
    shapes = "; ".join(f"[{dims.replace(',', ', ')}]" for _, dims in specs)
    return f'{{"dtype": "{specs[0][0]}", "shape": "{shapes}"}}'


def _titles(trace: Trace, pids: dict[str, int]) -> Iterator[str]:
    since_us = int(trace.meta.get("origin_unix_ns", 0)) // 1000
    yield from _title(0, {"start_time_since_epoch_in_micros": since_us})
    for name, pid in pids.items():
        yield from _title(pid, {"name": name})


def _title(pid: int, args: dict[str, Any]) -> Iterator[str]:
    for what, value in (("process_name", args), ("process_sort_index", {"sort_index": pid})):
        row = {"name": what, "ph": "M", "pid": pid, "args": value}
        yield msgspec.json.encode(row).decode()
