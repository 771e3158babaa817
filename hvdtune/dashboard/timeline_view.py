"""A timeline as pages show it: what swimlane.js draws in, and what it needs to know."""

import re
from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from hvdtune.dashboard.blocks import spoken
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.shell import PageAddress
from hvdtune.timeline.analysis.metrics import breakdown
from hvdtune.timeline.analysis.recorded import says_of, with_advice

# What an address keeps; as in lane_order.js and marked_ranges.js.
MOST_LANES = 50
MOST_MARKS = 40
MOST_NOTE = 200
_MARK = re.compile(r"([0-9]{1,18})-([0-9]{1,18}) ?(.*)", re.DOTALL)

MOST_NAMES = 5_000  # of tensors that are offered

_KEYS = (
    ("W S", "zoom in and out"),
    ("A D", "move left and right"),
    ("Left Right", "go to the previous or next slice of the lane"),
    ("Up Down", "go to the lane above or below; so does a click on its name"),
    ("F", "zoom to the chosen slice"),
    ("/", "search; Enter goes to the next hit, Shift and Enter to the one before"),
    ("N, Shift N", "go to the next hit or the one before"),
    ("C", "show or hide the critical path through the ranks"),
    ("M", "mark the dragged range, the chosen slice or the visible range, with a note"),
    ("T", "show totals of the visible range"),
    ("P", "pin or unpin the lane; pinned lanes stay on top"),
    ("E, Shift E", "fold or unfold the lane, or all lanes of its rank"),
    ("Home", "show the whole trace"),
    ("Enter", "go to the description of the slice; Esc goes back"),
    ("Esc", "clear the selection"),
    ("wheel", "scroll; with Ctrl zoom, with Shift move"),
    ("drag", "show totals of a stretch of time, which can be marked with a note"),
    ("drag above", "in the overview: move the frame, or draw a new one"),
)
_MEANINGS = (
    (
        "busy",
        "the script does not wait for operations: it computes, is off the processor, or runs "
        "the work of a named span",
    ),
    ("wait", "the script waits for operations"),
    ("negotiate", "a tensor is announced and has no response yet"),
    ("queue", "a tensor has its response and waits for its bucket"),
    ("pack", "tensors are copied into a bucket"),
    ("communicate", "a bucket is under way"),
    ("unpack", "results are copied out of a bucket"),
    ("others", "threads and streams as another program recorded them; equal names, equal colours"),
    ("counters", "counters of another program, from 0 up; pale if a value changes within a pixel"),
    ("critical path", "a pink line, in each step along the rank that the others wait for"),
    ("arrows", "flows of the trace, such as from a launch to its kernel, if few are visible"),
    ("settings", "the setting in use, where it changed; equal settings have equal colours"),
)

# As in drawing.js.
LEGEND = {
    "busy": "#0072b2",
    "span recorded by the script": "#d55e00",
    "waits": "#f0e442",
    "negotiates": "#56b4e9",
    "queues": "#b8a1d9",
    "packs": "#e69f00",
    "communicates": "#009e73",
    "unpacks": "#cc79a7",
}


def settings(run: RunView, place: PageAddress, name: str, prefix: str = "") -> dict[str, Any]:
    """What the script needs to know of a timeline that `view` lays out under the same name.

    Args:
        prefix: of what the address says of this one; pinned and folded lanes are without.
    """
    first, last, row = (place.whole(f"{prefix}{key}") for key in ("from", "to", "row"))
    if first is None or last is None or first >= last:
        first = last = None
    return {
        "root": f"{name}-view",
        "last_ns": run.swimlane.last_ns,
        "from": first,
        "to": last,
        "row": -1 if row is None else row,
        "pinned": place.query.get("pin", [])[:MOST_LANES],
        "folded": place.query.get("fold", [])[:MOST_LANES],
        "path": place.query.get(f"{prefix}path", [""])[0] == "1",
        "marks": marks_of(place.query.get(f"{prefix}mark", ())),
    }


def marks_of(texts: Sequence[str]) -> list[tuple[int, int, str]]:
    """From, to and note of the ranges that an address marks ("FROM-TO NOTE" each, in ns)."""
    found = [match for text in texts if (match := _MARK.fullmatch(text))]
    marks = [(int(match[1]), int(match[2]), match[3][:MOST_NOTE]) for match in found]
    return sorted(mark for mark in marks if mark[0] < mark[1])[:MOST_MARKS]


def view(name: str, label: str, *above: Component) -> Component:
    """A timeline, whose elements have ids that begin with `name`.

    Args:
        label: whose it is, for those who do not see it.
        above: its title and controls.
    """
    overview = html.Canvas(
        role="img",
        **_part(name, "overview"),
        **spoken(f"Overview of {label}: how busy ranks are, and which part is shown"),
    )
    lanes: Any = {"data-part": "lanes"}
    swimlane = html.Canvas(
        id=name,
        tabIndex=0,
        role="application",
        **lanes,
        **spoken(
            f"Swimlane of {label}. W and S zoom, A and D move, arrow keys step through slices, "
            "slash searches, question mark shows all keys."
        ),
    )
    details = html.Div(
        html.P("Choose a slice, or drag over a stretch of time.", className="hint"),
        tabIndex=-1,
        role="region",
        **_part(name, "details"),
        **spoken(f"About the chosen slice of {label}"),
    )
    return html.Div(
        [
            *above,
            html.P(className="note", role="status", **_part(name, "status")),
            html.Div([html.Div([overview, swimlane]), details], className="swimlane"),
            html.Div(**_part(name, "marks")),
        ],
        id=f"{name}-view",
        className="timeline",
    )


def searching(name: str) -> list[Component]:
    """Controls that find slices of the timeline that they are above."""
    field = dmc.TextInput(
        id=f"{name}-search", label="Find a tensor or slice", placeholder="part of its name"
    )
    part: Any = {"data-part": "search"}
    return [
        html.Div(field, className="control-wide", **part),
        button(name, "find", "Find"),
        html.Span(className="hint hits", role="status", **_part(name, "hits")),
    ]


def choosing(
    name: str, names: Sequence[str], ranks: Sequence[int], place: PageAddress
) -> list[Component]:
    """Controls for which tensors and ranks have lanes, with what the address says."""
    known, numbers = set(names), {str(rank) for rank in ranks}
    asked = [tensor for tensor in place.query.get("tensor", ()) if tensor in known]
    chosen = [text for text in place.query.get("rank", ()) if text in numbers]
    return [
        dmc.MultiSelect(
            data=list(names[:MOST_NAMES]),
            value=asked,
            id=f"{name}-tensors",
            label="Lanes of tensors",
            searchable=True,
            limit=50,
            maxValues=12,
            className="control-wide",
        ),
        dmc.MultiSelect(
            data=[{"label": f"rank {rank}", "value": str(rank)} for rank in ranks],
            value=chosen,
            id=f"{name}-ranks",
            label="Ranks",
            placeholder="" if chosen else "all",
            searchable=True,
            className="control-middle",
        ),
    ]


def button(name: str, what: str, title: str) -> Component:
    """A button that swimlane.js, or of "keys" timelines.js, obeys."""
    asked: Any = {"data-do": what}
    made: Component = dmc.Button(title, id=f"{name}-{what}", variant="default", **asked)
    return made


def _part(name: str, part: str) -> Any:
    """Attributes of what swimlane.js knows as a part of the timeline."""
    return {"id": f"{name}-{part}", "data-part": part}


def sentence_of_busy_time(run: RunView) -> str:
    """What of the lanes of busy time is no computing, or why that is not known; "": nothing."""
    unknown = says_of(run.trace, "stragglers") if len(run.steps) else ""
    return with_advice(run.trace, unknown) or breakdown.sentence_of_busy_time(run.steps)


def legend() -> Component:
    """What the colours of lanes mean."""
    return html.Div(
        [html.Span([html.I(style={"background": color}), name]) for name, color in LEGEND.items()],
        className="legend",
    )


def help_dialog(name: str) -> Component:
    """All keys, and what the lanes are."""

    def rows(pairs: Sequence[tuple[str, str]]) -> Component:
        return html.Dl(
            [part for term, text in pairs for part in (html.Dt(term), html.Dd(text))],
            className="keys",
        )

    # timelines.js opens it.
    return html.Dialog(
        [
            html.H2("Keys"),
            rows(_KEYS),
            html.H2("Lanes"),
            rows(_MEANINGS),
            html.Form(html.Button("Close"), method="dialog"),
        ],
        tabIndex=-1,
        className="swimlane-help",
        **_part(name, "help"),
        **spoken("Keys and lanes"),
    )
