"""Compare: two runs side by side, with confidence."""

from typing import Any

import dash_mantine_components as dmc
import pandas as pd
from dash import ALL, MATCH, ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from hvdtune.dashboard import timeline_view
from hvdtune.dashboard.blocks import (
    GRAPH,
    defined,
    drawn,
    grid,
    note,
    nothing,
    number_columns,
    section,
    spoken,
)
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.figures.comparison import HEIGHT, parts_figure, times_figure
from hvdtune.dashboard.figures.theme import theme_of
from hvdtune.dashboard.runs import Runs
from hvdtune.dashboard.shell import PageAddress
from hvdtune.plural import capitalized, counted
from hvdtune.timeline.analysis import compare
from hvdtune.timeline.analysis.metrics import breakdown

PATH, TITLE = "/compare", "Compare"

_HEADERS = {
    "quantity": "Part of a step",
    "a_ms": "First (ms)",
    "b_ms": "Second (ms)",
    "change_ms": "Change (ms)",
    "interval_ms": "95 % interval (ms)",
    "percent": "Change (%)",
}
_SIDES = ("first", "second")
_PREFIXES = ("", "with-")  # of what the address says of each timeline; as in timelines.js
_FROM_START = "start"  # as a step of the address: none


def layout(run: RunView, place: PageAddress) -> list[Component]:
    del run
    return [
        html.H1(TITLE),
        html.Div(id="compare-choice"),
        html.Div(id="compare-shown"),
        html.Div(id="compare-timelines"),
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

    _register_timelines(app, runs)


def _register_timelines(app: Dash, runs: Runs) -> None:
    @app.callback(
        Output("compare-timelines", "children"),
        Input("compare-a", "value"),
        Input("compare-b", "value"),
        State("url", "search"),
        prevent_initial_call=True,
    )
    def lay_out(first: str | None, second: str | None, search: str | None) -> Any:
        if first is None or second is None:
            return None
        numbers = int(first), int(second)
        place = PageAddress.of(search, len(runs))
        if numbers != _asked(search, len(runs)):  # then what it says is of others
            place = PageAddress(numbers[0], {})
        return _timelines(runs, numbers, place)

    @app.callback(
        Output({"type": "compare-span", "side": MATCH, "run": MATCH}, "data"),
        Output({"type": "compare-step", "side": MATCH, "run": MATCH}, "error"),
        Input({"type": "compare-step", "side": MATCH, "run": MATCH}, "value"),
        State({"type": "compare-step", "side": MATCH, "run": MATCH}, "id"),
        prevent_initial_call=True,
    )
    def choose(value: float | str | None, own: dict[str, Any]) -> tuple[Any, str | None]:
        run, side = runs[own["run"]], own["side"]
        if value in ("", None):
            return _span(run, side, None), None
        if value not in run.step_spans.index:
            steps = counted(len(run.step_spans), "step")
            return no_update, f"Step {value} is not among the {steps} that are compared."
        return _span(run, side, int(value)), None

    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("timelines", "compare"),
        Output("compare-drawn", "children"),
        Input("compare-config", "data"),
        Input({"type": "compare-span", "side": ALL, "run": ALL}, "data"),
        Input("compare-linked", "checked"),
        Input("compare-ranks", "value"),
        Input("compare-tensors", "value"),
        Input("theme", "data"),
    )


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
    unseen = {breakdown.note_of_unseen_gpus(run.trace.events, run.steps) for run in (a, b)} - {""}
    about = [note(f"{capitalized(text)}.") for text in sorted(unseen)]
    shown = [note(says), *about, _pictures((a, b), left, right, theme)]
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
                "Record more steps, and mark them in the script: hvd.mark_step()",
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


def _timelines(runs: Runs, numbers: tuple[int, int], place: PageAddress) -> Component:
    """Both timelines, which load when they are in sight."""
    pair = tuple(runs[number] for number in numbers)
    for run in pair:
        if not run.swimlane.lanes:
            return nothing(
                f"{run.title} holds no slices, so there are no timelines to compare.",
                "Record it: hvdtune run --timeline-filename trace.json train.py",
            )
    tensors = list(dict.fromkeys(name for run in pair for name in run.tensors))
    ranks = sorted({rank for run in pair for rank in run.ranks})
    linked = dmc.Switch(
        id="compare-linked",
        label="Same time scale: zoom and move both",
        checked=place.query.get("linked", ["1"])[0] != "0",
    )
    sides = [
        timeline_view.settings(runs[number], place, f"compare-{side}", prefix) | {"run": number}
        for number, side, prefix in zip(numbers, _SIDES, _PREFIXES, strict=True)
    ]
    views = [_timeline(runs[number], number, side, place) for side, number in enumerate(numbers)]
    return section(
        "Timelines",
        html.P(
            "Both timelines are aligned at the start of a step: a typical one, until you choose "
            "another. Traces without steps are aligned at their start. Rulers count from there.",
            className="hint",
        ),
        html.Div(
            [
                linked,
                *timeline_view.choosing("compare", tensors, ranks, place),
                timeline_view.button("compare", "keys", "Keys and lanes"),
            ],
            className="controls",
        ),
        timeline_view.legend(),
        html.Div(views, className="timelines"),
        timeline_view.help_dialog("compare"),
        dcc.Store(id="compare-config", data=sides),
        html.Span(id="compare-drawn", hidden=True),
    )


def _timeline(run: RunView, number: int, side: int, place: PageAddress) -> Component:
    name = f"compare-{_SIDES[side]}"
    step = _asked_step(run, place, _PREFIXES[side])
    known = [int(number) for number in run.step_spans.index[[0, -1]]] if len(run.steps) else []
    field = dmc.NumberInput(
        id={"type": "compare-step", "side": side, "run": number},
        label="Step ({:,} to {:,})".format(*known) if known else "Step (no step is known)",
        value="" if step is None else step,
        disabled=not known,
        min=min(known, default=None),
        max=max(known, default=None),
        allowDecimal=False,
        debounce=300,
        className="control-middle",
    )
    buttons = {"whole": "Whole trace", "path": "Critical path", "save": "Save PNG"}
    title = f"{_SIDES[side].capitalize()}: {run.title}"
    of_busy_time = timeline_view.sentence_of_busy_time(run)
    view = timeline_view.view(
        name,
        f"the {_SIDES[side]} run",
        html.H3(title),
        defined("busy-time", of_busy_time) if of_busy_time else html.Span(),
        html.Div(
            [
                field,
                *timeline_view.searching(name),
                *(timeline_view.button(name, what, text) for what, text in buttons.items()),
            ],
            className="controls",
        ),
    )
    span = dcc.Store(
        id={"type": "compare-span", "side": side, "run": number}, data=_span(run, side, step)
    )
    return html.Div([span, view], role="group", **spoken(title))


def _asked_step(run: RunView, place: PageAddress, prefix: str) -> int | None:
    """The step that the address names, or else a typical one; None: the start of the trace."""
    if place.query.get(f"{prefix}step", [""])[0] == _FROM_START:
        return None
    asked = place.whole(f"{prefix}step")
    return asked if asked in run.step_spans.index else run.typical_step


def _span(run: RunView, side: int, step: int | None) -> dict[str, Any]:
    """Where a timeline is aligned and what it shows at first: a step, or the whole trace."""
    first, last = 0, run.swimlane.last_ns
    if step is not None:
        row = run.step_spans.index.tolist().index(step)
        first, last = (int(run.step_spans[key].iloc[row]) for key in ("first_ns", "last_ns"))
    return {"side": side, "step": step, "first_ns": first, "last_ns": last}
