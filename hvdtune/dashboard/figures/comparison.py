"""Two runs side by side: where a step goes, and how its time spreads."""

import pandas as pd
import plotly.graph_objects as go

from hvdtune.dashboard.figures.breakdown import parts_of, stacked_figure
from hvdtune.dashboard.figures.theme import Theme, empty_figure

NAMES = ("first", "second")
HEIGHT = 360
MOST_POINTS = 2_000  # of each run; of more, every second, third ... step


def parts_figure(first: pd.DataFrame, second: pd.DataFrame, theme: Theme) -> go.Figure:
    """Stacked means over all ranks of the steps of two breakdowns."""
    rows = [parts_of(steps).mean() for steps in (second, first)]
    figure = stacked_figure(pd.DataFrame(rows, index=NAMES[::-1]), theme, HEIGHT)
    figure.update_layout(legend={"maxheight": 0.8})  # in half a page it is as high as its entries
    figure.update_xaxes(title="ms per step (mean over ranks)")
    return figure


def times_figure(first: pd.DataFrame, second: pd.DataFrame, theme: Theme) -> go.Figure:
    """Step times of the slowest rank of two breakdowns, one above the other on one axis."""
    figure = empty_figure(theme, HEIGHT)
    for name, steps in zip(NAMES[::-1], (second, first), strict=True):
        slowest = steps.groupby("step")["step_ms"].max()
        shown = slowest.iloc[:: max(-(-len(slowest) // MOST_POINTS), 1)]
        figure.add_trace(
            go.Box(
                x=shown.to_numpy(),
                name=f"{name}, n = {len(slowest)}",
                boxpoints="all",
                jitter=0.5,
                pointpos=0,
                marker={"size": 3, "opacity": 0.5, "color": theme.accent},
                line={"width": 1.2, "color": theme.ink},
                fillcolor="rgba(0,0,0,0)",
                hovertemplate="%{x:,.3f} ms<extra></extra>",
            )
        )
    figure.update_layout(showlegend=False)
    figure.update_xaxes(title="step time (ms, slowest rank)", rangemode="tozero")
    return figure
