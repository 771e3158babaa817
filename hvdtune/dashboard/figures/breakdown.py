"""Where the time of a step goes on each rank, and how long each rank's busy time is."""

import pandas as pd
import plotly.graph_objects as go

from hvdtune.dashboard.figures.theme import Theme, empty_figure, pattern_of
from hvdtune.timeline.analysis.metrics import breakdown

# Part -> colour of Okabe and Ito's palette, pattern (never colour alone), what it is called.
PARTS = {
    "computing": ("#0072b2", "", "computing"),
    "untold": ("#0072b2", ".", breakdown.UNTOLD),
    "unknown": ("#8a8a8a", "/", "off the processor"),
    "input_ms": ("#e69f00", "", "input"),
    "gc_ms": ("#cc79a7", "", "garbage collection"),
    "checkpoint_ms": ("#b8a1d9", "x", "checkpoints"),
    "no_processor_ms": ("#d55e00", "\\", "no processor"),
    "gpu_idle_ms": ("#cccccc", ".", "idle GPU"),
    "waiting": ("#f0e442", ".", "waits for communication, for unknown reasons"),
    "wait_ms": ("#f0e442", "", "waits for other ranks"),
    "negotiate_ms": ("#56b4e9", "-", "waits for negotiation"),
    "exposed_ms": ("#009e73", "", "waits for buckets"),
}
MOST_RANKS = 32


def breakdown_figure(steps: pd.DataFrame, theme: Theme) -> go.Figure:
    """Stacked means per rank of a breakdown's steps; of many ranks the slowest are shown.

    Time in which a thread neither ran nor could have is "unknown": asleep, or waiting for a device.
    """
    means = parts_of(steps).groupby(steps["rank"]).mean()
    means = means.loc[means.sum(axis=1).sort_values(ascending=False).index[:MOST_RANKS]]
    means = means.sort_index(ascending=False)
    figure = stacked_figure(means.rename(lambda rank: f"rank {rank}"), theme, 300)
    figure.update_xaxes(title="ms per step (mean)")
    return figure


def parts_of(steps: pd.DataFrame) -> pd.DataFrame:
    """The `PARTS` of each of a breakdown's steps, ms."""
    known = steps["ran_ms"].notna()
    off = steps["off_processor_ms"].where(known, 0.0).fillna(0.0)
    off = off.clip(upper=steps["compute_ms"])
    rest = steps["compute_ms"] - off
    told = breakdown.knows_computing(steps)
    none = rest * 0.0
    computing, untold = (rest, none) if told else (none, rest)
    waited_for = steps[["wait_ms", "negotiate_ms", "exposed_ms"]].sum(axis=1)
    waiting = (steps["blocked_ms"] - waited_for).where(steps["wait_ms"].isna(), 0.0)
    parts = steps.assign(unknown=off, computing=computing, untold=untold, waiting=waiting)
    return parts[list(PARTS)]


def stacked_figure(means: pd.DataFrame, theme: Theme, height: int) -> go.Figure:
    """A bar of `PARTS`, in ms, for each row, which its index names."""
    figure = empty_figure(theme, height)
    for part, (colour, pattern, text) in PARTS.items():
        if not (means[part] > 0).any():
            continue
        figure.add_trace(
            go.Bar(
                name=text,
                orientation="h",
                y=means.index.to_list(),
                x=means[part].to_numpy(),
                marker={"color": colour, "pattern": pattern_of(pattern, colour, theme)},
                hovertemplate=f"%{{y}}: {text} %{{x:,.3f}} ms (mean)<extra></extra>",
            )
        )
    figure.update_layout(barmode="stack", bargap=0.25, showlegend=True)
    figure.update_layout(legend={"traceorder": "normal"}, margin={"t": 64})
    figure.update_xaxes(rangemode="tozero")
    return figure


def busy_times_figure(own: pd.DataFrame, theme: Theme) -> go.Figure:
    """Own time of each rank: median over steps, and where nine of ten lie.

    Args:
        own: a row per step, a column per rank, ms.
    """
    figure = empty_figure(theme, 220)
    low, middle, high = (own.quantile(q) for q in (0.05, 0.5, 0.95))
    figure.add_trace(
        go.Bar(
            x=[f"rank {rank}" for rank in own.columns],
            y=middle.to_numpy(),
            error_y={
                "type": "data",
                "symmetric": False,
                "array": (high - middle).to_numpy(),
                "arrayminus": (middle - low).to_numpy(),
                "thickness": 1.2,
                "color": theme.muted,
            },
            marker={"color": theme.accent},
            hovertemplate="%{x}: %{y:,.3f} ms (median)<extra></extra>",
        )
    )
    figure.update_yaxes(title="busy time (ms), 5 to 95 %", rangemode="tozero")
    return figure
