"""What tensors wait for before their bucket begins: ranks, the negotiation, other buckets."""

import pandas as pd

from hvdtune.timeline.analysis.metrics.breakdown import announced_by_all

TITLE = "Queueing"


def table(events: pd.DataFrame) -> pd.DataFrame:
    """One row per rank; tensors wait side by side, so these times add up to nothing.

    Args:
        events: see `schema.Trace`.

    Returns:
        Columns rank, tensors, and for each of three stages its p50 and p95 in ms:
        others (announced here until announced everywhere), response (until this rank heard so) and
        queue (until the bucket began).
    """
    asked = announced_by_all(events, ("rank", "begin_ns", "end_ns", "all_ns"))
    asked["others"] = (asked["all_ns"] - asked["begin_ns"]) / 1e6
    asked["response"] = (asked["end_ns"] - asked["all_ns"]).clip(lower=0) / 1e6
    queued = events[events["kind"] == "QUEUE"]
    lasted = (queued["end_ns"] - queued["begin_ns"]) / 1e6
    rows = asked.groupby("rank").size().rename("tensors").to_frame()
    for percent in (50, 95):
        for stage in ("others", "response"):
            rows[f"{stage}_p{percent}_ms"] = asked.groupby("rank")[stage].quantile(percent / 100)
        rows[f"queue_p{percent}_ms"] = lasted.groupby(queued["rank"]).quantile(percent / 100)
    stages = [f"{stage}_p{p}_ms" for stage in ("others", "response", "queue") for p in (50, 95)]
    return rows.reset_index()[["rank", "tensors", *stages]]


def sentence(table: pd.DataFrame) -> str:
    """Say where a tensor waits, and for how long."""
    if table.empty:
        return "Nothing was negotiated."
    names = {"others": "other ranks", "response": "the response", "queue": "earlier buckets"}
    medians = {stage: float(table[f"{stage}_p50_ms"].mean()) for stage in names}
    parts = ", ".join(f"{medians[stage]:.3f} ms for {text}" for stage, text in names.items())
    return f"A tensor waits {parts} (medians)."
