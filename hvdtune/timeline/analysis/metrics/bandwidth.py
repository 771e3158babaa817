"""How fast bytes travel, per size of a bucket.

Bus bandwidth is what a link of a ring would carry: it can be compared with the speed of a link
whatever the operation and the number of ranks (the definition of nccl-tests' PERFORMANCE.md).
"""

import numpy as np
import pandas as pd

from hvdtune.plural import sized
from hvdtune.timeline.model.schema import COLLECTIVES, KINDS

TITLE = "Bus bandwidth"


def table(events: pd.DataFrame) -> pd.DataFrame:
    """One row per operation and power of two of a bucket's bytes.

    Args:
        events: see `schema.Trace`; the ranks that are in it are taken for all.

    Returns:
        Columns operation, from_bytes (the size class reaches up to twice of it), buckets (each
            counted once, not for each rank), ms_p50,
        gb_per_s_p50 and gb_per_s_p95 of bus bandwidth (10^9 bytes), best_percent (the median, of
        that of the best class).
    """
    buckets = bucket_table(events)
    ranks = max(events["rank"].nunique(), 1)
    shares = {name: KINDS[name].on_link for name in COLLECTIVES}
    on_link = {name: once + each / ranks for name, (once, each) in shares.items()}
    factor = buckets["operation"].map(on_link).astype(float)
    moves = (factor > 0) & (buckets["bytes"] > 0)
    buckets, factor = buckets[moves], factor[moves]
    rate = buckets["bytes"] * factor / buckets["lasted_ns"].clip(lower=1)
    size_class = 2 ** np.floor(np.log2(buckets["bytes"].clip(lower=1))).astype(np.int64)
    ms = buckets["lasted_ns"] / 1e6
    by = buckets.assign(rate=rate, ms=ms).groupby(
        [buckets["operation"].astype(str), size_class.rename("from_bytes")]
    )
    rows = by.agg(
        buckets=("bucket", "nunique"),
        ms_p50=("ms", "median"),
        gb_per_s_p50=("rate", "median"),
        gb_per_s_p95=("rate", lambda values: values.quantile(0.95)),
    ).reset_index()
    best = rows["gb_per_s_p50"].max() if len(rows) else 1.0
    rows["best_percent"] = 100 * rows["gb_per_s_p50"] / best if best else 0.0
    return rows


def rated(gb_per_s: float) -> str:
    """A rate in the largest unit of which it is at least one, to three digits."""
    for unit, size in (("GB/s", 1.0), ("MB/s", 1e-3), ("kB/s", 1e-6)):
        if gb_per_s >= size:
            return f"{gb_per_s / size:.3g} {unit}"
    return f"{gb_per_s * 1e9:.3g} B/s"


def sentence(table: pd.DataFrame, link_gbps: float | None = None) -> str:
    """The best, and what share of a link it is."""
    if table.empty:
        return "The trace does not record the bytes of buckets."
    best = table.sort_values("gb_per_s_p50").iloc[-1]
    text = (
        f"The best median is {rated(best['gb_per_s_p50'])}, for {best['operation']} of "
        f"{sized(best['from_bytes'])} and more"
    )
    if link_gbps:
        text += f", {100 * 8 * best['gb_per_s_p50'] / link_gbps:.0f} % of {link_gbps:g} Gbit/s"
    return text + "."


def bucket_table(events: pd.DataFrame) -> pd.DataFrame:
    """One row per rank and bucket.

    Returns:
        Columns rank, bucket, begin_ns, end_ns, lasted_ns, tensors, bytes, reason, operation.
    """
    rows = events[events["kind"] == "BUCKET"]
    inside = events.loc[events["kind"].isin(COLLECTIVES), ["rank", "bucket", "kind"]]
    operation = inside.drop_duplicates(["rank", "bucket"]).set_index(["rank", "bucket"])["kind"]
    keys = pd.MultiIndex.from_frame(rows[["rank", "bucket"]])
    return pd.DataFrame(
        {
            "rank": rows["rank"].to_numpy(),
            "bucket": rows["bucket"].to_numpy(),
            "begin_ns": rows["begin_ns"].to_numpy(),
            "end_ns": rows["end_ns"].to_numpy(),
            "lasted_ns": (rows["end_ns"] - rows["begin_ns"]).to_numpy(),
            "tensors": rows["seq"].to_numpy(),
            "bytes": rows["arg"].to_numpy(),
            "reason": rows["name"].astype(str).to_numpy(),
            "operation": operation.reindex(keys).astype(str).to_numpy(),
        }
    )
