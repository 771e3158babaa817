"""Compare: two runs side by side, with confidence."""

from typing import Any

import dash_mantine_components as dmc
import pandas as pd
from dash import ClientsideFunction, Dash, Input, Output, dcc, html
from dash.development.base_component import Component

from hvdtune.dashboard.blocks import (
    GRAPH,
    drawn,
    grid,
    note,
    nothing,
    number_columns,
    section,
)
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.figures.comparison import HEIGHT, parts_figure, times_figure
from hvdtune.dashboard.figures.theme import theme_of
from hvdtune.dashboard.runs import Runs
from hvdtune.dashboard.shell import PageAddress
from hvdtune.timeline.analysis import compare

PATH, TITLE = "/compare", "Compare"

_HEADERS = {
    "quantity": "Part of a step",
    "a_ms": "First (ms)",
    "b_ms": "Second (ms)",
    "change_ms": "Change (ms)",
    "interval_ms": "95 % interval (ms)",
    "percent": "Change (%)",
}


def layout(run: RunView, place: PageAddress) -> list[Component]:
    del run
    return [
        html.H1(TITLE),
        html.Div(id="compare-choice"),
        html.Div(id="compare-shown"),
        html.Span(id="compare-kept", hidden=True),
    ]


def register(app: Dash, runs: Runs) -> None:
    @app.callback(Output("compare-choice", "children"), Input("url", "search"))
    def offer(search: str | None) -> Component:
        return _choice(runs, search)

    if len(runs) < 2:
        return  # the parts of the page that what follows is about are not there
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("hvdtune", "keep_pair"),
        Output("compare-kept", "children"),
        Input("compare-a", "value"),
        Input("compare-b", "value"),
        prevent_initial_call=True,
    )

    @app.callback(
        Output("compare-shown", "children"),
        Input("compare-a", "value"),
        Input("compare-b", "value"),
        Input("theme", "data"),
        prevent_initial_call=True,
    )
    def show(first: str | None, second: str | None, theme: str | None) -> Any:
        if first is None or second is None:
            return note("Choose two runs.")
        return _compared(runs[int(first)], runs[int(second)], theme)


def _choice(runs: Runs, search: str | None) -> Component:
    if len(runs) < 2:
        return nothing(
            "Only one run is open.", "Open two: hvdtune timeline view before.json after.json"
        )
    options = [{"label": run.title, "value": str(index)} for index, run in enumerate(runs)]
    first, second = _asked(search, len(runs))
    asked = PageAddress.of(search, len(runs)).query.get("with", [str(second)])[0]
    if asked != str(second):
        return nothing(
            f"There is no run {asked[:40]}: this dashboard shows runs 0 to {len(runs) - 1}.",
            "Choose Compare on the left, then two runs.",
        )
    return html.Div(
        [
            dmc.Select(data=options, value=str(first), id="compare-a", label="First"),
            dmc.Select(data=options, value=str(second), id="compare-b", label="Second"),
        ],
        className="controls",
    )


def _compared(a: RunView, b: RunView, theme: str | None) -> list[Component]:
    left, right = a.steps, b.steps
    table = compare.of_steps(left, right)
    says = compare.sentence(table, {a.title: left, b.title: right})
    shown = [note(says), _pictures((a, b), left, right, theme)]
    return shown if table.empty else [*shown, _parts(table, a, b)]


def _parts(table: pd.DataFrame, a: RunView, b: RunView) -> Component:
    rows = compare.shown(table)
    return section(
        "Parts of a step",
        html.P(
            f"First: {a.title}. Second: {b.title}. The intervals are over steps; two "
            "launches of the same job may differ by more.",
            className="hint",
        ),
        grid("compare-table", number_columns(rows, _HEADERS), rows),
    )


def _asked(search: str | None, runs: int) -> tuple[int, int]:
    """The two runs of an address; the second is another one where it does not say."""
    place = PageAddress.of(search, runs)
    second = place.whole("with")
    if second is None or not 0 <= second < runs:
        second = 0 if place.run else 1
    return place.run, second


def _pictures(
    pair: tuple[RunView, RunView], left: pd.DataFrame, right: pd.DataFrame, theme: str | None
) -> Component:
    for run, own in zip(pair, (left, right), strict=True):
        if own.empty:
            return nothing(
                f"{run.title} has too few steps to compare.",
                "Mark steps in the script: hvd.mark_step()",
            )
    figures = (
        ("Stacked bars: ms of each part of a step, of both runs", parts_figure),
        ("Boxes and points: step times in ms, of both runs", times_figure),
    )
    style = {"height": f"{HEIGHT}px"}
    pictures = [
        drawn(
            dcc.Graph(
                figure=draw(left, right, theme_of(theme)),
                config=GRAPH,
                style=style,
            ),
            label,
        )
        for label, draw in figures
    ]
    return section("Side by side", html.Div(pictures, className="pair"))
