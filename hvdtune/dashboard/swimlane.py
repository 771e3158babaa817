"""A trace as the swimlane shows it: lanes of ranks and tensors, marks, and what a slice is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hvdtune.dashboard.lanes import (
    NAMES_OF_KINDS,
    SwimlaneRow,
    busy,
    lanes_of,
    lanes_of_counters,
    lanes_of_threads,
    without_busy_time,
)
from hvdtune.dashboard.tiles import Marks, TileWindow, tile
from hvdtune.plural import sized
from hvdtune.timeline import Trace
from hvdtune.timeline.analysis.recorded import is_recorded
from hvdtune.timeline.model.lateness import negotiations, ticks_by_rank
from hvdtune.timeline.model.other_slices import OtherSlices
from hvdtune.timeline.model.schema import COLLECTIVES, KIND_NAMES, PROCESS_SET_UNIT
from hvdtune.timeline.model.slices import FOREIGN_KINDS

_KIB = 1024
MAX_TICKS = 2_000
MAX_FLOWS = 400
MAX_COUNTERS = 64
MOST_NAMES = 40  # of tensors in one bucket
MOST_TEXT = 2_000  # of what another program says of a slice


@dataclass(frozen=True)
class Swimlane:
    """All of it; times are ns since the first event.

    Attributes:
        lanes: of ranks, in their order.
        last_ns: behind the end of the last slice.
    """

    trace: Trace
    lanes: Sequence[SwimlaneRow]
    marks: Marks
    last_ns: int

    @classmethod
    def of(cls, trace: Trace, found: pd.DataFrame | None = None) -> "Swimlane":
        """The swimlane of a trace; `found`: see `Marks.of`."""
        lanes = lanes_of(trace.events)
        if not is_recorded(trace, "negotiation"):
            lanes = [lane for lane in lanes if lane.label != "negotiate"]
        if not is_recorded(trace, "waits"):
            lanes = without_busy_time(lanes)
        if trace.others is not None:
            threads = lanes_of_threads(trace.others)
            lanes = sorted([*lanes, *threads], key=lambda lane: lane.rank)
        ends = [int(lane.reach[-1]) for lane in lanes if len(lane.reach)]
        if trace.counters is not None:
            counters = lanes_of_counters(trace.counters)
            ends += [int(track.at_ns[-1]) for track in trace.counters.tracks]
            lanes = sorted([*lanes, *counters], key=lambda lane: lane.rank)
        last = max(ends, default=0)
        return cls(trace, lanes, Marks.of(trace.events, found), last + 1)

    @property
    def slices_drawn(self) -> int:
        """How many slices all lanes have; see `quantities.QUANTITIES`."""
        return sum(len(lane.begin) for lane in self.lanes)

    def tile(
        self, window: TileWindow, ranks: Sequence[int] = (), tensors: Sequence[str] = ()
    ) -> bytes:
        """See `tiles`. The head has, too, "labels" ([rank, text, rows] of each lane, rank -1: of no
        rank), "kinds" ({number: name} of those that only other programs record) and "ticks"
        ([lane, ns, rank, whether it was the last] of announcements of tensors), "flows" ([lane, ns,
        lane, ns, name] from where to where), "flows_hidden" and "counters_hidden" (how many more
        there are)."""
        lanes, hidden = self._shown(ranks)
        ticks: list[list[Any]] = []
        for name in tensors:
            lane, own = tensor_lane(self.trace.events, name, self._ticks)
            inside = own[(own["at_ns"] >= window.first_ns) & (own["at_ns"] < window.last_ns)]
            if len(ticks) + len(inside) <= MAX_TICKS:
                ticks += [[len(lanes), *row] for row in inside.to_numpy().tolist()]
            lanes.append(lane)
        more = self.marks.within(window) | {
            "labels": [[lane.rank, lane.label, lane.rows] for lane in lanes],
            "kinds": _FOREIGN,
            "ticks": ticks,
            "counters_hidden": hidden,
            **self._arrows(lanes, window),
        }
        return tile(lanes, window, self.trace, more)

    def _shown(self, ranks: Sequence[int]) -> tuple[list[SwimlaneRow], int]:
        """The lanes of some ranks, or of all, and how many counters more there are."""
        lanes = [lane for lane in self.lanes if not ranks or lane.rank in ranks]
        counters = [lane for lane in lanes if lane.counter is not None]
        hidden = {id(lane) for lane in counters[MAX_COUNTERS:]}
        return [lane for lane in lanes if id(lane) not in hidden], len(hidden)

    def overview(self, pixels: int, ranks: Sequence[int] = ()) -> dict[str, Any]:
        """How busy ranks are, on average, over the whole trace.

        A rank that waits is busy while it does not; of another, its busiest lane counts.

        Returns:
            "ranks": how many; "shares": of each pixel, from 0 to 1.
        """
        by_rank: dict[int, list[SwimlaneRow]] = {}
        for lane in self.lanes:
            if (not ranks or lane.rank in ranks) and lane.counter is None:
                by_rank.setdefault(lane.rank, []).append(lane)
        edges = TileWindow.of(0, self.last_ns, pixels).edges_ns
        shares = np.zeros(len(edges) - 1)
        for own in by_rank.values():
            shares += busy(_counted(own), edges).max(axis=0) / 255
        shares /= max(len(by_rank), 1)
        return {"ranks": len(by_rank), "shares": np.round(shares, 3).tolist()}

    def _arrows(self, lanes: Sequence[SwimlaneRow], window: TileWindow) -> dict[str, Any]:
        """The flows between these lanes, in a window that has few of them."""
        flows = self.trace.flows
        if flows is None or not len(flows):
            return {"flows": [], "flows_hidden": 0}
        lane_of = {thread: index for index, lane in enumerate(lanes) for thread in lane.threads}
        places = [lane_of.get(self._threads.get(place, -1), -1) for place in flows.places]
        lane = np.array(places or [-1])
        source, target = lane[flows.source], lane[flows.target]
        rows = flows.within(window.first_ns, window.last_ns)
        rows = rows[(source[rows] >= 0) & (target[rows] >= 0)]
        if len(rows) > MAX_FLOWS:
            return {"flows": [], "flows_hidden": len(rows)}
        columns = (source, flows.begin_ns, target, flows.end_ns)
        numbers = zip(*(column[rows].tolist() for column in columns), strict=True)
        names = (str(name) for name in flows.name.take(rows))
        return {
            "flows": [[*ends, name] for ends, name in zip(numbers, names, strict=True)],
            "flows_hidden": 0,
        }

    @cached_property
    def _ticks(self) -> pd.DataFrame:
        """See `lateness.ticks_by_rank`; empty where fewer than two ranks have any."""
        if self.trace.others is None:
            return pd.DataFrame()
        ticks = ticks_by_rank(negotiations(self.trace.events), self.trace.others)
        return ticks if ticks.shape[1] > 1 else pd.DataFrame()

    @cached_property
    def _threads(self) -> dict[tuple[int, str, str], int]:
        """The row of `OtherSlices.threads` of a rank, pid and tid."""
        if self.trace.others is None:
            return {}
        places = self.trace.others.threads[["rank", "pid", "tid"]]
        named = places.itertuples(index=False, name=None)
        return {(rank, pid, tid): row for row, (rank, pid, tid) in enumerate(named)}

    def totals(self, window: TileWindow, ranks: Sequence[int] = ()) -> list[dict[str, Any]]:
        """How long each lane is busy in a window: rank, lane, busy_ms, percent, slices."""
        rows = []
        edges = np.array([window.first_ns, window.last_ns])
        for lane in self.lanes:
            if (ranks and lane.rank not in ranks) or lane.counter is not None:
                continue
            low, high = lane.within(window.first_ns, window.last_ns)
            busy = int(lane.covered_ns(edges)[0])
            rows.append(
                {
                    "rank": lane.rank,
                    "lane": lane.label,
                    "busy_ms": busy / 1e6,
                    "percent": 100 * busy / (window.last_ns - window.first_ns),
                    "slices": int((lane.end[low:high] >= window.first_ns).sum()),
                }
            )
        return rows

    def find(self, text: str, number: int) -> dict[str, Any] | None:
        """An operation of a tensor, or slice of another program, with this in its name.

        Args:
            number: which of them, in order of time, round from the last to the first.

        Returns:
            Its name, row, begin_ns and end_ns, its number and how many there are ("count"); None:
            nothing is called so.
        """
        events, others = self.trace.events, self.trace.others
        of_tensors = np.isin(events["kind"].cat.codes.to_numpy(), _COLLECTIVE_CODES)
        own = _rows_called(events, text)
        rows, begin = own[of_tensors[own]], events["begin_ns"].to_numpy()
        at = begin[rows]
        if others is not None:
            theirs = _rows_called(others.rows, text)
            at = np.concatenate((at, others.rows["begin_ns"].to_numpy()[theirs]))
            rows = np.concatenate((rows, -2 - theirs))
        if len(rows) == 0:
            return None
        number %= len(rows)
        row = int(rows[np.argsort(at, kind="stable")[number]])
        event = events.iloc[row] if row >= 0 or others is None else others.rows.iloc[-2 - row]
        return _place(event, row) | {"number": number, "count": len(rows)}

    def describe(self, row: int) -> dict[str, Any]:
        """One slice in words: "title", "lines" ([what, value] each).

        Args:
            row: as `SwimlaneRow.row` has it, not -1.

        Raises:
            IndexError: there is no such row.
        """
        others = self.trace.others
        if row < -1 and others is not None and -2 - row < len(others):
            return _described(others, -2 - row)
        if not 0 <= row < len(self.trace.events):
            raise IndexError(row)
        event = self.trace.events.iloc[row]
        lines = [*_when(event["rank"], event), *(list(line) for line in _more(self.trace, event))]
        name = "" if event["kind"] == "BUCKET" else str(event["name"])
        return {"title": f"{event['kind']} {name}".strip(), "lines": lines}


_FOREIGN = {code: name for code, name in NAMES_OF_KINDS.items() if name in FOREIGN_KINDS}
_COLLECTIVE_CODES = [KIND_NAMES.index(kind) for kind in COLLECTIVES]


def _counted(lanes: Sequence[SwimlaneRow]) -> list[SwimlaneRow]:
    """Those of a rank's lanes that say how busy it is."""
    own = {lane.label: lane for lane in lanes if not lane.threads}
    if own.keys() >= {"busy", "wait"}:
        return [own["busy"]]
    others = [lane for lane in lanes if lane is not own.get("busy")]
    return others or list(lanes)


def _rows_called(events: pd.DataFrame, text: str) -> NDArray[np.intp]:
    """The rows with this in their name, in whatever case."""
    names = events["name"].cat.categories
    wanted = np.flatnonzero([text.lower() in name.lower() for name in names])
    return np.flatnonzero(np.isin(events["name"].cat.codes.to_numpy(), wanted))


def _place(event: pd.Series, row: int) -> dict[str, Any]:
    times = {key: int(event[key]) for key in ("begin_ns", "end_ns")}
    return {"name": str(event["name"]), "row": row, **times}


def _when(rank: int, event: pd.Series) -> Iterator[list[str]]:
    yield ["rank", str(rank)]
    yield ["begins", f"{_lasted(event['begin_ns'])} after the first event"]
    yield ["lasts", _lasted(event["end_ns"] - event["begin_ns"])]


def _lasted(ns: int) -> str:
    """A time to the ns, in a unit of which it is at least one."""
    for size, unit, decimals in ((1_000_000_000, "s", 9), (1_000_000, "ms", 6), (1_000, "us", 3)):
        if ns >= size:
            return f"{ns / size:.{decimals}f} {unit}"
    return f"{ns} ns"


def _size(size_bytes: int) -> str:
    return f"{size_bytes:,} ({sized(size_bytes)})" if size_bytes >= _KIB else f"{size_bytes:,}"


def _described(others: OtherSlices, row: int) -> dict[str, Any]:
    """`Swimlane.describe` for a row of other programs' slices."""
    event, thread = others.rows.iloc[row], others.thread_of(row)
    lines = list(_when(thread["rank"], event))
    places = ("process", thread), ("thread", thread), ("category", event)
    lines += [[what, text] for what, place in places if (text := str(place[what]))]
    if text := others.args(row):
        lines.append(["said", text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} ..."])
    return {"title": str(event["name"]), "lines": lines}


def tensor_lane(
    events: pd.DataFrame, name: str, by_rank: pd.DataFrame
) -> tuple[SwimlaneRow, pd.DataFrame]:
    """The operations of one tensor over all ranks, and when each rank announced each of them.

    Args:
        by_rank: when ranks announced, of a trace that has no announcements of all; see
            `lateness.ticks_by_rank`.

    Returns:
        A lane with, of each operation, a NEGOTIATE slice from the first announcement to the last
        response, and one of the collective from its first begin to its last end; columns at_ns,
        rank, last (whether no rank was later).
    """
    code = int(events["name"].cat.categories.get_indexer(pd.Index([name]))[0])
    rows = np.flatnonzero(events["name"].cat.codes.to_numpy() == (code if code >= 0 else -2))
    own = events.iloc[rows].assign(row=rows, kind=events["kind"].iloc[rows].astype(str))
    asked = own[own["kind"] == "NEGOTIATE"].copy()
    asked["set"] = asked["arg"] // PROCESS_SET_UNIT
    done = own[own["kind"].isin(COLLECTIVES)]
    slices = pd.concat(
        [
            rows.groupby(key, as_index=False).agg(
                begin_ns=("begin_ns", "min"),
                end_ns=("end_ns", "max"),
                kind=("kind", "first"),
                row=("row", "last"),
            )
            for rows, key in ((asked, ["set", "seq"]), (done, ["seq"]))
        ]
    ).sort_values("begin_ns", kind="stable")
    kinds = np.array([KIND_NAMES.index(kind) for kind in slices["kind"]], np.uint8)
    lane = SwimlaneRow(
        -1,
        name,
        slices["begin_ns"].to_numpy(np.int64),
        slices["end_ns"].to_numpy(np.int64),
        kinds,
        slices["row"].to_numpy(np.int32),
    )
    if len(by_rank) and asked["rank"].nunique() < 2:
        return lane, _announcements_of_ticks(by_rank, name)
    last = asked["begin_ns"] == asked.groupby(["set", "seq"])["begin_ns"].transform("max")
    return lane, pd.DataFrame({"at_ns": asked["begin_ns"], "rank": asked["rank"], "last": last})


def _announcements_of_ticks(by_rank: pd.DataFrame, name: str) -> pd.DataFrame:
    own = by_rank[by_rank.index.get_level_values("tensor") == name]
    at_ns = own.to_numpy(np.int64)
    last = at_ns == at_ns.max(axis=1, keepdims=True, initial=0)
    ranks = np.tile(own.columns.to_numpy(np.int64), len(own))
    return pd.DataFrame({"at_ns": at_ns.ravel(), "rank": ranks, "last": last.ravel()})


def _more(trace: Trace, event: pd.Series) -> Iterator[tuple[str, str]]:
    """Explain the kind of event."""
    kind, events = event["kind"], trace.events
    if kind in COLLECTIVES:
        yield "bytes", _size(event["arg"])
        yield "bucket", str(event["bucket"])
    elif kind == "BUCKET":
        yield "bytes", _size(event["arg"])
        yield "closed because", str(event["name"]) or "not recorded"
        same = (events["bucket"] == event["bucket"]) & (events["rank"] == event["rank"])
        inside = events.loc[same & events["kind"].isin(COLLECTIVES), "name"].astype(str)
        more = f" and {len(inside) - MOST_NAMES} more" if len(inside) > MOST_NAMES else ""
        yield f"{event['seq']} tensors", ", ".join(inside.iloc[:MOST_NAMES]) + more
    elif kind == "NEGOTIATE":
        hit = event["arg"] % PROCESS_SET_UNIT
        yield "response cache", "hit" if hit else "miss, sent in full"
        yield from _announced(events, event)
    elif kind == "STEP":
        yield "step", str(event["seq"])
        yield "on a processor", f"{event['arg'] / 1e3:,.3f} ms"
    elif kind in ("PACK", "REDUCE", "EXCHANGE", "UNPACK", "WAIT"):
        yield "bytes", _size(event["arg"])
        yield "bucket", str(event["bucket"])


def _announced(events: pd.DataFrame, event: pd.Series) -> Iterator[tuple[str, str]]:
    same = (events["name"] == event["name"]) & (events["seq"] == event["seq"])
    rows = events[same & (events["kind"] == "NEGOTIATE")]
    rows = rows[rows["arg"] // PROCESS_SET_UNIT == event["arg"] // PROCESS_SET_UNIT]
    if len(rows) < 2:
        return
    first, last = rows.iloc[0], rows.iloc[-1]  # events are in order of begin
    late = _lasted(last["begin_ns"] - first["begin_ns"])
    yield "announced first", f"rank {first['rank']}"
    yield "announced last", f"rank {last['rank']}, {late} later"
