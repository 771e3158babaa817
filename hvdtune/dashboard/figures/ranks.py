"""Heat maps of ranks: who is late in which step, who waits for whom."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from hvdtune.dashboard.figures.theme import Theme, empty_figure, plain

MOST_STEPS = 600  # drawn one by one; of more, means of neighbours
LEAST_MS = 0.01  # that the scale of who waits reaches to; of nothing it would have no end
_SCALE = "Viridis"  # readable with any colour vision, and without colours


def lateness_figure(own: pd.DataFrame, hosts: Mapping[int, str], theme: Theme) -> go.Figure:
    """Own time above the fastest rank's, a column per step; ranks of one host lie together.

    Args:
        own: a row per step, a column per rank, ms.
        hosts: of ranks, as far as they are known.
    """
    ranks = by_host(own.columns, hosts)
    own = own[ranks]
    above = own.to_numpy() - own.to_numpy().min(axis=1, keepdims=True)
    groups = np.array_split(np.arange(len(own)), min(len(own), MOST_STEPS))
    values = np.array([above[rows].mean(axis=0) for rows in groups])
    labels = [str(own.index[rows[0]]) for rows in groups]
    figure = empty_figure(theme, 300)
    figure.add_trace(
        go.Heatmap(
            z=values.T,
            x=labels,
            y=labels_of(ranks, hosts),
            colorscale=_SCALE,
            zmin=0,
            colorbar={"title": {"text": "ms"}},
            hovertemplate="%{y}, step %{x}: %{z:,.3f} ms above the fastest<extra></extra>",
        )
    )
    figure.update_xaxes(title="step", type="category", nticks=12)
    figure.update_yaxes(autorange="reversed")
    for edge in edges_of(ranks, hosts):
        figure.add_hline(y=edge, line={"color": theme.ink, "width": 2})
    return figure


def waits_figure(waits: pd.DataFrame, hosts: Mapping[int, str], theme: Theme) -> go.Figure:
    """Who waits for whom; ranks of one host lie together.

    Args:
        waits: ms per step; a row per rank that waits, a column per rank that is waited for.
        hosts: of ranks, as far as they are known.
    """
    rows, columns = by_host(waits.index, hosts), by_host(waits.columns, hosts)
    waits = waits.reindex(index=rows, columns=columns)
    figure = empty_figure(theme, 300)
    figure.add_trace(
        go.Heatmap(
            z=waits.to_numpy(),
            x=labels_of(columns, hosts),
            y=labels_of(rows, hosts),
            colorscale=_SCALE,
            zmin=0,
            zmax=max(float(waits.to_numpy().max()), LEAST_MS),
            texttemplate="%{z:.2f}" if len(waits) <= 12 else None,
            colorbar={"title": {"text": "ms per step"}},
            hovertemplate="%{y} waits %{z:,.3f} ms per step for %{x}<extra></extra>",
        )
    )
    figure.update_xaxes(title="waited for", type="category")
    figure.update_yaxes(title="waits", type="category", autorange="reversed")
    for edge in edges_of(columns, hosts):
        figure.add_vline(x=edge, line={"color": theme.ink, "width": 2})
    for edge in edges_of(rows, hosts):
        figure.add_hline(y=edge, line={"color": theme.ink, "width": 2})
    return figure


def by_host(ranks: Iterable[Any], hosts: Mapping[int, str]) -> list[int]:
    """The ranks, those of one host side by side; hosts in the order of their first rank."""
    ascending = sorted(int(rank) for rank in ranks)
    place = {host: index for index, host in reversed([*enumerate(map(hosts.get, ascending))])}
    return sorted(ascending, key=lambda rank: place[hosts.get(rank)])


def labels_of(ranks: Sequence[int], hosts: Mapping[int, str]) -> list[str]:
    """The names of ranks: with their host, where there are several."""
    if len({hosts.get(rank) for rank in ranks}) < 2:
        return [f"rank {rank}" for rank in ranks]
    return [f"{plain(hosts.get(rank) or 'unknown host')}: rank {rank}" for rank in ranks]


def edges_of(ranks: Sequence[int], hosts: Mapping[int, str]) -> list[float]:
    """Where, between ranks that are drawn at 0, 1, 2 ..., one host ends and another begins."""
    of = [hosts.get(rank) for rank in ranks]
    return [index - 0.5 for index in range(1, len(of)) if of[index] != of[index - 1]]
