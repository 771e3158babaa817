"""What GPUs do, as torch.profiler records it: kernels, communication, copies, and nothing."""

import numpy as np
import pandas as pd

from hvdtune.plural import counted
from hvdtune.timeline.analysis import device_spans
from hvdtune.timeline.analysis.device_spans import DeviceSpans
from hvdtune.timeline.model.intervals import covered_within, joined
from hvdtune.timeline.model.schema import Spans
from hvdtune.timeline.model.trace import Trace

TITLE = "GPUs"
MOST_KERNELS = 15


def table(trace: Trace, steps: pd.DataFrame) -> pd.DataFrame:
    """One row per rank whose GPU was recorded, the idlest first.

    Args:
        trace: as read.
        steps: `breakdown.steady_steps` of it. Where it has none, all marked steps are looked at, or
            the time from the begin of the first thing that a GPU ran to the end of the last.

    Returns:
        Columns rank, window_ms, and shares of that in which at least one stream runs such a thing:
        kernels_percent (kernels that compute), communication_percent (kernels of NCCL's),
        alone_percent (they, and no kernel that computes), copies_percent, idle_percent (nothing).
    """
    rows = []
    for rank, spans in device_spans.by_rank(trace).items():
        windows = _windows(trace, steps, rank, spans)
        length = int((windows[1] - windows[0]).sum())

        def covered(*parts: Spans, windows: Spans = windows) -> int:
            return int(covered_within(*joined(*parts), *windows).sum())

        computing = covered(spans.computing)
        parts = {
            "kernels_percent": computing,
            "communication_percent": covered(spans.sending),
            "alone_percent": covered(spans.computing, spans.sending) - computing,
            "copies_percent": covered(spans.copying),
            "idle_percent": length - covered(spans.busy),
        }
        shares = {name: 100 * value / length for name, value in parts.items()}
        rows.append({"rank": rank, "window_ms": length / 1e6, **shares})
    columns = ["rank", "window_ms"] + [
        f"{part}_percent" for part in ("kernels", "communication", "alone", "copies", "idle")
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
        for others, rows in device_spans.device_rows(trace)
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
        shown = table.sort_values("alone_percent").iloc[-1]
        text += (
            f" NCCL's kernels run in {shown['communication_percent']:.0f} % of the time of rank "
            f"{shown['rank']:.0f}, in {shown['alone_percent']:.0f} % with no other kernel."
        )
    return text


def _windows(trace: Trace, steps: pd.DataFrame, rank: int, spans: DeviceSpans) -> Spans:
    """Begins and ends of a rank's steps, or where it has none of what its GPU ran."""
    marked = trace.events[trace.events["kind"] == "STEP"]
    for rows in (steps, marked):
        own = rows[rows["rank"] == rank]
        if len(own):
            return own["begin_ns"].to_numpy(), own["end_ns"].to_numpy()
    begin, end = spans.busy
    first = begin.min()
    return np.array([first]), np.array([max(end.max(), first + 1)])
