"""How well tensors are fused into buckets, and why each bucket was closed."""

import math

import numpy as np
import pandas as pd

from hvdtune.plural import counted, sized

TITLE = "Fusion"

# The reason that the core records for closing a bucket -> words for it in a sentence.
REASONS = {
    "fusion threshold": "the next tensor would not have fitted",
    "operation never fuses": "their operation cannot be fused",
}


def table(events: pd.DataFrame) -> pd.DataFrame:
    """One row per reason, of the lowest rank: buckets are the same on all ranks of a process set.

    Args:
        events: see `schema.Trace`.

    Returns:
        Columns reason, buckets, tensors_per_bucket, bytes_p50 and bytes_max (NaN: not recorded),
        busy_ms (their time, one after the other), busy_percent (of all buckets').
    """
    buckets = of_one_rank(events)
    lasted = (buckets["end_ns"] - buckets["begin_ns"]) / 1e6
    by = buckets.assign(lasted=lasted).groupby(buckets["name"].astype(str))
    rows = by.agg(
        buckets=("seq", "size"),
        tensors_per_bucket=("seq", "mean"),
        bytes_p50=("arg", "median"),
        bytes_max=("arg", "max"),
        busy_ms=("lasted", "sum"),
    )
    sizes = ["bytes_p50", "bytes_max"]
    recorded = (rows["bytes_max"] > 0) | (rows.index != "")
    rows[sizes] = rows[sizes].astype(float).where(recorded)
    total = float(lasted.sum())
    rows["busy_percent"] = 100 * rows["busy_ms"] / total if total else 0.0
    rows = rows.sort_values("busy_ms", ascending=False)
    return pd.DataFrame(rows.rename_axis("reason").reset_index())


def sentence(table: pd.DataFrame, threshold_bytes: int | None = None) -> str:
    """Says why most buckets were closed and, if the threshold is known, how full they were."""
    if table.empty:
        return "There are no buckets."
    most = table.sort_values("buckets").iloc[-1]
    if not most["reason"]:
        return (
            f"{counted(table['buckets'].sum(), 'bucket')}; the reasons for closing them and their "
            "tensors are not recorded."
        )
    why = REASONS.get(most["reason"], most["reason"])
    share = 100 * most["buckets"] / table["buckets"].sum()
    text = (
        f"{counted(table['buckets'].sum(), 'bucket')}; {share:.0f} % were closed because {why}, "
        f"with {counted(most['tensors_per_bucket'], 'tensor')} (mean) and "
        f"{sized(most['bytes_p50'])} (median)"
    )
    if threshold_bytes:
        text += f", {100 * most['bytes_p50'] / threshold_bytes:.2g} % of the fusion threshold"
    return text + "."


def of_one_rank(events: pd.DataFrame) -> pd.DataFrame:
    """BUCKET events of the lowest rank that has any."""
    buckets = events[events["kind"] == "BUCKET"]
    lowest: pd.DataFrame = buckets[buckets["rank"] == buckets["rank"].min()]
    return lowest


def bytes_per_step(events: pd.DataFrame, steps: pd.DataFrame) -> float:
    """The bytes of the buckets that begin in a step: the mean of `steps`; NaN: not recorded.

    Args:
        events: see `schema.Trace`.
        steps: of `breakdown.steady_steps`.
    """
    buckets, total = events[events["kind"] == "BUCKET"], 0.0
    for rank, own in steps.sort_values("begin_ns").groupby("rank"):
        mine = buckets[buckets["rank"] == rank]
        at, end = mine["begin_ns"].to_numpy(), own["end_ns"].to_numpy()
        place = np.searchsorted(own["begin_ns"].to_numpy(), at, side="right") - 1
        inside = (place >= 0) & (at < end[place])
        total += float(mine["arg"].to_numpy()[inside].sum())
    return total / len(steps) if total else math.nan
