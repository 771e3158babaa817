"""Tensors: sizes, how long each phase takes, who is last."""

from typing import Any

import pandas as pd
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from hvdtune.dashboard.blocks import (
    GRAPH,
    defined,
    drawn,
    grid,
    known_columns,
    note,
    nothing,
    section,
)
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.figures.phases import phases_figure
from hvdtune.dashboard.figures.theme import theme_of
from hvdtune.dashboard.runs import Runs
from hvdtune.dashboard.shell import PageAddress, link
from hvdtune.dashboard.tables import tensor_columns, tensor_rows
from hvdtune.plural import counted
from hvdtune.timeline.analysis.metrics import tensors
from hvdtune.timeline.analysis.recorded import FACTS, is_recorded, with_advice

PATH, TITLE = "/tensors", "Tensors"

_TIMES = {
    "negotiate_p50_ms": "times of negotiation",
    "queue_p50_ms": "times in the queue",
    "communicate_p50_ms": "when collectives are under way",
}


def layout(run: RunView, place: PageAddress) -> list[Component]:
    table = tensors.tensor_table(run.trace)
    rows = tensor_rows(table)
    if rows.empty:
        return [
            html.H1(TITLE),
            note(with_advice(run.trace, FACTS["collectives"].sentence))
            if not is_recorded(run.trace, "collectives")
            else nothing(
                "No tensor was reduced, gathered or broadcast in this trace.",
                "Record some steps of training: hvdtune timeline record RUN --steps 20",
            ),
        ]
    return [
        html.H1(TITLE),
        note(tensors.UNNAMED)
        if run.names_no_tensors
        else defined("tensors", tensors.sentence(table)),
        section(
            "All tensors",
            html.P(
                "Choose a row to see its times. Late is the time from the first rank's "
                f"announcement to the last rank's.{_lacking(rows)}{_unfinished(run, rows)}",
                className="hint",
            ),
            grid(
                "tensor-table",
                known_columns(rows, tensor_columns(rows)),
                rows,
                getRowId="params.data.tensor",
                **_chosen(place, rows),
            ),
        ),
        section(
            "The chosen tensor",
            html.P(_first_words(place, rows), id="tensor-chosen", className="note"),
            drawn(
                dcc.Graph(id="tensor-phases", config=GRAPH, style={"height": "300px"}),
                "Histograms of the phases of the chosen tensor, in ms",
                id="tensor-drawn",
                hidden=True,
            ),
        ),
        dcc.Store(id="tensor-run", data=place.run),
        html.Span(id="tensor-kept", hidden=True),
    ]


def _lacking(rows: pd.DataFrame) -> str:
    """Which of the times of tensors no column has, since the trace does not tell them."""
    names = [name for field, name in _TIMES.items() if rows[field].isna().all()]
    return f" Not recorded: {', '.join(names)}." if names else ""


def _unfinished(run: RunView, rows: pd.DataFrame) -> str:
    """How many tensors have no row, since no collective of theirs is in the trace."""
    more = len({*run.tensors} - {*rows["tensor"]})
    if not more:
        return ""
    which = f"{counted(more, 'more tensor')} {'was' if more == 1 else 'were'}"
    return (
        f" {which} only announced: the trace has no collective of {'it' if more == 1 else 'them'}."
    )


def _first_words(place: PageAddress, rows: pd.DataFrame) -> str:
    name = place.query.get("tensor", [""])[0]
    if name and name not in set(rows["tensor"].astype(str)):
        return f"There is no tensor {name[:200]} in this trace. No tensor is chosen."
    return "No tensor is chosen."


def _chosen(place: PageAddress, rows: pd.DataFrame) -> dict[str, Any]:
    """The row that the address names."""
    name = place.query.get("tensor", [""])[0]
    if name not in set(rows["tensor"].astype(str)):
        return {}
    return {"selectedRows": {"ids": [name]}, "scrollTo": {"rowId": name}}


def register(app: Dash, runs: Runs) -> None:
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("hvdtune", "keep_tensor"),
        Output("tensor-kept", "children"),
        Input("tensor-table", "selectedRows"),
        prevent_initial_call=True,
    )

    @app.callback(
        Output("tensor-phases", "figure"),
        Output("tensor-chosen", "children"),
        Output("tensor-drawn", "hidden"),
        Input("tensor-table", "selectedRows"),
        Input("theme", "data"),
        State("tensor-run", "data"),
        prevent_initial_call=True,
    )
    def show(rows: list[dict[str, Any]] | None, theme: str | None, run: int) -> Any:
        if not rows:
            return no_update, no_update, no_update
        name = str(rows[0]["tensor"])
        place = link("/timeline", run, tensor=name)
        said = [html.Strong(name), "  ", html.A("Show it in the timeline", href=place)]
        return phases_figure(runs[run].trace, name, theme_of(theme)), said, False
