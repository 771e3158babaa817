"""Where the time of a trace went, per tensor, per rank and in all."""

from typing import Any

import numpy as np
import pandas as pd

from hvdtune.timeline.model.intervals import covered_ns, covered_within
from hvdtune.timeline.model.lateness import lateness
from hvdtune.timeline.model.schema import COLLECTIVES
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

_TENSOR_PHASES = {"negotiate": ("NEGOTIATE",), "queue": ("QUEUE",), "communicate": COLLECTIVES}


def tensor_table(trace: Trace) -> pd.DataFrame:
    """One row per tensor, over all ranks and occurrences; the longest communication first.

    Times are durations of single occurrences. A bucket's tensors share its time, so communicate
    is the time of the bucket, and sums over tensors mean nothing.

    Returns:
        Columns tensor, dtype (and shape, "" where it is not recorded), operation and bytes (of the
        last occurrence), count (occurrences on the rank with most), {negotiate,queue,communicate,
        done}_{p50,p95}_us (done: from a rank's announcement to its end), bucket_bytes (median, of
        the buckets it travels in; NaN where they are not recorded), last_rank (the rank that was
        last most often, -1 where unknown), last_rank_percent (how often it was), late_p95_us (how
        far the last rank was behind the first), late_ms (the sum of that).
    """
    # By numbers: pandas cannot always join groups of many categories with others.
    texts = trace.events["name"].cat.categories
    events = trace.events.assign(name=trace.events["name"].cat.codes)
    done = events[events["kind"].isin(COLLECTIVES)]
    by_tensor = done.groupby("name")
    table = pd.DataFrame(
        {
            "operation": by_tensor["kind"].last().astype("str"),
            "bytes": by_tensor["arg"].last(),
            "count": done.groupby(["name", "rank"]).size().groupby("name").max(),
        }
    )
    for phase, kinds in _TENSOR_PHASES.items():
        spans = events[events["kind"].isin(kinds)]
        lasted = (spans["end_ns"] - spans["begin_ns"]) / 1000
        by_name = lasted.groupby(spans["name"])
        for percent in (50, 95):
            table[f"{phase}_p{percent}_us"] = by_name.quantile(percent / 100)
    table = table.join(_from_announcement(events, done))
    table = table.join(_who_is_late(trace), how="left")
    table["last_rank"] = table["last_rank"].fillna(-1).astype("int64")
    table = table.sort_values("communicate_p50_us", ascending=False, kind="stable")
    table = table.rename_axis("tensor").reset_index()
    names = texts.take(table["tensor"].to_numpy()).astype("str")
    shapes = trace.meta.get("shapes", {})
    return table.assign(tensor=names, dtype=[str(shapes.get(name, "")) for name in names])


def _from_announcement(events: pd.DataFrame, done: pd.DataFrame) -> pd.DataFrame:
    """For each tensor, the times from announcements to ends, and the bytes of its buckets."""
    key = ["rank", "name", "seq"]
    asked = events.loc[events["kind"] == "NEGOTIATE", [*key, "begin_ns"]]
    both = done[[*key, "end_ns"]].merge(asked.drop_duplicates(key), on=key)
    lasted = ((both["end_ns"] - both["begin_ns"]) / 1000).groupby(both["name"])
    place = ["rank", "bucket"]
    buckets = events.loc[events["kind"] == "BUCKET", [*place, "arg"]].drop_duplicates(place)
    in_bucket = done[["name", *place]].merge(buckets, on=place)
    return pd.DataFrame(
        {
            "done_p50_us": lasted.quantile(0.5),
            "done_p95_us": lasted.quantile(0.95),
            "bucket_bytes": in_bucket["arg"].groupby(in_bucket["name"]).median(),
        }
    )


def _who_is_late(trace: Trace) -> pd.DataFrame:
    found = lateness(trace)
    names = found["name"].astype(trace.events["name"].dtype)
    late = found.assign(name=names.cat.codes)
    late_us = (late["late_ns"] / 1000).groupby(late["name"])
    known = late[late["last_rank"] >= 0]
    ranks = known.groupby(["name", "last_rank"]).size().rename("times").reset_index()
    ranks = ranks.sort_values("times", ascending=False, kind="stable")
    most = ranks.groupby("name").first()
    return pd.DataFrame(
        {
            "last_rank": most["last_rank"],
            "last_rank_percent": 100 * most["times"] / late_us.size(),
            "late_p95_us": late_us.quantile(0.95),
            "late_ms": late_us.sum() / 1000,
        }
    )


def phase_table(trace: Trace) -> pd.DataFrame:
    """How long each rank was in each phase; phases overlap, so percentages do not add up to 100.

    Returns:
        Columns rank, phase, busy_ms (time covered by at least one span of the phase), percent (of
        the time the rank recorded), spans.
    """
    rows = []
    for rank, events in trace.events.groupby("rank"):
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
        step). How much of that the step waited for cannot be told from a trace alone.
    """
    events = trace.events
    parts = []
    for rank, own in events[events["kind"].isin(["STEP", "BUCKET"])].groupby("rank"):
        steps, buckets = own[own["kind"] == "STEP"], own[own["kind"] == "BUCKET"]
        begin, end = steps["begin_ns"].to_numpy(), steps["end_ns"].to_numpy()
        covered = covered_within(
            buckets["begin_ns"].to_numpy(), buckets["end_ns"].to_numpy(), begin, end
        )
        columns = {
            "rank": np.full(len(steps), rank, np.int32),
            "step": steps["seq"].to_numpy(),
            "begin_ns": begin,
            "end_ns": end,
            "step_ms": (end - begin) / 1e6,
            "communicate_ms": covered / 1e6,
        }
        parts.append(pd.DataFrame(columns))
    if not parts:
        names = ["rank", "step", "begin_ns", "end_ns", "step_ms", "communicate_ms"]
        return pd.DataFrame({name: np.empty(0) for name in names})
    return pd.concat(parts, ignore_index=True)


def summary(trace: Trace) -> dict[str, Any]:
    """The trace in a few numbers.

    Returns:
        ranks, events, dropped (records lost), duration_ms, steps; where there are steps:
        step_ms_p50, step_ms_p5, step_ms_p95 (of the slowest rank in each step, `steps` samples)
        and communicate_percent (share of step time in which a bucket was under way, all ranks);
        clock_residual_us (the largest of all ranks).
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
    steps = step_table(trace)
    slowest = steps.groupby("step")["step_ms"].max()
    result["steps"] = len(slowest)
    if len(slowest):
        for percent in (5, 50, 95):
            result[f"step_ms_p{percent}"] = float(slowest.quantile(percent / 100))
        total = float(steps["step_ms"].sum())
        share = float(steps["communicate_ms"].sum()) / total if total else 0.0
        result["communicate_percent"] = 100 * share
    return result
