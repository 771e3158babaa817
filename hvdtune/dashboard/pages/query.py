"""Query: questions that no page answers, over the tables of `hvdtune timeline query`."""

from typing import Any

import dash_mantine_components as dmc
import pandas as pd
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from hvdtune.dashboard.blocks import grid, note, nothing, number_columns, rooted, section
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.runs import Runs
from hvdtune.dashboard.shell import PageAddress
from hvdtune.errors import HvdtuneError
from hvdtune.plural import capitalized, counted
from hvdtune.timeline.analysis.quantities import QUANTITIES
from hvdtune.timeline.analysis.query import (
    NEEDS_DUCKDB,
    Queries,
    can_query,
    without_rows,
)
from hvdtune.timeline.analysis.query_process import QueryLimits
from hvdtune.timeline.analysis.query_tables import TABLES, SqlColumn

PATH, TITLE = "/query", "Query"

MOST_ROWS = 1_000
LIMITS = QueryLimits(
    rows=MOST_ROWS,
    memory_mb=1_000,
    answer_mb=16,
    more_seconds="; hvdtune timeline query --seconds allows more",
    more_memory="; hvdtune timeline query --memory-mb allows more",
)
QUERIES = Queries()
MOST_SLICES = 2_000_000  # of a trace that the server is to hold
_EXAMPLES = {
    "Time by kind": (
        "-- Slices overlap: time that several cover counts once.\n"
        "SELECT rank, kind, count(*) AS slices,\n"
        "  round(sum(greatest(0, end_ns - greatest(begin_ns, coalesce(before_ns, begin_ns))))\n"
        "    / 1e6, 3) AS ms\n"
        "FROM (SELECT rank, kind, begin_ns, end_ns, max(end_ns) OVER (\n"
        "    PARTITION BY rank, kind ORDER BY begin_ns, end_ns\n"
        "    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns FROM slices)\n"
        "GROUP BY ALL ORDER BY ms DESC LIMIT 20"
    ),
    "Longest slices": (
        "SELECT rank, name, tensor, begin_ns / 1e6 AS begin_ms,\n"
        "  (end_ns - begin_ns) / 1e6 AS ms\n"
        "FROM slices WHERE phase = 'X' ORDER BY ms DESC LIMIT 20"
    ),
    "Steps of each rank": (
        "SELECT rank, count(*) AS steps, avg(step_ms) AS step_ms,\n"
        "  avg(blocked_ms) AS blocked_ms, avg(wait_ms) AS wait_ms\n"
        "FROM steps GROUP BY rank ORDER BY rank"
    ),
    "Columns of a table": "DESCRIBE slices",
}


def layout(run: RunView, place: PageAddress) -> list[Component]:
    refusal = _refusal(run)
    if refusal is not None:
        return [html.H1(TITLE), refusal]
    given = place.query.get("sql", [""])[0]
    is_given = bool(given)
    return [
        html.H1(TITLE),
        section(
            "A query",
            html.P(
                "Tables: slices (everything that a viewer draws), events (those that hvdtune "
                "recognizes) and steps (one row per rank and step, in ms). The dialect is "
                "DuckDB's. A query can read only this trace.",
                className="hint",
            ),
            *(
                [note("This query comes from the page's address. Read it, then press Run.")]
                * is_given
            ),
            dmc.Textarea(
                id="sql-text",
                label="SQL",
                value=given or next(iter(_EXAMPLES.values())),
                autosize=True,
                minRows=3,
                maxRows=16,
                className="code",
            ),
            html.Div(
                [
                    dmc.Button("Run", id="sql-run", variant="default"),
                    *(
                        dmc.Button(
                            name, id={"type": "sql-example", "name": name}, variant="default"
                        )
                        for name in _EXAMPLES
                    ),
                ],
                className="controls",
            ),
        ),
        _tables(),
        dcc.Loading(html.Div(id="sql-answer", role="status"), delay_show=300),
        dcc.Store(id="sql-of", data=place.run),
        html.Span(id="sql-kept", hidden=True),
    ]


def _tables() -> Component:
    """What each column means, folded."""
    return html.Div(
        [
            html.Details(
                [
                    html.Summary(f"Columns of {name}"),
                    html.P(f"A row is {table.rows}.", className="hint"),
                    html.Dl(
                        [part for item in table.columns.items() for part in _column(*item)],
                        className="definitions",
                    ),
                ]
            )
            for name, table in TABLES.items()
        ]
    )


def _column(name: str, column: SqlColumn) -> tuple[Component, Component]:
    unit = f" ({column.unit})" if column.unit else ""
    said: list[Component | str] = [f"{capitalized(column.meaning)}."]
    if column.quantity:
        title = QUANTITIES[column.quantity].title
        said += [" ", html.A(title, href=rooted(f"/definitions#{column.quantity}"))]
    return html.Dt([html.Strong(name), unit]), html.Dd(said)


def _refusal(run: RunView) -> Component | None:
    """Why there are no queries about a run, if there are none."""
    if not can_query():
        return nothing(
            f"{NEEDS_DUCKDB[0].upper()}{NEEDS_DUCKDB[1:]}.", "Then start the dashboard again."
        )
    if run.path is None:
        return nothing(
            "This run has no trace on the disk.",
            "Query the trace after the job has written it: hvdtune timeline query SQL TRACE",
        )
    if run.trace.slice_count > MOST_SLICES:
        return nothing(
            f"The trace has more than {MOST_SLICES:,} slices, too many for queries here.",
            f"Ask in a terminal: hvdtune timeline query SQL {run.title}",
        )
    return None


def register(app: Dash, runs: Runs) -> None:
    for name, sql in _EXAMPLES.items():
        app.callback(
            Output("sql-text", "value", allow_duplicate=True),
            Input({"type": "sql-example", "name": name}, "n_clicks"),
            prevent_initial_call=True,
        )(_giver(sql))
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("hvdtune", "keep_sql"),
        Output("sql-kept", "children"),
        Input("sql-run", "n_clicks"),
        State("sql-text", "value"),
        prevent_initial_call=True,
    )

    @app.callback(
        Output("sql-answer", "children"),
        Input("sql-run", "n_clicks"),
        State("sql-text", "value"),
        State("sql-of", "data"),
    )
    def answer(clicks: int | None, sql: str | None, run: int) -> Any:
        # A link may have brought the query: it never runs by itself.
        if not clicks:
            return no_update
        try:
            found = QUERIES.ask(runs[run].whole_trace, sql or "", LIMITS)
        except HvdtuneError as error:
            return nothing(capitalized(str(error)), "Change the query.")
        return _shown(found)


def _giver(sql: str) -> Any:
    return lambda clicks: sql if clicks else no_update


def _shown(found: pd.DataFrame) -> Component:
    if found.empty:
        return section("Answer", note(without_rows(found)))
    rows = found.head(MOST_ROWS)
    if len(rows) < len(found):
        said = f"The first {MOST_ROWS:,} rows are shown. Set another number with LIMIT."
    else:
        said = f"{counted(len(rows), 'row')}."
    # Columns may have any name, also one that the table takes for a path.
    headers = {f"column_{place}": str(name) or " " for place, name in enumerate(rows.columns)}
    named = rows.set_axis(list(headers), axis=1)
    texts = [name for name in headers if not pd.api.types.is_numeric_dtype(named[name])]
    named = named.assign(**{name: _texts(named[name]) for name in texts})
    return section("Answer", note(said), grid("sql-table", number_columns(named, headers), named))


def _texts(column: pd.Series) -> pd.Series:
    """Values as texts, what is unknown as SQL calls it."""
    return column.astype(object).where(column.notna(), "NULL").map(str)
