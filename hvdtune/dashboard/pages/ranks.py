"""Ranks: who is late in which step, with what, and who waits for whom."""

import pandas as pd
from dash import html
from dash.development.base_component import Component

from hvdtune.dashboard.blocks import figure, grid, note, nothing, number_columns, section
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.shell import PageAddress
from hvdtune.timeline.analysis.metrics import stragglers

PATH, TITLE = "/ranks", "Ranks"

_HEADERS = {
    "rank": "Rank",
    "host": "Host",
    "own_ms": "Own time, median (ms)",
    "late_percent": "Last in (% of steps)",
    "cost_ms_per_step": "Costs (ms per step)",
    "reason": "Most of it",
    "excess_ms": "More of that than others (ms)",
    "waited_ms_per_step": "Waited for others (ms per step)",
}


def layout(run: RunView, place: PageAddress) -> list[Component]:
    if run.steps["rank"].nunique() < 2:
        return [
            html.H1(TITLE),
            nothing(
                "There are fewer than two ranks with steps in this trace, so nobody waits.",
                "Open the folder with the files of all ranks, or mark steps: hvd.mark_step()",
            ),
        ]
    table = stragglers.table(run.steps)
    host = pd.Series([run.job.hosts.get(rank, "") for rank in table["rank"]], dtype="str")
    rows = table.assign(host=host.to_numpy())[list(_HEADERS)]
    steps = run.steps["step"].nunique()
    return [
        html.H1(TITLE),
        note(f"{stragglers.sentence(table)} From {steps} steps."),
        section(
            "Who is late when",
            html.P(
                "Own time of each rank in each step, above the fastest rank's: what the others "
                "wait for.",
                className="hint",
            ),
            figure("lateness", place.run, "Heat map of rank by step: busy time above the fastest"),
        ),
        section(
            "Who waits for whom",
            html.P(
                "Mean time of a step in which a rank waits and another one's announcement is "
                "lacking: the last one's.",
                className="hint",
            ),
            figure("waits", place.run, "Heat map of waiting rank by the rank waited for, in ms"),
        ),
        section("Of each rank", grid("rank-table", number_columns(rows, _HEADERS), rows)),
    ]
