"""How large buckets are, and what cycles carry."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from hvdtune.dashboard.figures.theme import Theme, empty_figure, plain
from hvdtune.plural import sized
from hvdtune.timeline.analysis.metrics import fusion

MOST_CYCLES = 2_000
_MANY_BYTES = 4 << 20  # from here on an axis is in MiB
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999")


def bucket_sizes_figure(
    events: pd.DataFrame, threshold_bytes: float | None, theme: Theme
) -> go.Figure:
    """Buckets by their bytes, in powers of two, and by why they were closed."""
    buckets = fusion.of_one_rank(events)
    figure = empty_figure(theme, 280)
    power = np.floor(np.log2(np.maximum(buckets["arg"].to_numpy(), 1))).astype(int)
    reasons = buckets["name"].astype(str).to_numpy()
    low, high = (int(power.min()), int(power.max())) if len(power) else (0, 0)
    for index, reason in enumerate(sorted(set(reasons))):
        counts = np.bincount(power[reasons == reason] - low, minlength=high - low + 1)
        figure.add_trace(
            go.Bar(
                name=plain(reason or "not recorded"),
                x=[sized(2**k) for k in range(low, high + 1)],
                y=counts,
                marker={"color": _COLOURS[index % len(_COLOURS)]},
                hovertemplate="%{y:,} buckets of %{x} and more<extra></extra>",
            )
        )
    if threshold_bytes and low <= np.log2(threshold_bytes) <= high + 1:
        at = float(np.log2(threshold_bytes)) - low - 0.5
        figure.add_vline(x=at, line={"color": theme.bad, "dash": "dash"})
        figure.add_annotation(
            x=at, y=1, yref="paper", yanchor="bottom", text="fusion threshold", showarrow=False,
            font={"color": theme.bad, "size": 11},
        )  # fmt: skip
    figure.update_layout(barmode="stack", showlegend=True)
    figure.update_xaxes(title="size of a bucket, from this to twice this", type="category")
    figure.update_yaxes(title="buckets")
    return figure


def cycles_figure(events: pd.DataFrame, cycle_time_ms: float | None, theme: Theme) -> go.Figure:
    """A point per cycle that carried something: time since the one before, by its bytes."""
    cycles = events[events["kind"] == "CYCLE"]
    cycles = cycles[(cycles["rank"] == cycles["rank"].min())]
    apart_ms = np.diff(cycles["begin_ns"].to_numpy(), prepend=np.nan) / 1e6
    cycles = cycles.assign(apart_ms=apart_ms)[cycles["arg"].to_numpy() > 0].dropna()
    cycles = cycles.iloc[:: max(-(-len(cycles) // MOST_CYCLES), 1)]
    figure = empty_figure(theme, 280)
    unit, size = ("MiB", 2**20) if cycles["bucket"].max() >= _MANY_BYTES else ("KiB", 2**10)
    figure.add_trace(
        go.Scatter(
            mode="markers",
            x=cycles["bucket"].to_numpy() / size,
            y=cycles["apart_ms"].to_numpy(),
            marker={"size": 5, "color": theme.accent, "opacity": 0.5},
            customdata=cycles[["seq", "arg"]].to_numpy(),
            hovertemplate=(
                "cycle %{customdata[0]:,}: %{customdata[1]:,} tensors, %{x:,.4~r} "
                f"{unit}, "
                "%{y:,.3f} ms after the previous cycle<extra></extra>"
            ),
        )
    )
    if cycle_time_ms:
        figure.add_hline(y=cycle_time_ms, line={"color": theme.bad, "dash": "dash"})
        figure.add_annotation(
            x=1, xref="paper", xanchor="right", y=cycle_time_ms, yanchor="bottom",
            text="cycle time", showarrow=False, font={"color": theme.bad, "size": 11},
        )  # fmt: skip
    # From zero: the ticks of an axis as narrow as cycles that are alike would be fractions.
    figure.update_xaxes(title=f"{unit} announced in the cycle", rangemode="tozero", tickformat=",")
    figure.update_yaxes(title="since the previous cycle (ms)", type="log", dtick=1)
    return figure
