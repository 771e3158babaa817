"""Fresh pairs of the winning setting against the reference, launch by launch."""

import pandas as pd
import plotly.graph_objects as go

from hvdtune.dashboard.figures.theme import Theme, add_band, empty_figure

_MOST_TICKS = 12  # that all pairs have; of more, plotly's choice is whole numbers
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
        about = f"95 % interval of the gain {scope}".rstrip()
        add_band(figure, (low, high), f"{about}, {low:+.2f} to {high:+.2f} %", theme)
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
    numbers = sorted(set(pairs["pair"])) if len(pairs) <= _MOST_TICKS else None
    figure.update_xaxes(title="verification pair", tickvals=numbers, showgrid=False)
    figure.update_yaxes(title="faster than the reference (%)", ticksuffix=" ")
    return figure
