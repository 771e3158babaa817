"""Fusion and cycles: how full buckets are, why they were closed, what the cycle and cache do."""

from dash import html
from dash.development.base_component import Component

from hvdtune.dashboard.blocks import figure, grid, note, nothing, number_columns, section
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.shell import PageAddress
from hvdtune.timeline.analysis.metrics import bandwidth, cache, cycles, fusion

PATH, TITLE = "/fusion", "Fusion and cycles"

_REASONS = {
    "reason": "Closed because",
    "buckets": "Buckets",
    "tensors_per_bucket": "Tensors per bucket",
    "bytes_p50": "Size, median",
    "bytes_max": "Size, largest",
    "busy_ms": "Busy (ms)",
    "busy_percent": "% of all buckets' time",
}
_CACHE = {
    "rank": "Rank",
    "announcements": "Announcements",
    "cached_percent": "Hits (%)",
    "again": "Names seen before",
    "again_cached_percent": "Hits among these (%)",
}
_BANDWIDTH = {
    "operation": "Operation",
    "from_bytes": "Size, at least",
    "buckets": "Buckets",
    "ms_p50": "ms, median",
    "gb_per_s_p50": "GB/s, median",
    "gb_per_s_p95": "GB/s, p95",
    "best_percent": "% of the best",
}


def layout(run: RunView, place: PageAddress) -> list[Component]:
    events = run.trace.events
    reasons = fusion.table(events)
    if reasons.empty:
        return [
            html.H1(TITLE),
            nothing(
                "There are no buckets in this trace.",
                "Record some steps of training: hvdtune timeline record RUN --steps 20",
            ),
        ]
    threshold = run.job.setting.get("fusion_threshold_bytes")
    known = threshold if isinstance(threshold, int) and threshold > 0 else None
    hits, rates = cache.table(events), bandwidth.table(events)
    return [
        html.H1(TITLE),
        note(fusion.sentence(reasons, known)),
        section(
            "How full buckets are",
            figure("bucket_sizes", place.run, "Histogram of the bytes of buckets", 280)
            if reasons["bytes_max"].notna().any()
            else note("The trace does not say how many bytes they have."),
            grid("reason-table", number_columns(reasons, _REASONS), reasons),
        ),
        section(
            "Cycles",
            note(cycles.sentence(cycles.table(events))),
            figure(
                "cycles",
                place.run,
                "Points: time since the previous cycle, by bytes announced",
                280,
            ),
        ),
        section(
            "Response cache",
            note(cache.sentence(hits)),
            grid("cache-table", number_columns(hits, _CACHE), hits),
        ),
        section(
            "Bus bandwidth by size",
            note(bandwidth.sentence(rates)),
            grid("bandwidth-table", number_columns(rates, _BANDWIDTH), rates),
        ),
    ]
