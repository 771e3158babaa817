"""Membership: which ranks an elastic job had when, what each reset cost, and its goodput."""

from dash import html
from dash.development.base_component import Component

from hvdtune.dashboard.blocks import (
    figure,
    grid,
    note,
    nothing,
    number_columns,
    section,
)
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.membership import PHASES
from hvdtune.dashboard.shell import PageAddress
from hvdtune.plural import capitalized

PATH, TITLE = "/membership", "Membership"

_HEADERS = {
    "reset": "Reset",
    "began_s": "Began (s)",
    **{phase: f"{phase.capitalize()} (s)" for phase in PHASES},
    "total_s": "Total (s)",
}


def layout(run: RunView, place: PageAddress) -> list[Component]:
    known = run.membership
    if known is None:
        return [
            html.H1(TITLE),
            nothing(
                "The ranks of this job did not change, or no change was recorded.",
                "Run an elastic job with -o FOLDER, then open the folder: "
                "hvdtune run --min-np 2 -o FOLDER train.py",
            ),
        ]
    rows = known.resets.assign(reset=range(1, len(known.resets) + 1))[list(_HEADERS)]
    parts: list[Component] = [html.H1(TITLE)]
    parts += [note(f"{capitalized(sentence)}.") for sentence in known.sentences]
    parts.append(
        section(
            "Workers in the job over time",
            html.P(
                "A row for each worker; the colour changes with the generation. A grey band is a "
                "reset: from the last commit before ranks joined or left to the first commit "
                "after that.",
                className="hint",
            ),
            figure("membership", place.run, "Bars: when each worker was in the job", 320),
        )
    )
    if rows.empty:
        return [*parts, note("No rank has joined or left.")]
    return [
        *parts,
        section(
            "What each reset cost",
            figure("resets", place.run, "Stacked bars, one per reset: its phases in seconds"),
            grid("reset-table", number_columns(rows, _HEADERS), rows),
        ),
    ]
