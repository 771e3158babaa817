"""What the columns of tables are called where people read them, on pages and in the report."""

from collections.abc import Iterable, Mapping

from hvdtune.timeline.analysis.compare import TITLES

_TIMES = {"p50": "median", "p95": "95th percentile"}
_PHASES = {
    "negotiate": "Negotiated",
    "queue": "Queued",
    "communicate": "Communicated",
    "done": "Announced to done",
    "others": "Waited for other ranks",
    "response": "Waited for the response",
}

# A column whose values are texts with a unit, as sizes are, has none here.
HEADINGS: Mapping[str, str] = {
    **{f"{part}_ms": f"{title} (ms)" for part, title in TITLES.items()},
    **{
        f"{phase}_{which}_{unit}": f"{said}, {words} ({unit})"
        for phase, said in _PHASES.items()
        for which, words in _TIMES.items()
        for unit in ("us", "ms")
    },
    "again": "Repeated names",
    "again_cached_percent": "Hits of repeated names (%)",
    "announcements": "Announcements",
    "begin_ms": "Begins (ms)",
    "best_percent": "% of the best",
    "blocked_ms": "Waiting for communication (ms)",
    "bucket_bytes": "Size of its bucket, median",
    "buckets": "Buckets",
    "busy_ms": "Busy (ms)",
    "busy_percent": "% of all buckets' time",
    "bytes": "Size",
    "bytes_max": "Size, largest",
    "bytes_p50": "Size, median",
    "bytes_per_cycle": "Size per cycle",
    "cached_percent": "Hits (%)",
    "communicate_ms_per_step": "Communicating, hidden or not (ms per step)",
    "cost_ms_per_step": "Cost to others (ms per step)",
    "count": "Count",
    "cycles": "Cycles",
    "drift_ppm": "Drift (ppm)",
    "dtype": "Type and shape",
    "end_ms": "Ends (ms)",
    "excess_ms": "Cost of the main cause (ms per step)",
    "exposed_ms_per_step": "Waiting for buckets (ms per step)",
    "factor": "Factor",
    "from_bytes": "Size, at least",
    "gb_per_s_p50": "Bus bandwidth, median",
    "gb_per_s_p95": "Bus bandwidth, 95th percentile",
    "hidden_percent": "Hidden (%)",
    "host": "Host",
    "idle_ms": "GPU idle, not waiting (ms)",
    "interval_ms_p50": "Between cycles, median (ms)",
    "last_rank": "Last rank",
    "last_rank_percent": "How often it is the last (%)",
    "late_ms": "Late by, sum (ms)",
    "late_p95_us": "Late by, 95th percentile (us)",
    "late_percent": "Last in (% of steps)",
    "meaning": "Meaning",
    "ms_p50": "Time, median (ms)",
    "ms_per_step": "ms per step",
    "offset_ms": "Offset (ms)",
    "operation": "Operation",
    "operations": "Operations announced last",
    "own_ms": "Busy, median (ms)",
    "part": "Part",
    "percent": "%",
    "ran_ms": "On a processor (ms)",
    "rank": "Rank",
    "reason": "Main cause",
    "residual_us": "Residual (us)",
    "round_trip_us": "Round trip (us)",
    "samples": "Samples",
    "step": "Step",
    "steps": "Steps",
    "tensor": "Tensor",
    "tensors": "Tensors",
    "tensors_per_bucket": "Tensors per bucket",
    "tensors_per_cycle": "Tensors per cycle",
    "violation_us": "Violation (us)",
    "waited_ms_per_step": "Waited for others (ms per step)",
}

# Where a column is another thing than in most tables: of a metric of `metrics.METRICS`.
_OF_METRIC: Mapping[str, Mapping[str, str]] = {
    "fusion": {"reason": "Closed because"},
    "arrivals": {"late_ms": "Late by, median (ms)"},
}


def headings(columns: Iterable[str], metric: str = "") -> dict[str, str]:
    """What to call each of these columns, of a metric where it has its own words for one."""
    own = _OF_METRIC.get(metric, {})
    return {name: own.get(name) or HEADINGS.get(name, name) for name in columns}
