"""Step times as they come."""

import pandas as pd
import plotly.graph_objects as go

from hvdtune.dashboard.figures.theme import Theme, empty_figure, plain

MOST_RANKS = 16
_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#b8a1d9")
_DASHES = ("solid", "dot", "dash", "longdash")


def step_times_figure(
    steps: pd.DataFrame, adopted: list[tuple[int, str]], theme: Theme, column: str = "step_ms"
) -> go.Figure:
    """A line per rank; of many ranks, the slowest rank's and the median.

    Args:
        steps: columns rank, step, and `column`, a time in ms.
        adopted: (step, setting) of settings that were adopted in these steps.
    """
    figure = empty_figure(theme, 300)
    wide = steps.pivot(index="step", columns="rank", values=column)
    lines = {f"rank {rank}": wide[rank] for rank in wide.columns}
    if len(lines) > MOST_RANKS:
        lines = {"slowest rank": wide.max(axis=1), "median rank": wide.median(axis=1)}
    for number, (name, line) in enumerate(lines.items()):
        figure.add_trace(
            go.Scatter(
                name=name,
                mode="lines",
                x=line.index.to_numpy(),
                y=line.to_numpy(),
                line={
                    "color": _COLOURS[number % len(_COLOURS)],
                    "dash": _DASHES[number // len(_COLOURS) % len(_DASHES)],
                    "width": 1.5,
                },
                hovertemplate=f"{name}, step %{{x}}: %{{y:,.3f}} ms<extra></extra>",
            )
        )
    for step, setting in adopted:
        figure.add_vline(x=step, line={"color": theme.bad, "dash": "dash", "width": 1})
        figure.add_annotation(
            x=step, y=1, yref="paper", yanchor="bottom", text=plain(setting), showarrow=False,
            font={"color": theme.bad, "size": 10},
        )  # fmt: skip
    figure.update_layout(showlegend=True, uirevision="live")
    figure.update_xaxes(title="step", tickformat="d")
    figure.update_yaxes(title="ms per step", rangemode="tozero")
    return figure
