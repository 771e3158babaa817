"""Heat maps of ranks: who is late in which step, who waits for whom."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from hvdtune.dashboard.figures.theme import Theme, empty_figure

MOST_STEPS = 600  # drawn one by one; of more, means of neighbours
_SCALE = "Viridis"  # readable with any colour vision, and without colours


def lateness_figure(own: pd.DataFrame, theme: Theme) -> go.Figure:
    """Own time above the fastest rank's, a column per step.

    Args:
        own: a row per step, a column per rank, ms.
    """
    above = own.to_numpy() - own.to_numpy().min(axis=1, keepdims=True)
    groups = np.array_split(np.arange(len(own)), min(len(own), MOST_STEPS))
    values = np.array([above[rows].mean(axis=0) for rows in groups])
    labels = [str(own.index[rows[0]]) for rows in groups]
    figure = empty_figure(theme, 300)
    figure.add_trace(
        go.Heatmap(
            z=values.T,
            x=labels,
            y=[f"rank {rank}" for rank in own.columns],
            colorscale=_SCALE,
            zmin=0,
            colorbar={"title": {"text": "ms"}},
            hovertemplate="%{y}, step %{x}: %{z:,.3f} ms above the fastest<extra></extra>",
        )
    )
    figure.update_xaxes(title="step", type="category", nticks=12)
    figure.update_yaxes(autorange="reversed")
    return figure


def waits_figure(waits: pd.DataFrame, theme: Theme) -> go.Figure:
    """Who waits for whom.

    Args:
        waits: ms per step; a row per rank that waits, a column per rank that is waited for.
    """
    figure = empty_figure(theme, 300)
    figure.add_trace(
        go.Heatmap(
            z=waits.to_numpy(),
            x=[f"rank {rank}" for rank in waits.columns],
            y=[f"rank {rank}" for rank in waits.index],
            colorscale=_SCALE,
            zmin=0,
            texttemplate="%{z:.2f}" if len(waits) <= 12 else None,
            colorbar={"title": {"text": "ms per step"}},
            hovertemplate="%{y} waits %{z:,.3f} ms per step for %{x}<extra></extra>",
        )
    )
    figure.update_xaxes(title="waited for", type="category")
    figure.update_yaxes(title="waits", type="category", autorange="reversed")
    return figure
