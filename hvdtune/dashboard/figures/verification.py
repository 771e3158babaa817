"""Fresh pairs of the winning setting against the reference, launch by launch."""

import pandas as pd
import plotly.graph_objects as go

from hvdtune.dashboard.figures.theme import Theme, empty_figure

_LAUNCH_COLOURS = ("#3f7cc0", "#3f9c94", "#c08a3a", "#7d6bb8", "#b35c6b", "#79ab5f")


def verification_figure(
    pairs: pd.DataFrame,
    interval_percent: tuple[float, float] | None,
    theme: Theme,
    scope: str = "",
) -> go.Figure:
    """Draw pairs (pair, launch, gain_percent, setting_step_ms, reference_step_ms, steps, order).

    `interval_percent` is the verdict's confidence interval of the gain, drawn as a band; `scope`
    says what it speaks of.
    """
    figure = empty_figure(theme, 320)
    if interval_percent is not None:
        low, high = interval_percent
        figure.add_hrect(y0=low, y1=high, fillcolor=theme.band, line_width=0)
        figure.add_annotation(
            x=1, xref="paper", xanchor="right", y=1, yref="paper", yanchor="bottom",
            text=f"band: 95 % interval of the gain {scope}, {low:+.2f} to {high:+.2f} %",
            showarrow=False, font={"color": theme.muted, "size": 11},
        )  # fmt: skip
    figure.add_hline(y=0, line={"color": theme.muted, "width": 1})
    for position, (launch, chosen) in enumerate(pairs.groupby("launch", sort=True)):
        colour = _LAUNCH_COLOURS[position % len(_LAUNCH_COLOURS)]
        figure.add_trace(
            go.Scatter(
                name=f"launch {launch}",
                mode="markers",
                x=chosen["pair"].to_numpy(),
                y=chosen["gain_percent"].to_numpy(),
                marker={"size": 8, "color": colour},
                customdata=chosen[
                    ["setting_step_ms", "reference_step_ms", "steps", "order", "launch"]
                ].to_numpy(),
                hovertemplate=(
                    "<b>pair %{x}, launch %{customdata[4]}</b><br>%{y:+.2f} %<br>"
                    "setting %{customdata[0]:,.3f} ms, reference %{customdata[1]:,.3f} ms<br>"
                    "%{customdata[2]:,} steps, order %{customdata[3]}<extra></extra>"
                ),
            )
        )
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title="verification pair", tickformat="d", showgrid=False)
    figure.update_yaxes(title="faster than the reference (%)", ticksuffix=" ")
    return figure
