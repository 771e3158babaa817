"""The timeline: what every rank did when, at any zoom."""

from dataclasses import asdict

from dash import ClientsideFunction, Dash, Input, Output, dcc, html
from dash.development.base_component import Component

from hvdtune.dashboard import timeline_view
from hvdtune.dashboard.blocks import defined, nothing, section, sentences
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.evidence import Evidence, evidence_of
from hvdtune.dashboard.runs import Runs
from hvdtune.dashboard.shell import PageAddress
from hvdtune.plural import counted

PATH, TITLE = "/timeline", "Timeline"

_NAME = "swimlane"  # of its elements
_FOUND = (
    "The trace records no steps. The steps above the lanes were found from the recurrence of "
    "tensors; the first ones and the unfinished last one are left out."
)


def layout(run: RunView, place: PageAddress) -> list[Component]:
    if not run.swimlane.lanes:
        return [
            html.H1(TITLE),
            nothing(
                "This trace holds no slices.",
                "Record one: hvdtune run --timeline-filename trace.json train.py",
            ),
        ]
    shown = _asked_evidence(run, place)
    config = timeline_view.settings(run, place, _NAME) | {
        "run": place.run,
        "evidence": None if shown is None else asdict(shown),
        "finding": place.query.get("finding", [""])[0] if shown else "",
    }
    of_busy_time = timeline_view.sentence_of_busy_time(run)
    return [
        html.H1(TITLE),
        dcc.Store(id="swimlane-config", data=config),
        html.Div(id="swimlane-shown", hidden=True),
        html.P(shown.text, className="note evidence") if shown else html.Span(),
        defined("busy-time", of_busy_time) if of_busy_time else html.Span(),
        timeline_view.view(_NAME, "all ranks", _controls(run, place), timeline_view.legend()),
        defined(
            "slices-drawn",
            f"All lanes draw {counted(run.swimlane.slices_drawn, 'slice')}; the trace holds "
            f"{counted(run.trace.slice_count, 'slice')}.",
        ),
        defined("step-time", _FOUND) if run.steps_are_found and len(run.steps) else html.Span(),
        timeline_view.help_dialog(_NAME),
        section("About this trace", sentences("Warnings", run.trace.warnings))
        if run.trace.warnings
        else html.Span(),
    ]


def _controls(run: RunView, place: PageAddress) -> Component:
    buttons = {
        "whole": "Whole trace",
        "path": "Critical path",
        "keys": "Keys and lanes",
        "save": "Save PNG",
    }
    return html.Div(
        [
            *timeline_view.searching(_NAME),
            *timeline_view.choosing(_NAME, run.tensors, run.ranks, place),
            *(timeline_view.button(_NAME, what, title) for what, title in buttons.items()),
        ],
        className="controls",
    )


def _asked_evidence(run: RunView, place: PageAddress) -> Evidence | None:
    """Of the finding that the address names."""
    kind = place.query.get("finding", [""])[0]
    found = next((found for found in run.answer.findings if found.kind == kind), None)
    step = place.whole("step")
    return None if found is None or step is None else evidence_of(run, found, step)


def register(app: Dash, runs: Runs) -> None:
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("timelines", "show"),
        Output("swimlane-shown", "children"),
        Input("swimlane-config", "data"),
        Input("swimlane-ranks", "value"),
        Input("swimlane-tensors", "value"),
        Input("theme", "data"),
    )
