"""The timeline: what every rank did when, at any zoom."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import dash_mantine_components as dmc
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from hvdtune.dashboard.blocks import nothing, section, sentences, spoken
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.evidence import Evidence, evidence_of
from hvdtune.dashboard.runs import Runs
from hvdtune.dashboard.shell import PageAddress

PATH, TITLE = "/timeline", "Timeline"

# What an address keeps; as in lane_order.js and marked_ranges.js.
MOST_LANES = 50
MOST_MARKS = 40
MOST_NOTE = 200
_MARK = re.compile(r"([0-9]{1,18})-([0-9]{1,18}) ?(.*)", re.DOTALL)

_KEYS = (
    ("W S", "zoom in and out"),
    ("A D", "move left and right"),
    ("Left Right", "go to the previous or next slice of the lane"),
    ("Up Down", "go to the lane above or below; so does a click on its name"),
    ("F", "zoom to the chosen slice"),
    ("/", "search; Enter goes to the next hit, Shift and Enter to the one before"),
    ("N, Shift N", "go to the next hit or the one before"),
    ("C", "draw the critical path through the ranks, or take it away"),
    ("M", "mark what was dragged over, the chosen slice or what is in view, with a note"),
    ("T", "show totals of what is in view"),
    ("P", "pin the lane, so that it stays above the others, or let it go"),
    ("E, Shift E", "fold or unfold the lane, or all lanes of its rank"),
    ("Home", "show the whole trace"),
    ("Enter", "go to the description of the slice; Esc goes back"),
    ("Esc", "clear the choice"),
    ("wheel", "scroll; with Ctrl zoom, with Shift move"),
    ("drag", "show totals of a stretch of time, which can be marked with a note"),
    ("drag above", "in the overview: move the window, or draw another"),
)
_MEANINGS = (
    ("compute", "the script computes, as far as is known, or does what a span of its own names"),
    ("wait", "the script waits for operations"),
    ("negotiate", "a tensor is announced and has no response yet"),
    ("queue", "a tensor has its response and waits for its bucket"),
    ("pack", "tensors are copied into a bucket"),
    ("communicate", "a bucket is under way"),
    ("unpack", "results are copied out of a bucket"),
    ("others", "threads and streams as another program recorded them; equal names, equal colours"),
    ("counters", "numbers of another program, from 0 up; pale where one changes within a pixel"),
    ("critical path", "a pink line, in each step along the rank that the others wait for"),
    ("arrows", "flows of the trace, as from a launch to its kernel, where there are few in view"),
    ("settings", "the setting in force, where it changed; equal settings have equal colours"),
)

# As in drawing.js.
LEGEND = {
    "computes": "#0072b2",
    "span of the script": "#d55e00",
    "waits": "#f0e442",
    "negotiates": "#56b4e9",
    "queues": "#b8a1d9",
    "packs": "#e69f00",
    "communicates": "#009e73",
    "unpacks": "#cc79a7",
}


def layout(run: RunView, place: PageAddress) -> list[Component]:
    if not run.swimlane.lanes:
        return [
            html.H1(TITLE),
            nothing(
                "This trace has no events.",
                "Record one: hvdtune run --timeline-filename trace.json train.py",
            ),
        ]
    last = run.swimlane.last_ns
    first_shown, last_shown = place.whole("from"), place.whole("to")
    if first_shown is None or last_shown is None or first_shown >= last_shown:
        first_shown, last_shown = 0, last
    row = place.whole("row")
    shown = _asked_evidence(run, place)
    config = {
        "run": place.run,
        "last_ns": last,
        "from": first_shown,
        "to": last_shown,
        "row": -1 if row is None else row,
        "pinned": place.query.get("pin", [])[:MOST_LANES],
        "folded": place.query.get("fold", [])[:MOST_LANES],
        "path": place.query.get("path", [""])[0] == "1",
        "marks": marks_of(place.query.get("mark", ())),
        "evidence": None if shown is None else asdict(shown),
        "finding": place.query.get("finding", [""])[0] if shown else "",
    }
    return [
        html.H1(TITLE),
        dcc.Store(id="swimlane-config", data=config),
        html.Div(id="swimlane-shown", hidden=True),
        html.P(shown.text, className="note evidence") if shown else html.Span(),
        _controls(run, place),
        _legend(),
        html.P(id="swimlane-status", className="note", role="status"),
        html.Div(
            [
                html.Div(
                    [
                        html.Canvas(
                            id="swimlane-overview",
                            role="img",
                            **spoken("How busy ranks are, and which part of the trace is shown"),
                        ),
                        html.Canvas(
                            id="swimlane",
                            tabIndex=0,
                            role="application",
                            **spoken(
                                "Swimlane of all ranks. W and S zoom, A and D move, arrow keys "
                                "step through slices, slash searches, question mark shows all keys."
                            ),
                        ),
                    ]
                ),
                html.Div(
                    html.P("Choose a slice, or drag over a stretch of time.", className="hint"),
                    id="swimlane-details",
                    tabIndex=-1,
                    role="region",
                    **spoken("About the chosen slice"),
                ),
            ],
            className="swimlane",
        ),
        html.Div(id="swimlane-marks"),
        _help(),
        section("About this trace", sentences("Warnings", run.trace.warnings))
        if run.trace.warnings
        else html.Span(),
    ]


def marks_of(texts: Sequence[str]) -> list[tuple[int, int, str]]:
    """From, to and note of the ranges that an address marks ("FROM-TO NOTE" each, in ns)."""
    found = [match for text in texts if (match := _MARK.fullmatch(text))]
    marks = [(int(match[1]), int(match[2]), match[3][:MOST_NOTE]) for match in found]
    return sorted(mark for mark in marks if mark[0] < mark[1])[:MOST_MARKS]


def _controls(run: RunView, place: PageAddress) -> Component:
    names, ranks = run.tensors, run.ranks
    asked = [name for name in place.query.get("tensor", ()) if name in set(names)]
    chosen = [text for text in place.query.get("rank", ()) if text in set(map(str, ranks))]
    return html.Div(
        [
            dmc.TextInput(
                id="swimlane-search",
                label="Find a tensor or slice",
                placeholder="part of its name",
                className="control-wide",
            ),
            dmc.Button("Find", id="swimlane-find", variant="default"),
            html.Span(id="swimlane-hits", className="hint hits", role="status"),
            dmc.MultiSelect(
                data=names[:5000],
                value=asked,
                id="swimlane-tensors",
                label="Lanes of tensors",
                searchable=True,
                limit=50,
                maxValues=12,
                className="control-wide",
            ),
            dmc.MultiSelect(
                data=[{"label": f"rank {rank}", "value": str(rank)} for rank in ranks],
                value=chosen,
                id="swimlane-ranks",
                label="Ranks",
                placeholder="" if chosen else "all",
                searchable=True,
                className="control-middle",
            ),
            dmc.Button("Whole trace", id="swimlane-whole", variant="default"),
            dmc.Button("Critical path", id="swimlane-path", variant="default"),
            dmc.Button("Keys and lanes", id="swimlane-keys", variant="default"),
            dmc.Button("Save PNG", id="swimlane-save", variant="default"),
        ],
        className="controls",
    )


def _asked_evidence(run: RunView, place: PageAddress) -> Evidence | None:
    """Of the finding that the address names."""
    kind = place.query.get("finding", [""])[0]
    found = next((found for found in run.answer.findings if found.kind == kind), None)
    step = place.whole("step")
    return None if found is None or step is None else evidence_of(run, found, step)


def _legend() -> Component:
    return html.Div(
        [html.Span([html.I(style={"background": color}), name]) for name, color in LEGEND.items()],
        className="legend",
    )


def _help() -> Component:
    def rows(pairs: Sequence[tuple[str, str]]) -> Component:
        return html.Dl(
            [part for term, text in pairs for part in (html.Dt(term), html.Dd(text))],
            className="keys",
        )

    # swimlane.js opens it.
    return html.Dialog(
        [
            html.H2("Keys"),
            rows(_KEYS),
            html.H2("Lanes"),
            rows(_MEANINGS),
            html.Form(html.Button("Close"), method="dialog"),
        ],
        id="swimlane-help",
        **spoken("Keys and lanes"),
    )


def register(app: Dash, runs: Runs) -> None:
    def in_browser(name: str, output: Output, *inputs: Any) -> None:
        app.clientside_callback(  # type: ignore[no-untyped-call]
            ClientsideFunction("swimlane", name), output, *inputs
        )

    shown = Output("swimlane-shown", "children", allow_duplicate=True)
    in_browser(
        "show",
        Output("swimlane-shown", "children"),
        Input("swimlane-config", "data"),
        Input("swimlane-ranks", "value"),
        Input("swimlane-tensors", "value"),
        Input("theme", "data"),
    )
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("swimlane", "find"),
        shown,
        Input("swimlane-find", "n_clicks"),
        State("swimlane-search", "value"),
        prevent_initial_call=True,
    )
    for name in ("whole", "path", "save", "keys"):
        app.clientside_callback(  # type: ignore[no-untyped-call]
            ClientsideFunction("swimlane", name),
            shown,
            Input(f"swimlane-{name}", "n_clicks"),
            prevent_initial_call=True,
        )
