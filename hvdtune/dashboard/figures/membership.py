"""Who was in an elastic job when, and what each reset cost."""

from collections.abc import Hashable, Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from hvdtune.dashboard.figures.theme import Theme, empty_figure, pattern_of, plain

_COLOURS = ("#0072b2", "#e69f00")  # of generations by turns
_PHASE_COLOURS = ("#d55e00", "#cc79a7", "#0072b2", "#009e73", "#e69f00")
_SHAPES = ("", "/", "\\", "x", ".")


def membership_figure(stays: pd.DataFrame, resets: pd.DataFrame, theme: Theme) -> go.Figure:
    """A row for each worker, a bar for each generation that it was in, a band for each reset.

    Args:
        stays, resets: see `MembershipFrames`.
    """
    figure = empty_figure(theme, 320)
    names = [f"worker {worker}" for worker in stays["worker"]]
    figure.add_trace(
        go.Bar(
            orientation="h",
            y=names,
            x=stays["ended_s"] - stays["began_s"],
            base=stays["began_s"],
            marker={"color": [_COLOURS[number % 2] for number in stays["generation"]]},
            customdata=[_stay_in_words(row) for row in stays.to_dict("records")],
            hovertemplate="%{customdata}<extra></extra>",
        )
    )
    for began_s, total_s in zip(resets["began_s"], resets["total_s"], strict=True):
        figure.add_vrect(x0=began_s, x1=began_s + total_s, fillcolor=theme.band, line_width=0)
    figure.update_layout(barmode="overlay", showlegend=False)
    figure.update_xaxes(title="seconds since the job's start", rangemode="tozero")
    figure.update_yaxes(autorange="reversed")
    return figure


def _stay_in_words(stay: Mapping[Hashable, Any]) -> str:
    return (
        f"worker {stay['worker']} (slot {stay['slot']} of {plain(stay['host'])}), generation "
        f"{stay['generation']}, rank {stay['rank']}: {stay['began_s']:.2f} to "
        f"{stay['ended_s']:.2f} s"
    )


def resets_figure(resets: pd.DataFrame, phases: tuple[str, ...], theme: Theme) -> go.Figure:
    """A stacked bar for each reset: how long each of its phases took."""
    figure = empty_figure(theme, 300)
    for phase, colour, shape in zip(phases, _PHASE_COLOURS, _SHAPES, strict=True):
        figure.add_trace(
            go.Bar(
                name=phase,
                x=[str(number) for number in range(1, len(resets) + 1)],
                y=resets[phase],
                marker={"color": colour, "pattern": pattern_of(shape, colour, theme)},
                hovertemplate=f"reset %{{x}}, {phase}: %{{y:.3f}} s<extra></extra>",
            )
        )
    figure.update_layout(barmode="stack", showlegend=True)
    figure.update_xaxes(title="reset", type="category")
    figure.update_yaxes(title="seconds", rangemode="tozero")
    return figure
