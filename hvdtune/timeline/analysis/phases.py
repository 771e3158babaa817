"""Where the time of a trace went, per rank and in all."""

from typing import Any

import numpy as np
import pandas as pd

from hvdtune.timeline.analysis import device_spans
from hvdtune.timeline.analysis.arrivals import arrivals_of
from hvdtune.timeline.analysis.metrics import breakdown
from hvdtune.timeline.analysis.recorded import as_recorded
from hvdtune.timeline.analysis.steps import found_steps
from hvdtune.timeline.model.intervals import covered_ns, covered_within
from hvdtune.timeline.model.trace import Trace

# Phases may overlap one another: their times do not add up to anything.
PHASES: dict[str, tuple[str, ...]] = {
    "negotiate": ("NEGOTIATE",),
    "queue": ("QUEUE",),
    "communicate": ("BUCKET",),
    "pack": ("PACK",),
    "reduce": ("REDUCE",),
    "exchange": ("EXCHANGE",),
    "unpack": ("UNPACK",),
    "wait": ("WAIT",),
}

_STEP_COLUMNS = ("rank", "step", "begin_ns", "end_ns", "step_ms", "communicate_ms")


def phase_table(trace: Trace) -> pd.DataFrame:
    """How long each rank was in each phase; phases overlap, so percentages do not add up to 100.

    Returns:
        Columns rank, phase, busy_ms (time covered by at least one span of the phase), percent (of
        the time the rank recorded), spans.
    """
    rows = []
    for rank, events in breakdown.of_each_rank(trace.events):
        recorded = int(events["end_ns"].max() - events["begin_ns"].min())
        for phase, kinds in PHASES.items():
            spans = events[events["kind"].isin(kinds)]
            busy = covered_ns(spans["begin_ns"].to_numpy(), spans["end_ns"].to_numpy())
            percent = 100 * busy / recorded if recorded else 0.0
            rows.append((rank, phase, busy / 1e6, percent, len(spans)))
    return pd.DataFrame(rows, columns=["rank", "phase", "busy_ms", "percent", "spans"])


def step_table(trace: Trace) -> pd.DataFrame:
    """One row per step and rank, with the time in it that communication covers.

    Returns:
        Columns rank, step, begin_ns, end_ns, step_ms, communicate_ms (buckets, clipped to the
        step; NaN where the trace does not tell it). How much of that the step waited for cannot be
        told from a trace alone.
    """
    gpus = device_spans.of_all(trace)
    parts = []
    for rank, own in breakdown.of_each_rank(trace.events):
        gpu = gpus.get(rank) if gpus else None
        marked, begin, end = breakdown.steps_of(own, gpu)
        bucket = breakdown.under_way(own, gpu)
        columns = {
            "rank": np.full(len(marked), rank, np.int64),
            "step": marked["seq"].to_numpy(),
            "begin_ns": begin,
            "end_ns": end,
            "step_ms": (end - begin) / 1e6,
            "communicate_ms": covered_within(*bucket, begin, end) / 1e6,
        }
        parts.append(pd.DataFrame(columns))
    if not parts:
        return pd.DataFrame({name: np.empty(0) for name in _STEP_COLUMNS})
    return as_recorded(trace, pd.concat(parts, ignore_index=True))


def summary(trace: Trace) -> dict[str, Any]:
    """The trace in a few numbers.

    Returns:
        ranks, events, dropped (records lost), duration_ms, clock_residual_us (the largest of all
        ranks), steps; where there are steps: step_ms_p50, step_ms_p5, step_ms_p95 (of the slowest
        rank in each step, `steps` samples) and, where it is known, communicate_percent (share of
        step time in which a bucket was under way, all ranks).
    """
    events = trace.events
    result: dict[str, Any] = {
        "ranks": int(events["rank"].nunique()),
        "events": len(events),
        "dropped": sum(trace.meta.get("dropped", {}).values()),
        "duration_ms": float(events["end_ns"].max() - events["begin_ns"].min()) / 1e6
        if len(events)
        else 0.0,
        "clock_residual_us": max(
            (fit.get("residual_us", 0.0) for fit in trace.meta.get("clock", {}).values()),
            default=0.0,
        ),
    }
    arrivals = arrivals_of(trace)
    steps = step_table(trace) if arrivals is None or arrivals.has_marks else found_steps(arrivals)
    slowest = steps.groupby("step")["step_ms"].max()
    result["steps"] = len(slowest)
    if len(slowest):
        for percent in (5, 50, 95):
            result[f"step_ms_p{percent}"] = float(slowest.quantile(percent / 100))
    if len(slowest) and not steps["communicate_ms"].isna().any():
        total = float(steps["step_ms"].sum())
        share = float(steps["communicate_ms"].sum()) / total if total else 0.0
        result["communicate_percent"] = 100 * share
    return result
