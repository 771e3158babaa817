"""Fusion and cycles: how full buckets are, why they were closed, what the cycle and cache do."""

import pandas as pd
from dash import html
from dash.development.base_component import Component

from hvdtune.dashboard.blocks import figure, grid, note, nothing, number_columns, section
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.shell import PageAddress
from hvdtune.timeline.analysis.headings import headings
from hvdtune.timeline.analysis.metrics import bandwidth, cache, cycles, fusion
from hvdtune.timeline.analysis.recorded import FACTS, is_recorded, says_of, with_advice

PATH, TITLE = "/fusion", "Fusion and cycles"

_SHOWN = ("BUCKET", "NEGOTIATE", "CYCLE")
_REASONS = headings(
    (
        "reason",
        "buckets",
        "tensors_per_bucket",
        "bytes_p50",
        "bytes_max",
        "busy_ms",
        "busy_percent",
    ),
    "fusion",
)
_CACHE = headings(("rank", "announcements", "cached_percent", "again", "again_cached_percent"))
_BANDWIDTH = headings(
    (
        "operation",
        "from_bytes",
        "buckets",
        "ms_p50",
        "gb_per_s_p50",
        "gb_per_s_p95",
        "best_percent",
    )
)


def layout(run: RunView, place: PageAddress) -> list[Component]:
    events = run.trace.events
    if not events["kind"].isin(_SHOWN).any():
        return [
            html.H1(TITLE),
            note(with_advice(run.trace, FACTS["collectives"].sentence))
            if not is_recorded(run.trace, "collectives")
            else nothing(
                "This trace has no announcements and no buckets.",
                "Record some steps of training: hvdtune timeline record RUN --steps 20",
            ),
        ]
    return [
        html.H1(TITLE),
        _told(run, "fusion", "How full buckets are", *_buckets(run, place)),
        _told(
            run,
            "cycles",
            "Cycles",
            note(cycles.sentence(cycles.table(events))),
            figure(
                "cycles",
                place.run,
                "Points: time since the previous cycle, by bytes announced",
                280,
            ),
        ),
        _told(run, "cache", "Response cache", *_cache(events)),
        _told(run, "bandwidth", "Bus bandwidth by size", *_bandwidth(events)),
    ]


def _told(run: RunView, metric: str, title: str, *parts: Component) -> Component:
    """What a metric shows, or why this trace cannot tell it."""
    lacking = says_of(run.trace, metric)
    return section(title, *([note(lacking)] if lacking else parts))


def _buckets(run: RunView, place: PageAddress) -> list[Component]:
    threshold = run.job.setting.get("fusion_threshold_bytes")
    known = threshold if isinstance(threshold, int) and threshold > 0 else None
    rows = fusion.table(run.trace.events)
    said = note(fusion.sentence(rows, known))
    if rows.empty:
        return [said]
    return [
        said,
        figure("bucket_sizes", place.run, "Histogram of the bytes of buckets", 280)
        if rows["bytes_max"].notna().any()
        else note("The trace does not record the sizes of buckets."),
        grid("reason-table", number_columns(rows, _REASONS), rows),
    ]


def _cache(events: pd.DataFrame) -> list[Component]:
    rows = cache.table(events)
    return [
        note(cache.sentence(rows)),
        grid("cache-table", number_columns(rows, _CACHE), rows),
    ]


def _bandwidth(events: pd.DataFrame) -> list[Component]:
    rows = bandwidth.table(events)
    said = note(bandwidth.sentence(rows))
    table = grid("bandwidth-table", number_columns(rows, _BANDWIDTH), rows)
    return [said] if rows.empty else [said, table]
