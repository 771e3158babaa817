"""Ranks: who is late in which step, with what, and who waits for whom."""

import pandas as pd
from dash import html
from dash.development.base_component import Component

from hvdtune.dashboard.blocks import (
    defined,
    figure,
    grid,
    known_columns,
    note,
    nothing,
    number_columns,
    section,
)
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.shell import PageAddress
from hvdtune.timeline.analysis import arrivals
from hvdtune.timeline.analysis.arrivals import Arrivals
from hvdtune.timeline.analysis.headings import headings
from hvdtune.timeline.analysis.metrics import breakdown, stragglers
from hvdtune.timeline.analysis.quantities import in_words
from hvdtune.timeline.analysis.recorded import says_of, with_advice

PATH, TITLE = "/ranks", "Ranks"

_HEADERS = headings(("rank", "host", *stragglers.COLUMNS[1:]))
_ARRIVAL_HEADERS = headings(
    ("rank", "late_percent", "cost_ms_per_step", "operations", "late_ms"), "arrivals"
)


def layout(run: RunView, place: PageAddress) -> list[Component]:
    if run.arrivals is not None:
        return _of_arrivals(run.arrivals)
    if run.steps["rank"].nunique() < 2:
        return [html.H1(TITLE), _of_fewer(run)]
    if lacking := says_of(run.trace, "stragglers"):
        return [html.H1(TITLE), note(with_advice(run.trace, lacking))]
    table = run.late_ranks
    host = pd.Series([run.job.hosts.get(rank, "") for rank in table["rank"]], dtype="str")
    rows = table.assign(host=host.to_numpy())[list(_HEADERS)]
    steps = run.steps["step"].nunique()
    return [
        html.H1(TITLE),
        defined("rank-cost", f"{stragglers.sentence(table)} Steps measured: {steps}."),
        section(
            "Late ranks by step",
            html.P(
                "How much longer each rank is busy in each step than the rank that is busy least.",
                className="hint",
            ),
            figure("lateness", place.run, "Heat map of rank by step: busy time above the fastest"),
        ),
        section(
            "Waits between ranks",
            defined(
                "waiting-for-ranks",
                "The mean time per step that a rank waits for the rank that announces a tensor "
                "last. The sum of a row is the time for which its rank waits for others.",
            ),
            _waits(run, place),
        ),
        section(
            "All ranks",
            defined(
                "finding-cost",
                "A finding about a rank counts one cause. The cost of the finding may be below the "
                "cost of the rank, or above it if the recorded waits are shorter.",
            ),
            grid("rank-table", number_columns(rows, _HEADERS), rows),
        ),
    ]


def _of_fewer(run: RunView) -> Component:
    """What is said where fewer than two ranks have steps."""
    if len(run.steps) and max(len(run.ranks), run.job.size) < 2:
        return nothing(
            "This trace is of one rank, so there is no other to compare it with.",
            "If the job has more ranks, open the folder with the files of all of them.",
        )
    if run.steps.empty:
        return nothing(
            "Fewer than two ranks in this trace have steps, so there is no waiting to show.",
            "Open the folder with the files of all ranks, or mark steps: hvd.mark_step()",
        )
    waited = in_words("waiting-for-ranks", run.quantities["waiting-for-ranks"])
    return nothing(
        f"Only rank {run.steps['rank'].iloc[0]} has steps in this trace, so ranks cannot be "
        f"compared. Waiting for ranks (ms per step): {waited}.",
        "Open the folder with the files of all ranks, or mark steps on each: hvd.mark_step()",
    )


def _waits(run: RunView, place: PageAddress) -> Component:
    if not breakdown.knows_waits(run.steps):
        return note(says_of(run.trace, "efficiency"))
    return figure("waits", place.run, "Heat map of waiting rank by the rank waited for, in ms")


def _of_arrivals(known: Arrivals) -> list[Component]:
    rows = arrivals.table(known)
    return [
        html.H1(TITLE),
        note(arrivals.sentence(known)),
        defined("step-time", arrivals.sentence_of_steps(known)),
        section(
            "Ranks that announce last",
            html.P(
                "An operation begins when the last rank has announced it. This trace does not "
                "record what a rank does before that.",
                className="hint",
            ),
            grid("rank-table", known_columns(rows, number_columns(rows, _ARRIVAL_HEADERS)), rows),
        ),
    ]
