"""Rows of phases over time for one window of the trace."""

import pandas as pd
import plotly.graph_objects as go

from hvdtune.dashboard.figures.theme import Theme, empty_figure, plain
from hvdtune.dashboard.window import Drawing

PHASES = {  # phase -> (colour, bar height in rows); later ones are drawn over earlier ones
    "STEP": ("#a9b4c2", 0.62),
    "BUCKET": ("#c9d6e6", 0.86),
    "NEGOTIATE": ("#e3a64f", 0.62),
    "QUEUE": ("#c3b49b", 0.30),
    "COMMUNICATE": ("#9dbfe3", 0.86),
    "PACK": ("#3f9c94", 0.48),
    "REDUCE": ("#7d6bb8", 0.48),
    "EXCHANGE": ("#2d69ad", 0.48),
    "UNPACK": ("#79ab5f", 0.48),
    "WAIT": ("#c98391", 0.48),
}
_TICKS = {  # kind -> (legend, plotly symbol, size in px where rows are full height)
    "announced": ("announced", "line-ns-open", 10),
    "last": ("announced last", "line-ns-open", 13),
    "cycle": ("cycle", "triangle-down", 6),
    "setting": ("setting adopted", "diamond", 9),
}
_ROW_PX, _MIN_PX, _MAX_PX, _FRAME_PX = 19, 260, 780, 96


def timeline_figure(drawing: Drawing, theme: Theme) -> go.Figure:
    """Draw the rows (top to bottom) of a drawing with their bars and ticks."""
    rows, bars, ticks = drawing.rows, drawing.bars, drawing.ticks
    height = min(max(_MIN_PX, len(rows) * _ROW_PX + _FRAME_PX), _MAX_PX)
    figure = empty_figure(theme, height)
    for phase, (colour, width) in PHASES.items():
        chosen = bars[bars["phase"] == phase]
        if not chosen.empty:
            figure.add_trace(_phase_bars(chosen, phase, colour, width))
    colours = {
        "announced": theme.muted,
        "last": theme.bad,
        "cycle": theme.muted,
        "setting": theme.accent,
    }
    scale = min(1.0, (height - _FRAME_PX) / (max(len(rows), 1) * _ROW_PX))
    for kind in _TICKS:
        chosen = ticks[ticks["kind"] == kind]
        if not chosen.empty:
            figure.add_trace(_tick_marks(chosen, kind, colours[kind], scale))
    for at_ms, label in drawing.marks:
        figure.add_vline(x=at_ms, line={"color": theme.muted, "width": 1, "dash": "dot"})
        figure.add_annotation(
            x=at_ms, y=0, yref="paper", yshift=-4, text=plain(label), showarrow=False,
            xanchor="left", yanchor="bottom", font={"color": theme.muted, "size": 11},
        )  # fmt: skip
    _place_axes(figure, rows, drawing.span_ms)
    return figure


def _phase_bars(bars: pd.DataFrame, phase: str, colour: str, width: float) -> go.Bar:
    return go.Bar(
        name=phase.lower(),
        orientation="h",
        base=bars["begin_ms"].to_numpy(),
        x=bars["duration_ms"].to_numpy(),
        y=bars["row"].astype(str).to_list(),
        width=width,
        marker={"color": colour, "line": {"width": 0}},
        customdata=_texts(bars),
        hovertemplate=(
            "<b>%{customdata[0]}</b><br>"
            + phase.lower()
            + " %{x:,.3f} ms, from %{base:,.3f} ms<br>%{customdata[1]}<extra></extra>"
        ),
    )


def _tick_marks(ticks: pd.DataFrame, kind: str, colour: str, scale: float) -> go.Scatter:
    legend, symbol, size = _TICKS[kind]
    return go.Scatter(
        name=legend,
        mode="markers",
        x=ticks["at_ms"].to_numpy(),
        y=ticks["row"].astype(str).to_list(),
        marker={
            "symbol": symbol,
            "size": max(3.0, size * scale),
            "color": colour,
            "line": {"width": max(1.0, 2 * scale), "color": colour},
        },
        customdata=_texts(ticks),
        hovertemplate=(
            "<b>%{customdata[0]}</b><br>at %{x:,.3f} ms<br>%{customdata[1]}<extra></extra>"
        ),
    )


def _texts(frame: pd.DataFrame) -> list[list[str]]:
    return [
        [plain(what), plain(detail)]
        for what, detail in zip(frame["what"], frame["detail"], strict=True)
    ]


def _place_axes(figure: go.Figure, rows: list[str], span_ms: tuple[float, float]) -> None:
    keys = [str(row) for row in range(len(rows))]
    margin_ms = (span_ms[1] - span_ms[0]) * 0.01
    figure.update_layout(barmode="overlay", dragmode="zoom")
    figure.update_xaxes(
        title={"text": "time since the first event (ms)", "standoff": 8},
        range=[span_ms[0] - margin_ms, span_ms[1] + margin_ms],
        tickformat=",~f",
    )
    figure.update_yaxes(
        # A category axis thins its labels by itself when there are more rows than room.
        type="category",
        categoryorder="array",
        categoryarray=keys,
        labelalias=dict(zip(keys, map(plain, rows), strict=True)),
        range=[len(rows) - 0.4, -0.6],
        tickfont={"size": 11},
        showgrid=len(rows) <= 80,
    )
