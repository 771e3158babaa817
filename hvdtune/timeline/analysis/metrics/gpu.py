"""What GPUs do, as torch.profiler records it: kernels, communication, copies, and nothing."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from hvdtune.plural import counted
from hvdtune.timeline.model.intervals import covered_ns, union
from hvdtune.timeline.model.other_slices import OtherSlices
from hvdtune.timeline.model.schema import COLLECTIVES, Ints
from hvdtune.timeline.model.trace import Trace

TITLE = "GPUs"
MOST_KERNELS = 15
_COPIES = ("gpu_memcpy", "gpu_memset")
_Spans = tuple[Ints, Ints]


def table(trace: Trace) -> pd.DataFrame:
    """One row per rank whose GPU was recorded, the idlest first.

    Looked at is the time from the begin of a rank's first recorded step to the end of its last, or
    where there are none that of its GPU's own slices. Times of several streams are united.

    Returns:
        Columns rank, window_ms, kernels_percent (kernels that compute run), communication_percent
        (kernels of NCCL's run), exposed_percent (they run and no other kernel does),
        copies_percent (copies run), idle_percent (nothing runs).
    """
    rows = []
    for rank, kernels, communication, copies in _of_ranks(trace):
        first, last = _window(trace, rank, (kernels, communication, copies))
        length = last - first
        kernels, communication, copies = (
            _clipped(spans, first, last) for spans in (kernels, communication, copies)
        )
        computing = covered_ns(*kernels)
        both = covered_ns(*_joined(kernels, communication))
        everything = covered_ns(*_joined(kernels, communication, copies))
        parts = {
            "kernels_percent": computing,
            "communication_percent": covered_ns(*communication),
            "exposed_percent": both - computing,
            "copies_percent": covered_ns(*copies),
            "idle_percent": length - everything,
        }
        shares = {name: 100 * value / length for name, value in parts.items()}
        rows.append({"rank": rank, "window_ms": length / 1e6, **shares})
    columns = ["rank", "window_ms"] + [
        f"{part}_percent" for part in ("kernels", "communication", "exposed", "copies", "idle")
    ]
    found = pd.DataFrame(rows, columns=columns)
    return found.sort_values("idle_percent", ascending=False, ignore_index=True)


def kernels(trace: Trace) -> pd.DataFrame:
    """The kernels on which GPUs spend most time, of all ranks.

    Returns:
        Columns kernel, count, total_ms, median_ms, percent (of the time of all kernels and copies,
        each counted by itself).
    """
    parts = [
        others.rows.iloc[rows].assign(name=others.rows["name"].iloc[rows].astype(str))
        for others, rows in _device_rows(trace)
    ]
    if not parts:
        columns = ["kernel", "count", "total_ms", "median_ms", "percent"]
        return pd.DataFrame(columns=columns)
    rows = parts[0]
    lasted = (rows["end_ns"] - rows["begin_ns"]) / 1e6
    by = lasted.groupby(rows["name"])
    found = by.agg(["size", "sum", "median"]).sort_values("sum", ascending=False)
    found = found.set_axis(["count", "total_ms", "median_ms"], axis=1).rename_axis("kernel")
    found["percent"] = 100 * found["total_ms"] / max(found["total_ms"].sum(), 1e-9)
    return found.head(MOST_KERNELS).reset_index()


def sentence(table: pd.DataFrame) -> str:
    """The GPU that is idle most, and what the others are."""
    if table.empty:
        return "This trace records no GPU."
    worst = table.iloc[0]
    of = f"of rank {worst['rank']:.0f} " if len(table) > 1 else ""
    recorded = f"The trace has {counted(len(table), 'rank')} with a GPU. " if len(table) > 1 else ""
    text = (
        f"{recorded}The GPU {of}is idle in {worst['idle_percent']:.0f} % of "
        f"{worst['window_ms']:,.1f} ms, computes in {worst['kernels_percent']:.0f} % and copies in "
        f"{worst['copies_percent']:.0f} %."
    )
    if table["communication_percent"].any():
        shown = table.sort_values("exposed_percent").iloc[-1]
        text += (
            f" NCCL's kernels run in {shown['communication_percent']:.0f} % of the time of rank "
            f"{shown['rank']:.0f}, in {shown['exposed_percent']:.0f} % with no other kernel."
        )
    return text


@dataclass(frozen=True)
class DeviceSpans:
    """When a rank's GPU runs kernels that compute, kernels that communicate, and copies: begins and
    ends in ns, which may overlap."""

    computing: _Spans
    sending: _Spans
    copying: _Spans

    @property
    def busy(self) -> _Spans:
        """When it runs any of them."""
        parts = (self.computing, self.sending, self.copying)
        return np.concatenate([begin for begin, _ in parts]), np.concatenate(
            [end for _, end in parts]
        )


def spans_of_all(trace: Trace, ranks: Collection[int]) -> dict[int, DeviceSpans] | None:
    """By rank; None unless the GPU of each of these was recorded."""
    spans = {rank: DeviceSpans(*own) for rank, *own in _of_ranks(trace)}
    return spans if set(ranks) <= spans.keys() else None


def _device_rows(trace: Trace) -> Iterator[tuple[OtherSlices, np.ndarray]]:
    """The slices of devices, if there are any."""
    others = trace.others
    if others is None:
        return
    category = others.rows["category"]
    wanted = [text in ("kernel", *_COPIES) for text in category.cat.categories]
    rows = np.flatnonzero(np.array([*wanted, False])[category.cat.codes.to_numpy()])
    if len(rows):
        yield others, rows


def _of_ranks(trace: Trace) -> Iterator[tuple[int, _Spans, _Spans, _Spans]]:
    """Of each rank: kernels that compute, kernels that communicate, copies."""
    events = trace.events
    collective = events["kind"].isin(COLLECTIVES).to_numpy()
    for others, rows in _device_rows(trace):
        thread = np.searchsorted(others.starts, rows, side="right") - 1
        rank = others.threads["rank"].to_numpy()[thread]
        own = others.rows.iloc[rows]
        copy = own["category"].isin(_COPIES).to_numpy()
        names = own["name"].cat
        by_nccl = np.array([text.startswith("nccl") for text in names.categories])
        nccl = by_nccl[names.codes.to_numpy()] & ~copy
        begin, end = own["begin_ns"].to_numpy(), own["end_ns"].to_numpy()
        for number in np.unique(rank).tolist():
            mine = rank == number
            of_nccl = "nccl" in str(trace.ranks.get(number, {}).get("backend", "nccl"))
            told = events[collective & (events["rank"] == number).to_numpy() & of_nccl]
            sent = (told["begin_ns"].to_numpy(), told["end_ns"].to_numpy())
            computing, sending, copying = (
                (begin[mine & which], end[mine & which]) for which in (~nccl & ~copy, nccl, copy)
            )
            yield number, computing, _joined(sending, sent), copying


def _window(trace: Trace, rank: int, spans: tuple[_Spans, ...]) -> tuple[int, int]:
    events = trace.events
    steps = events[(events["kind"] == "STEP") & (events["rank"] == rank)]
    if len(steps):
        return int(steps["begin_ns"].min()), max(int(steps["end_ns"].max()), 1)
    begin, end = _joined(*spans)
    return int(begin.min()), max(int(end.max()), int(begin.min()) + 1)


def _joined(*spans: _Spans) -> _Spans:
    return union(*(np.concatenate([each[k] for each in spans]) for k in (0, 1)))


def _clipped(spans: _Spans, first: int, last: int) -> _Spans:
    begin, end = (np.clip(times, first, last) for times in spans)
    return begin[end > begin], end[end > begin]
