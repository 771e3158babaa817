"""Pieces that pages are made of: cards, sections, tables, figures, links."""

from collections.abc import Sequence
from typing import Any

import dash_ag_grid as dag
import dash_mantine_components as dmc
import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component
from flask import has_request_context, request

from hvdtune.dashboard.server import PREFIX
from hvdtune.timeline.analysis.quantities import QUANTITIES, in_words

GRAPH: Any = {
    "displaylogo": False,
    "showSendToCloud": False,
    "responsive": True,
    # Buttons below each figure save it, see `drawn`.
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "toImage"],
}


def rooted(path: str) -> str:
    """Put the prefix of the request that is being answered before an absolute path."""
    return request.environ.get(PREFIX, "") + path if has_request_context() else path


def spoken(text: str) -> dict[str, Any]:
    """Describe a component to those who do not see it."""
    return {"aria-label": text}


def section(title: str, *parts: Component | str | None, name: str = "") -> Component:
    """A titled part of a page."""
    kept = [part for part in parts if part is not None]
    more: dict[str, Any] = {"id": name} if name else {}
    return html.Section([html.H2(title), *kept], className="section", **more)


def card(title: str, value: str, explanation: str) -> Component:
    """A number, with what it is above and what it rests on below."""
    return html.Div(
        [
            html.Div(title, className="card-title"),
            html.Div(value, className="card-value"),
            html.Div(explanation, className="card-note"),
        ],
        className="card",
    )


def quantity(key: str, value: float, explanation: str = "", *, ranks: int = 2) -> Component:
    """A card of one of `quantities.QUANTITIES`, which leads to its definition.

    Args:
        ranks: over how many the value is a mean, where nothing else explains it.
    """
    of_ranks = f"{_without_unit(key)}{', mean of all ranks' if ranks > 1 else ''}"
    about: Any = {"data-quantity": key, "data-value": in_words(key, value)}
    return html.Div(
        [
            html.A(
                QUANTITIES[key].title, href=rooted(f"/definitions#{key}"), className="card-title"
            ),
            html.Div(in_words(key, value), className="card-value"),
            html.Div(explanation or of_ranks, className="card-note"),
        ],
        className="card",
        **about,
    )


def _without_unit(key: str) -> str:
    """What the value of a quantity is of: its unit is beside the value."""
    return QUANTITIES[key].unit.partition(" ")[2]


def defined(key: str, text: str) -> Component:
    """A sentence about a quantity, with a link to its definition."""
    return html.P(
        [text, " ", html.A("Definition", href=rooted(f"/definitions#{key}"))], className="note"
    )


def cards(found: Sequence[Component]) -> Component:
    """Several beside one another."""
    return html.Div(list(found), className="cards")


def failure(text: str, remedy: str) -> Component:
    """An error state: what could not be done, and what to do about it."""
    alert: Component = dmc.Alert([html.P(text), html.P(remedy)], color="red", className="nothing")
    return alert


def note(text: str, name: str = "") -> Component:
    """A sentence about what is shown."""
    more: dict[str, Any] = {"id": name} if name else {}
    return html.P(text, className="note", **more)


def nothing(text: str, remedy: str) -> Component:
    """An empty state: what is not there, and what to do about it."""
    alert: Component = dmc.Alert([html.P(text), html.P(remedy)], color="gray", className="nothing")
    return alert


def sentences(title: str, texts: Sequence[str], most: int = 8) -> Component | None:
    """A list of warnings or notes; None: there are none."""
    if not texts:
        return None
    items = [html.Li(text) for text in texts[:most]]
    if len(texts) > most:
        items.append(html.Li(f"and {len(texts) - most} more"))
    return html.Div([html.Strong(title), html.Ul(items)], className="warnings")


def figure(name: str, run: int, label: str, height: int = 300) -> Component:
    """Room for a figure of `figures.FIGURES`, which is drawn when it is there.

    Args:
        label: what it shows, for those who do not see it.
    """
    graph = dcc.Graph(
        id={"type": "figure", "name": name, "run": run},
        config=GRAPH,
        style={"height": f"{height}px"},
    )
    return drawn(graph, label)


def drawn(graph: dcc.Graph, label: str, **more: Any) -> Component:
    """A figure with its label for those who do not see it, and buttons that save it."""
    # page.js does what is asked for here.
    buttons = [_saving("svg", label), _saving("png", label)]
    parts = [graph, html.Div(buttons, className="saves")]
    return html.Div(parts, role="figure", **spoken(label), **more)


def _saving(kind: str, label: str) -> Component:
    asked: Any = {"data-save": kind}
    words = spoken(f"Save as {kind.upper()}: {label}")
    return html.Button(kind.upper(), className="quiet", **asked, **words)


def grid(
    name: str, columns: Sequence[dict[str, Any]], rows: pd.DataFrame, **options: Any
) -> Component:
    """A table that can be sorted, filtered and downloaded, as STEM.csv of a name STEM-table.

    Columns that do not fit are behind a button; see tables.js for which.
    """
    is_long = len(rows) > MOST_UNSCROLLED
    made: Component = dag.AgGrid(
        id=name,
        columnDefs=list(columns),
        rowData=rows.astype(object).where(rows.notna(), None).to_dict("records"),
        defaultColDef={
            "sortable": True,
            "filter": True,
            "resizable": True,
            "minWidth": 96,
            "wrapHeaderText": True,
            "autoHeaderHeight": True,
        },
        dashGridOptions={
            "rowHeight": 32,
            "domLayout": "normal" if is_long else "autoHeight",
            "animateRows": False,
            "rowSelection": {
                "mode": "singleRow",
                "checkboxes": False,
                "enableClickSelection": True,
            },
            "enableCellTextSelection": True,
        },
        style={"height": "440px" if is_long else None, "width": "100%"},
        **options,
    )
    stem = name.removesuffix("-table")
    # page.js does what is asked for here.
    download: Any = {"data-table": name, "data-file": f"{stem}.csv"}
    button = html.Button(
        "Download CSV",
        id=f"{name}-csv",
        className="quiet",
        **download,
        **spoken(f"Download CSV: {stem}"),
    )
    more: Any = {"data-more": name}
    rest = html.Button("Show all columns", className="quiet", hidden=True, **more)
    return html.Div([html.Div([rest, button], className="table-buttons"), made])


_SIZES = {"from_bytes", "bytes"}
MOST_UNSCROLLED = 12  # rows


def number_columns(rows: pd.DataFrame, headers: dict[str, str]) -> list[dict[str, Any]]:
    """Column definitions for a table of texts and numbers."""
    found = []
    for field, header in headers.items():
        column = text_column(field, header)
        if not pd.api.types.is_numeric_dtype(rows[field]):
            column |= of_names(rows[field], column["minWidth"])
        else:
            column |= of_numbers(0 if pd.api.types.is_integer_dtype(rows[field]) else 2)
            if field in _SIZES or field.startswith("bytes_"):
                column |= of_sizes()
            elif field.endswith("_ms") or "_ms_" in field or field.startswith("ms_"):
                column |= of_times()
            if field.startswith("gb_per_s_"):
                column |= _of("hvdtuneRate(params.value)")
            elif field == "percent":
                column |= _of("hvdtuneChange(params.value)")
        found.append(column)
    return found


def known_columns(rows: pd.DataFrame, columns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The definitions of those columns in which at least one row has something."""
    has = {name: rows[name].notna() & (rows[name] != "") for name in rows}
    return [column for column in columns if has[column["field"]].any()]


def text_column(field: str, header: str, aside: int = 0) -> dict[str, Any]:
    """The definition of a column, with room for the header's longest word beside its marks.

    Args:
        aside: columns of the greatest make room first where not all fit.
    """
    longest = max(map(len, header.split()))
    column: dict[str, Any] = {"field": field, "headerName": header, "minWidth": 62 + 8 * longest}
    return column | ({"context": {"aside": aside}} if aside else {})


def of_names(names: "pd.Series[Any]", least_px: int, most_px: int = 240) -> dict[str, Any]:
    """The entries that the definition of a column of texts has besides those of any column.

    A text that does not fit is cut in its middle, since names often begin alike, and can be copied
    whole.

    Args:
        least_px: the width, in px, that the column has at least.
        most_px: the width that long texts ask for at most.
    """
    longest = max(map(len, names.astype(str)), default=0)
    width = max(least_px, min(36 + 7 * longest, most_px))
    return {"minWidth": width, "cellRenderer": "HvdtuneName"}  # see tables.js


def of_sizes() -> dict[str, Any]:
    """The same as `of_numbers` for bytes, shown as `plural.sized` does."""
    return _of("hvdtuneSize(params.value)")  # see page.js


def of_times() -> dict[str, Any]:
    """The same as `of_numbers` for ms, with no more digits than people read."""
    return _of("hvdtuneMs(params.value)")


def of_numbers(decimals: int) -> dict[str, Any]:
    """The entries that the definition of a column of numbers has besides those of any column."""
    return of_format(f",.{decimals}f")


def of_format(d3_format: str) -> dict[str, Any]:
    """The same as `of_numbers` for numbers of any format of d3's."""
    return _of(f"params.value == null ? '' : d3.format('{d3_format}')(params.value)")


def _of(shown: str) -> dict[str, Any]:
    formatter = {"function": shown}
    return {"type": "rightAligned", "filter": "agNumberColumnFilter", "valueFormatter": formatter}
