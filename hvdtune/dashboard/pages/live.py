"""Live: a job under way, as its steps come."""

import json
from typing import Any

import dash_mantine_components as dmc
import pandas as pd
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from hvdtune.dashboard.blocks import GRAPH, defined, drawn, note, nothing, section
from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.figures.live import step_times_figure
from hvdtune.dashboard.figures.theme import theme_of
from hvdtune.dashboard.live import Snapshot
from hvdtune.dashboard.pages.finding_words import costs, sure
from hvdtune.dashboard.runs import Runs
from hvdtune.dashboard.shell import PageAddress, link
from hvdtune.plural import capitalized, counted
from hvdtune.timeline.analysis.findings import TraceFinding
from hvdtune.timeline.analysis.metrics import breakdown

PATH, TITLE = "/live", "Live"

_EVERY_MS = 1_000
# Values of an interval's `max_intervals`
_NO_TICKS, _ANY_TICKS = 0, -1
_LAST = {"100": "last 100 steps", "500": "last 500 steps", "0": "all steps kept"}
MOST_ADOPTED = 20


def layout(run: RunView, place: PageAddress) -> list[Component]:
    del run
    return [html.H1(TITLE), html.Div(id="live-place"), dcc.Store(id="live-run", data=place.run)]


def register(app: Dash, runs: Runs) -> None:
    @app.callback(Output("live-place", "children"), Input("live-run", "data"))
    def lay_out(number: int) -> list[Component]:
        if runs.live is None:
            return [
                nothing(
                    "This dashboard shows files; no job is attached to it.",
                    "Attach a running job: hvdtune dashboard --attach RUN, where RUN is its run "
                    "folder or a process id.",
                )
            ]
        return _attached()

    @app.callback(
        Output("live-tick", "max_intervals"),
        Output("live-pause", "children"),
        Input("live-pause", "n_clicks"),
        prevent_initial_call=True,
    )
    def pause(clicks: int | None) -> tuple[int, str]:
        paused = bool((clicks or 0) % 2)
        return (_NO_TICKS, "Resume") if paused else (_ANY_TICKS, "Pause")

    @app.callback(
        Output("live-steps", "figure"),
        Output("live-busy", "figure"),
        Output("live-busy-place", "hidden"),
        Output("live-note", "children"),
        Output("live-verdict", "children"),
        Output("live-seen", "data"),
        Input("live-tick", "n_intervals"),
        Input("live-last", "value"),
        Input("theme", "data"),
        State("live-seen", "data"),
        # Dash drops an answer that comes after the next question: on a busy machine, where an
        # answer takes longer than a tick, all of them.
        running=[(Output("live-tick", "disabled"), True, False)],
    )
    def show(ticks: int | None, last: str, theme: str | None, seen: Any) -> Any:
        del ticks
        if runs.live is None:
            return (no_update,) * 6
        now = runs.live.now
        state = [now.number, now.note, now.ended, last, theme]
        if state == seen:
            return (no_update,) * 6
        steps, adopted = _steps(now, int(last))
        ended = "The job has ended." if now.ended else ""
        status = " ".join(word for word in (_told(now), now.note, ended) if word)
        figure = step_times_figure(steps, adopted, theme_of(theme))
        busy = _busy(now, int(last))
        busy_figure = step_times_figure(busy, [], theme_of(theme), "busy_ms")
        return figure, busy_figure, busy.empty, status, verdict(now.run), state


def _attached() -> list[Component]:
    return [
        html.Div(
            [
                html.Button("Pause", id="live-pause"),
                dmc.Select(
                    data=[{"value": key, "label": text} for key, text in _LAST.items()],
                    value="100",
                    id="live-last",
                    label="Show",
                    allowDeselect=False,
                ),
            ],
            className="controls",
        ),
        html.Div(note("", name="live-note"), role="status"),
        section(
            "Step times",
            html.P("A dashed line marks a step in which a setting was adopted.", className="hint"),
            drawn(
                dcc.Graph(id="live-steps", config=GRAPH, style={"height": "300px"}),
                "Lines: ms of each step, for each rank",
            ),
        ),
        html.Div(
            section(
                "Busy time",
                defined(
                    "busy-time",
                    "Ranks synchronize in each step, so their step times are similar. The rank "
                    "that is busy longest makes the others wait.",
                ),
                drawn(
                    dcc.Graph(id="live-busy", config=GRAPH, style={"height": "300px"}),
                    "Lines: busy time of each step in ms, for each rank",
                ),
            ),
            id="live-busy-place",
            hidden=True,
        ),
        section("What costs time now", html.Div(id="live-verdict")),
        dcc.Interval(id="live-tick", interval=_EVERY_MS),
        dcc.Store(id="live-seen"),
    ]


def _steps(now: Snapshot, last: int) -> tuple[pd.DataFrame, list[tuple[int, str]]]:
    """Steps that every rank has, and the settings adopted in them."""
    columns = ["rank", "step", "step_ms", "begin_ns"]
    seen = breakdown.table(now.run.trace.events)[columns].drop_duplicates(["rank", "step"])
    table = seen if now.steps is None else now.steps
    common = table.groupby("step")["rank"].nunique()
    kept = common.index[common == table["rank"].nunique()]
    kept = kept[-last:] if last else kept
    shown = table[table["step"].isin(kept)]
    return shown, _adopted(now.run, seen[seen["step"].isin(kept)])


def _busy(now: Snapshot, last: int) -> pd.DataFrame:
    """The busy time of ranks whose events are here, in steps that each of them has; of several."""
    table = breakdown.table(now.run.trace.events, from_waits=True)
    table = table.assign(busy_ms=table["step_ms"] - table["blocked_ms"])
    ranks = table["rank"].nunique()
    common = table.drop_duplicates(["rank", "step"]).groupby("step")["rank"].nunique()
    kept = common.index[common == ranks]
    kept = kept[-last:] if last else kept
    shown = table.loc[table["step"].isin(kept), ["rank", "step", "busy_ms"]]
    return shown.drop_duplicates(["rank", "step"]) if ranks > 1 else shown.iloc[:0]


def _adopted(run: RunView, steps: pd.DataFrame) -> list[tuple[int, str]]:
    """Step and setting, of those of these steps."""
    events = run.trace.events
    adopted = events[(events["kind"] == "KNOB_ADOPTED") & (events["rank"] == events["rank"].min())]
    first = steps[steps["rank"] == steps["rank"].min()].sort_values("begin_ns")
    found = []
    for at, text in zip(adopted["begin_ns"], adopted["name"].astype(str), strict=True):
        index = int(first["begin_ns"].searchsorted(at, side="right")) - 1
        if index >= 0:
            found.append((int(first["step"].iloc[index]), _short(text)))
    return found[-MOST_ADOPTED:]


def _short(setting: str) -> str:
    try:
        values = json.loads(setting)
    except ValueError:
        return setting[:40]
    if not isinstance(values, dict):
        return setting[:40]
    megabytes = values.get("fusion_threshold_bytes", 0) / 2**20
    return f"{megabytes:g} MiB, {values.get('cycle_time_ms', 0):g} ms"


def _told(now: Snapshot) -> str:
    run = now.run
    if now.steps is not None and not now.steps.empty:
        slowest = now.steps.groupby("step")["step_ms"].max()
        ranks, here = now.steps["rank"].nunique(), len(run.job.ranks)
        return (
            f"{int(slowest.index.max()) + 1:,} steps, {slowest.median():,.2f} ms (median of the "
            f"slowest rank, last {len(slowest):,} steps), {counted(ranks, 'rank')}, {here} of "
            "them on this host; the findings cover only these."
        )
    summary = run.summary
    if "step_ms_p50" not in summary:
        return "No step has ended yet."
    return (
        f"{counted(summary['steps'], 'step')}, {summary['step_ms_p50']:,.2f} ms (median of the "
        f"slowest rank), {counted(len(run.job.ranks), 'rank')}."
    )


def verdict(run: RunView) -> list[Component]:
    """What costs time so far, or why nobody can tell yet."""
    answer = run.answer
    if answer.verdict == "incomplete":
        return [
            note("Too few steps for findings yet."),
            *(html.P(f"{capitalized(text)}.", className="hint") for text in answer.missing),
        ]
    scope = answer.scope or counted(answer.steps, "step")
    if answer.verdict == "unexplained":
        return [note(f"Not explained: in {scope}, {answer.unexplained}.")]
    if not answer.findings:
        return [note(f"No bottleneck has been found in {scope}.")]
    return [
        html.Ol([html.Li(_sentences(found)) for found in answer.findings]),
        html.A("Open the timeline", href=link("/timeline", 0)),
    ]


def _sentences(found: TraceFinding) -> list[Any]:
    return [
        html.Strong(f"{capitalized(found.summary)}."),
        f" It costs {costs(found)}; {sure(found)}."
        if found.cost.is_known
        else f" {costs(found)}; {sure(found)}.",
        html.Br(),
        f"Remedy: {found.remedy}.",
    ]
