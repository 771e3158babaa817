"""What the timeline draws: a bounded stretch of a trace as rows, bars and ticks."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from hvdtune.dashboard.data import Run, ranks_of
from hvdtune.timeline import lateness
from hvdtune.timeline.lateness import COLLECTIVE_KEY
from hvdtune.timeline.schema import COLLECTIVES, PROCESS_SET_UNIT

MAX_BARS = 4_000
MAX_WINDOWS = 5
INNER_PHASES = ("PACK", "REDUCE", "EXCHANGE", "UNPACK", "WAIT")
_TENSOR_SPANS = ("NEGOTIATE", "QUEUE", *COLLECTIVES)
_INSTANTS = ("CYCLE", "KNOB_ADOPTED")
_BAR_COLUMNS = ["row", "phase", "begin_ms", "duration_ms", "what", "detail"]
_TICK_COLUMNS = ["row", "kind", "at_ms", "what", "detail"]


@dataclass(frozen=True)
class View:
    """What was asked for. Empty `tensors` or `ranks` mean all; `page` counts from 0."""

    window: int = 0
    count: int = 1
    tensors: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    page: int = 0


@dataclass(frozen=True)
class Drawing:
    """Rows top to bottom and what lies in them; times are ms since the trace's first event.

    bars: row, phase, begin_ms, duration_ms, what, detail. ticks: row, kind (announced | last |
    cycle | setting), at_ms, what, detail. marks: (at_ms, label) of each window's begin.
    """

    rows: list[str] = field(default_factory=list)
    bars: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=_BAR_COLUMNS))
    ticks: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=_TICK_COLUMNS))
    marks: list[tuple[float, str]] = field(default_factory=list)
    span_ms: tuple[float, float] = (0.0, 1.0)
    pages: int = 1
    note: str = "This trace holds no events."


@dataclass(frozen=True)
class _Pieces:
    """The events of the window by the role they are drawn in."""

    lanes: pd.DataFrame
    inner: pd.DataFrame
    tensors: pd.DataFrame
    instants: pd.DataFrame


def draw_window(run: Run, view: View, max_bars: int = MAX_BARS) -> Drawing:
    """Lay out one view of a run in at most `max_bars` bars; the note says what was left out."""
    if run.windows.empty:
        return Drawing()
    windows = _chosen_windows(run, view)
    begin_ns, end_ns = int(windows["begin_ns"].iloc[0]), int(windows["end_ns"].iloc[-1])
    pieces = _cut(run, view, begin_ns, end_ns)
    ranks = [rank for rank in ranks_of(run.trace) if not view.ranks or rank in view.ranks]
    notes: list[str] = []
    lanes = _longest(pieces.lanes, max_bars // 4, "buckets", notes)
    inner = _longest(pieces.inner, max_bars // 4, "phases inside buckets", notes)
    instants = _thinned(pieces.instants, max_bars // 4, notes)
    room = max_bars - len(inner) - len(lanes)
    names, pages, page = _page(pieces.tensors, view.page, room)
    spans = pieces.tensors[pieces.tensors["name"].isin(names)]
    spans = _longest(spans, room, "spans of this tensor", notes)
    nested = _nest(inner, spans)
    if len(lanes) + len(inner) + len(spans) + len(nested) > max_bars:
        notes.append(
            f"The phases inside buckets are drawn once per rank in the bucket rows; repeating them "
            f"in every tensor's row would take {len(nested):,} more bars (filter to see them there)"
        )
        nested = nested.iloc[:0]
    spans = spans.assign(process_set=_process_sets(spans))
    late = lateness(run.trace, spans["seq"].unique()).astype({"name": object})
    rows = _Rows(names, ranks, lanes=not lanes.empty)
    bars = pd.concat(
        [_lane_bars(lanes, inner, rows), _tensor_bars(spans, nested, late, rows)],
        ignore_index=True,
    )
    if pages > 1:
        notes.append(f"Page {page + 1} of {pages}: {len(names):,} tensors of this window")
    return Drawing(
        rows=rows.labels,
        bars=bars,
        ticks=_ticks(spans, instants, late, rows),
        marks=[
            (b / 1e6, label) for b, label in zip(windows["begin_ns"], windows["label"], strict=True)
        ],
        span_ms=(begin_ns / 1e6, end_ns / 1e6),
        pages=pages,
        note=_note(windows, pieces, ranks, notes),
    )


class _Rows:
    """Row numbers: steps and buckets per rank on top, then each tensor's ranks."""

    def __init__(self, tensors: list[str], ranks: list[int], *, lanes: bool) -> None:
        keys = [(lane, rank) for lane in ("STEP", "BUCKET") for rank in ranks] if lanes else []
        keys += [(f"tensor {name}", rank) for name in tensors for rank in ranks]
        self._index = {key: number for number, key in enumerate(keys)}
        self.labels = [f"{_shorten(self._text(key))}  r{rank}" for key, rank in keys]

    def of(self, keys: pd.Series, ranks: pd.Series) -> list[int]:
        """Row of each (key, rank); -1 for one without a row."""
        return [self._index.get(pair, -1) for pair in zip(keys, ranks, strict=True)]

    @staticmethod
    def _text(key: str) -> str:
        return {"STEP": "steps", "BUCKET": "buckets"}.get(key, key.removeprefix("tensor "))


def _shorten(name: str, limit: int = 34) -> str:
    return name if len(name) <= limit else f"{name[:12]}...{name[-(limit - 15) :]}"


def _chosen_windows(run: Run, view: View) -> pd.DataFrame:
    first = min(max(view.window, 0), len(run.windows) - 1)
    return run.windows.iloc[first : first + min(max(view.count, 1), MAX_WINDOWS)]


def _cut(run: Run, view: View, begin_ns: int, end_ns: int) -> _Pieces:
    events = run.trace.events
    inside = (events["begin_ns"] < end_ns) & (events["end_ns"] >= begin_ns)
    # An instant or span that ends exactly where the window begins belongs to the window before.
    inside &= (events["end_ns"] > begin_ns) | (events["begin_ns"] >= begin_ns)
    if view.ranks:
        inside &= events["rank"].isin(view.ranks)
    chosen = events[inside].astype({"kind": object, "name": object})
    tensors = chosen[chosen["kind"].isin(_TENSOR_SPANS)]
    buckets = chosen["kind"] == "BUCKET"
    inner = chosen["kind"].isin(INNER_PHASES)
    if view.tensors:
        tensors = tensors[tensors["name"].isin(view.tensors)]
        wanted = pd.MultiIndex.from_frame(tensors[["rank", "bucket"]])
        of_wanted = pd.MultiIndex.from_frame(chosen[["rank", "bucket"]]).isin(wanted)
        buckets, inner = buckets & of_wanted, inner & of_wanted
    # Rows follow the window's own announcements; what reaches in from before has no say.
    tensors = tensors.assign(before=tensors["begin_ns"] < begin_ns)
    tensors = tensors.sort_values(["before", "begin_ns"]).drop(columns="before")
    return _Pieces(
        lanes=chosen[(chosen["kind"] == "STEP") | buckets],
        inner=chosen[inner],
        tensors=tensors,
        instants=chosen[chosen["kind"].isin(_INSTANTS)],
    )


def _longest(spans: pd.DataFrame, limit: int, noun: str, notes: list[str]) -> pd.DataFrame:
    if len(spans) <= limit:
        return spans
    lengths = spans["end_ns"] - spans["begin_ns"]
    kept = lengths.nlargest(limit)
    notes.append(
        f"The {len(spans) - limit:,} shortest {noun}, none longer than "
        f"{kept.iloc[-1] / 1e3:,.1f} us, are left out"
    )
    return spans.loc[kept.index].sort_values("begin_ns")


def _thinned(instants: pd.DataFrame, limit: int, notes: list[str]) -> pd.DataFrame:
    cycles = instants[instants["kind"] == "CYCLE"]
    if len(cycles) <= limit:
        return instants
    every = -(-len(cycles) // limit)
    notes.append(f"Of {len(cycles):,} cycle marks 1 in {every} is drawn")
    return pd.concat([cycles.iloc[::every], instants[instants["kind"] != "CYCLE"]])


def _page(spans: pd.DataFrame, page: int, budget: int) -> tuple[list[str], int, int]:
    """Tensors of one page so that its bars fit the budget: (names, pages, page shown)."""
    counts = spans.groupby("name", sort=False).size()
    if counts.empty:
        return [], 1, 0
    page_of = np.zeros(len(counts), dtype=int)
    filled = 0
    for position, count in enumerate(counts):
        filled += count
        fresh_page = position > 0 and filled > max(budget, 1)
        page_of[position] = page_of[position - 1] + fresh_page if position else 0
        if fresh_page:
            filled = count
    pages = int(page_of[-1]) + 1
    shown = min(max(page, 0), pages - 1)
    return [str(name) for name in counts.index[page_of == shown]], pages, shown


def _nest(inner: pd.DataFrame, spans: pd.DataFrame) -> pd.DataFrame:
    """Each tensor's share of its bucket's inner phases: the same spans, in the tensor's row."""
    carried = spans.loc[
        spans["kind"].isin(COLLECTIVES), ["rank", "bucket", "name", "begin_ns", "end_ns"]
    ]
    joined = inner.drop(columns="name").merge(
        carried, on=["rank", "bucket"], suffixes=("", "_tensor")
    )
    during = (joined["begin_ns"] >= joined["begin_ns_tensor"]) & (
        joined["end_ns"] <= joined["end_ns_tensor"]
    )
    return joined[during]


def _process_sets(spans: pd.DataFrame) -> pd.Series:
    """Only announcements say which process set they are of; 0 stands for the others."""
    announced = spans["kind"] == "NEGOTIATE"
    return (spans["arg"] // PROCESS_SET_UNIT).where(announced, 0).astype("int64")


def _lane_bars(lanes: pd.DataFrame, inner: pd.DataFrame, rows: _Rows) -> pd.DataFrame:
    steps = lanes[lanes["kind"] == "STEP"]
    buckets = lanes[lanes["kind"] == "BUCKET"]
    reasons = [f" - closed: {reason}" if reason else "" for reason in buckets["name"]]
    parts = [
        _bars(
            steps,
            rows.of(steps["kind"], steps["rank"]),
            [
                f"step {seq}, rank {rank}"
                for seq, rank in zip(steps["seq"], steps["rank"], strict=True)
            ],
            [""] * len(steps),
        ),
        _bars(
            buckets,
            rows.of(buckets["kind"], buckets["rank"]),
            _bucket_names(buckets),
            [
                f"{seq} tensors, {format_bytes(size)}{why}"
                for seq, size, why in zip(buckets["seq"], buckets["arg"], reasons, strict=True)
            ],
        ),
        _bars(
            inner,
            rows.of(pd.Series("BUCKET", inner.index), inner["rank"]),
            _bucket_names(inner),
            [format_bytes(size) for size in inner["arg"]],
        ),
    ]
    return pd.concat(parts, ignore_index=True)


def _tensor_bars(
    spans: pd.DataFrame, nested: pd.DataFrame, late: pd.DataFrame, rows: _Rows
) -> pd.DataFrame:
    spans = spans.merge(late, on=list(COLLECTIVE_KEY), how="left")
    details = [_detail(span) for span in spans.itertuples()]
    return pd.concat(
        [
            _bars(spans, _tensor_rows(spans, rows), _tensor_titles(spans), details),
            _bars(
                nested,
                _tensor_rows(nested, rows),
                _tensor_titles(nested),
                [
                    f"{format_bytes(size)} of bucket {bucket}"
                    for size, bucket in zip(nested["arg"], nested["bucket"], strict=True)
                ],
            ),
        ],
        ignore_index=True,
    )


def _detail(span: Any) -> str:
    if span.kind in COLLECTIVES:
        return f"{span.kind.lower()}, {format_bytes(span.arg)}, bucket {span.bucket}"
    if span.kind == "QUEUE":
        return f"answered, waiting for bucket {span.bucket} to start"
    known = (
        "known from the response cache"
        if span.arg % PROCESS_SET_UNIT
        else "not in the response cache"
    )
    where = f"; process set {span.process_set}" if span.process_set else ""
    return f"{known}{where}{_late_text(span.last_rank, span.late_ns)}"


def _late_text(last_rank: float, late_ns: float) -> str:
    if np.isnan(late_ns):
        return ""
    if last_rank < 0:
        return f"; {late_ns / 1e6:,.3f} ms from first to last, less than the clocks can tell apart"
    return f"; rank {int(last_rank)} announced last, {late_ns / 1e6:,.3f} ms after the first"


def _ticks(
    spans: pd.DataFrame, instants: pd.DataFrame, late: pd.DataFrame, rows: _Rows
) -> pd.DataFrame:
    announced = spans[spans["kind"] == "NEGOTIATE"].merge(late, on=list(COLLECTIVE_KEY), how="left")
    is_last = (announced["rank"] == announced["last_rank"]) & (announced["late_ns"] > 0)
    announcements = pd.DataFrame(
        {
            "row": _tensor_rows(announced, rows),
            "kind": np.where(is_last, "last", "announced"),
            "at_ms": announced["begin_ns"] / 1e6,
            "what": [f"announced: {title}" for title in _tensor_titles(announced)],
            "detail": [
                _late_text(rank, ns).removeprefix("; ")
                for rank, ns in zip(announced["last_rank"], announced["late_ns"], strict=True)
            ],
        }
    )
    cycles = instants["kind"] == "CYCLE"
    others = pd.DataFrame(
        {
            "row": rows.of(pd.Series(np.where(cycles, "BUCKET", "STEP")), instants["rank"]),
            "kind": np.where(cycles, "cycle", "setting"),
            "at_ms": instants["begin_ns"].to_numpy() / 1e6,
            "what": [_instant_title(event) for event in instants.itertuples()],
            "detail": [_instant_detail(event) for event in instants.itertuples()],
        }
    )
    both = pd.concat([announcements, others], ignore_index=True)
    return both[both["row"] >= 0].reset_index(drop=True)


def _instant_title(event: Any) -> str:
    if event.kind == "CYCLE":
        return f"cycle {event.seq}, rank {event.rank}"
    return f"setting {event.arg} adopted, rank {event.rank}"


def _instant_detail(event: Any) -> str:
    if event.kind == "CYCLE":
        return f"{event.arg} tensors, {format_bytes(event.bucket)}"
    return str(event.name)


def _bars(
    events: pd.DataFrame, rows: list[int], titles: list[str], details: list[str]
) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "row": pd.Series(rows, dtype="int64"),
            "phase": ["COMMUNICATE" if kind in COLLECTIVES else kind for kind in events["kind"]],
            "begin_ms": events["begin_ns"].to_numpy() / 1e6,
            "duration_ms": (events["end_ns"] - events["begin_ns"]).to_numpy() / 1e6,
            "what": titles,
            "detail": details,
        }
    )
    return frame[frame["row"] >= 0]


def _tensor_rows(events: pd.DataFrame, rows: _Rows) -> list[int]:
    return rows.of("tensor " + events["name"].astype(str), events["rank"])


def _tensor_titles(events: pd.DataFrame) -> list[str]:
    return [
        f"{name}, rank {rank}" for name, rank in zip(events["name"], events["rank"], strict=True)
    ]


def _bucket_names(events: pd.DataFrame) -> list[str]:
    return [
        f"bucket {bucket}, rank {rank}"
        for bucket, rank in zip(events["bucket"], events["rank"], strict=True)
    ]


def _note(windows: pd.DataFrame, pieces: _Pieces, ranks: list[int], left_out: list[str]) -> str:
    labels = list(windows["label"])
    where = labels[0] if len(labels) == 1 else f"{labels[0]} to {labels[-1]}"
    events = sum(map(len, (pieces.lanes, pieces.inner, pieces.tensors, pieces.instants)))
    if not events:
        return f"{where[:1].upper()}{where[1:]}: no events."
    tensors = pieces.tensors["name"].nunique()
    start = f"{where[:1].upper()}{where[1:]}: {events:,} events"
    scope = f"{_count(tensors, 'tensor')} on {_count(len(ranks), 'rank')}"
    end = "all of them are drawn." if not left_out else ". ".join(left_out) + "."
    return f"{start} of {scope}{', ' if not left_out else '. '}{end}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_bytes(size: float) -> str:
    """A size in the unit that keeps it readable, binary multiples."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1024
    return f"{size:,.2f} GiB"
