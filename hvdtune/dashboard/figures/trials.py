"""Gain of every trial of a study over the reference, with its interval."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from hvdtune.dashboard.figures.theme import Theme, add_band, empty_figure, plain
from hvdtune.dashboard.study import knob_text

_TICKS = [size * 10**power for power in range(8) for size in (1, 2, 5)]  # whole numbers
_MOST_TICKS = 12
_SYMBOLS = {
    "complete": "circle",
    "pruned": "circle-open",
    "running": "diamond-open",
    "failed": "x",
    "waiting": "diamond-open",
}


def trials_figure(
    trials: pd.DataFrame,
    noise_floor_percent: float | None,
    theme: Theme,
    floor_basis: str = "",
) -> go.Figure:
    """Draw trials (trial, state, believed_percent, believed_low_percent, believed_high_percent,
    gain_percent, spread_percent, pairs, reason, values).

    A point with its bar is what is believed, and a small cross the reading beside it. Where
    nothing is believed the point is the reading, and `spread_percent` its bar to either side.

    Trials without a measured gain stand on the zero line; the band is the A/A noise floor, and
    `floor_basis` says over how many pairs.
    """
    figure = empty_figure(theme, 340)
    if noise_floor_percent is not None:
        add_band(
            figure,
            (-noise_floor_percent, noise_floor_percent),
            f"A/A noise floor +/- {noise_floor_percent:.2f} %{floor_basis}",
            theme,
        )
    figure.add_hline(y=0, line={"color": theme.muted, "width": 1})
    colours = {
        "complete": theme.accent,
        "pruned": theme.muted,
        "running": theme.good,
        "failed": theme.bad,
        "waiting": theme.muted,
    }
    for state, symbol in _SYMBOLS.items():
        chosen = trials[trials["state"] == state]
        if not chosen.empty:
            figure.add_trace(_state_points(chosen, state, symbol, colours[state]))
    believed = trials[trials["believed_percent"].notna() & trials["gain_percent"].notna()]
    if not believed.empty:
        figure.add_trace(_readings(believed, theme.muted))
    most = int(trials["trial"].max()) if len(trials) else 0
    every = next(size for size in _TICKS if most <= _MOST_TICKS * size)
    figure.update_xaxes(title="trial", tickformat="d", tick0=0, dtick=every, showgrid=False)
    figure.update_yaxes(title="faster than the reference (%)", ticksuffix=" ")
    return figure


def _state_points(trials: pd.DataFrame, state: str, symbol: str, colour: str) -> go.Scatter:
    texts = [
        [plain(_gain_text(trial)), plain(trial["reason"]), plain(_setting_text(trial["values"]))]
        for trial in trials.to_dict("records")
    ]
    read, spread = trials["gain_percent"].fillna(0.0), trials["spread_percent"].fillna(0.0)
    center = trials["believed_percent"].fillna(read)
    above = (trials["believed_high_percent"] - center).fillna(spread)
    below = (center - trials["believed_low_percent"]).fillna(spread)
    return go.Scatter(
        name=state,
        mode="markers",
        x=trials["trial"].to_numpy(),
        y=center.to_numpy(),
        error_y={
            "type": "data",
            "array": above.to_numpy(),
            "arrayminus": below.to_numpy(),
            "thickness": 1.2,
            "width": 3,
            "color": colour,
        },
        marker={
            "symbol": symbol,
            "size": 9,
            "color": colour,
            "line": {"width": 1.5, "color": colour},
        },
        customdata=texts,
        hovertemplate=(
            "<b>trial %{x}</b> - "
            + state
            + "<br>%{customdata[0]}<br>%{customdata[2]}<br>%{customdata[1]}<extra></extra>"
        ),
    )


def _readings(trials: pd.DataFrame, colour: str) -> go.Scatter:
    return go.Scatter(
        name="measured",
        mode="markers",
        x=trials["trial"].to_numpy(),
        y=trials["gain_percent"].to_numpy(),
        marker={"symbol": "x-thin-open", "size": 5, "color": colour},
        hovertemplate="measured in trial %{x}: %{y:+.2f} %<extra></extra>",
    )


def _gain_text(trial: Mapping[Any, Any]) -> str:
    if pd.isna(trial["gain_percent"]):
        return "no gain was measured"
    spread = trial["spread_percent"]
    bar = "" if pd.isna(spread) else f" +/- {spread:.2f} (2 standard errors)"
    read = f"{trial['gain_percent']:+.2f} %{bar}, {trial['pairs']} pairs"
    if pd.isna(trial["believed_percent"]):
        return read
    low, high = trial["believed_low_percent"], trial["believed_high_percent"]
    center = f"{trial['believed_percent']:+.2f} %"
    return f"estimate over launches {center}, {low:+.2f} to {high:+.2f} %; measured {read}"


def _setting_text(values: Mapping[str, object]) -> str:
    return ", ".join(f"{knob} {knob_text(knob, value)}" for knob, value in values.items())
