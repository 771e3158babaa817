"""The layout: head, timeline, tensor table and study of one run, as Dash components."""

from collections.abc import Mapping, Sequence
from typing import Any

import dash_ag_grid as dag
import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component

from hvdtune.dashboard.data import Run, hosts_of, ranks_of, tensor_names
from hvdtune.dashboard.study import Study
from hvdtune.dashboard.tables import tensor_columns, tensor_rows, trial_columns, trial_rows
from hvdtune.dashboard.window import MAX_WINDOWS

_GRAPH: Any = {
    "displaylogo": False,
    "showSendToCloud": False,
    "responsive": True,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
}
_SHOWN_WARNINGS = 8


def layout(runs: Sequence[Run]) -> Component:
    """The whole page; the run selector appears only when there is a choice."""
    options = [{"label": run.title, "value": index} for index, run in enumerate(runs)]
    selector = html.Div(
        [
            html.Label("Run", htmlFor="run"),
            dcc.Dropdown(options, 0, id="run", clearable=False, className="control-wide"),
        ],
        className="run-selector",
        hidden=len(runs) < 2,
    )
    return html.Div(
        [
            dcc.Store(id="theme"),
            html.Header(
                [
                    html.H1("hvdtune"),
                    html.Span("timeline", className="muted"),
                    selector,
                    html.Button("Light / dark", id="theme-switch", className="quiet"),
                ]
            ),
            html.Main(body(runs[0]), id="content"),
        ],
        className="page",
    )


def body(run: Run) -> list[Component]:
    """Everything below the header for one run."""
    return [_head(run), _timeline(run), _tensor_table(run), _study(run.study)]


def _head(run: Run) -> Component:
    ranks, hosts = ranks_of(run.trace), hosts_of(run.trace)
    cards = [
        _card("Ranks", str(len(ranks)), _host_count(len(hosts))),
        _card("Steps", f"{run.summary['steps']:,}", "marked in the trace"),
        *_step_cards(run.summary),
        _card("Tensors", f"{len(tensor_names(run.trace)):,}", f"{len(run.trace.events):,} events"),
        _clock_card(run),
    ]
    parts: list[Component] = [
        html.P([html.Span("Trace "), html.Code(run.title), _host_list(hosts)], className="source"),
        html.Div(cards, className="cards"),
    ]
    if run.study and run.study.verdict:
        mood = "good" if run.study.verdict.improved else "neutral"
        parts.append(
            html.P(
                [html.Strong("Verdict  "), run.study.verdict.text],
                id="verdict",
                className=f"verdict {mood}",
            )
        )
    warnings = list(run.trace.warnings)
    if warnings:
        parts.append(_warning_list(warnings, "About this trace"))
    return html.Section(parts, id="head")


def _step_cards(summary: Mapping[str, Any]) -> list[Component]:
    if "step_ms_p50" not in summary:
        return [_card("Step time", "not known", "the trace marks no steps")]
    low, high = summary["step_ms_p5"], summary["step_ms_p95"]
    spread = f"5 to 95 %: {low:,.2f} to {high:,.2f} ms, {summary['steps']:,} samples, slowest rank"
    share = f"{summary['communicate_percent']:.0f} %"
    return [
        _card("Step time, median", f"{summary['step_ms_p50']:,.2f} ms", spread),
        _card(
            "Communicating", share, "of step time has a bucket under way, hidden or not, all ranks"
        ),
    ]


def _host_count(hosts: int) -> str:
    if not hosts:
        return "host not recorded"
    return "on one host" if hosts == 1 else f"on {hosts} hosts"


def _host_list(hosts: list[str]) -> Component:
    shown = ", ".join(hosts[:6]) + (f" and {len(hosts) - 6} more" if len(hosts) > 6 else "")
    return html.Span(f"  {'hosts' if len(hosts) > 1 else 'host'} {shown}" if hosts else "")


def _clock_card(run: Run) -> Component:
    fits = run.trace.meta.get("clock", {}).values()
    residuals = [float(fit["residual_us"]) for fit in fits if fit.get("samples")]
    if residuals:
        return _card("Clock", f"{max(residuals):,.1f} us", "alignment residual, worst rank")
    alone = len(ranks_of(run.trace)) < 2
    return _card("Clock", "as is", "one rank" if alone else "offsets were not measured")


def _card(title: str, value: str, explanation: str) -> Component:
    return html.Div(
        [
            html.Div(title, className="card-title"),
            html.Div(value, className="card-value"),
            html.Div(explanation, className="card-note"),
        ],
        className="card",
    )


def _warning_list(warnings: list[str], title: str) -> Component:
    shown = [html.Li(text) for text in warnings[:_SHOWN_WARNINGS]]
    if len(warnings) > _SHOWN_WARNINGS:
        shown.append(html.Li(f"and {len(warnings) - _SHOWN_WARNINGS} more"))
    return html.Div([html.Strong(title), html.Ul(shown)], className="warnings")


def _timeline(run: Run) -> Component:
    return html.Section(
        [
            html.H2("Timeline"),
            _where_controls(max(len(run.windows) - 1, 0)),
            _what_controls(run),
            html.P(id="note", className="note"),
            dcc.Graph(id="timeline", config=_GRAPH),
            html.P(
                "Drag to zoom, double-click to see the whole window. Step and bucket rows come "
                "first, then each tensor once per rank. Thin bars on a tensor are its bucket's "
                "phases. Clock samples are used for alignment and not drawn.",
                className="hint",
            ),
        ]
    )


def _where_controls(last: int) -> Component:
    return html.Div(
        [
            html.Button("Previous", id="previous", title="One step back"),
            html.Div(
                dcc.Slider(
                    0, max(last, 1), 1, value=(last + 1) // 2, id="window",
                    marks=None, allow_direct_input=False, disabled=last == 0, included=False,
                ),
                className="slider",
            ),
            html.Button("Next", id="next", title="One step on"),
            html.Span(id="where", className="where"),
        ],
        className="controls",
    )  # fmt: skip


def _what_controls(run: Run) -> Component:
    last = max(len(run.windows) - 1, 0)
    tensors = [{"label": name, "value": name} for name in tensor_names(run.trace)]
    ranks = [{"label": f"rank {rank}", "value": rank} for rank in ranks_of(run.trace)]
    return html.Div(
        [
            _control("Steps shown", _steps_shown(last), "narrow"),
            _control(
                "Tensors",
                dcc.Dropdown(
                    tensors, [], id="tensors", multi=True, placeholder="all tensors", maxHeight=360
                ),
                "wide",
            ),
            _control(
                "Ranks",
                dcc.Dropdown(ranks, [], id="ranks", multi=True, placeholder="all ranks"),
                "middle",
            ),
            html.Div(
                [
                    html.Button("Previous page", id="page-previous"),
                    html.Button("Next page", id="page-next"),
                ],
                id="pager",
                hidden=True,
            ),
            dcc.Store(id="page", data=0),
        ],
        className="controls",
    )


def _steps_shown(last: int) -> Component:
    most = min(MAX_WINDOWS, last + 1)
    return dcc.Dropdown(list(range(1, most + 1)), 1, id="count", clearable=False, searchable=False)


def _control(label: str, component: Component, width: str) -> Component:
    name = html.Label(label, className="control-label")
    return html.Div([name, component], className=f"control control-{width}")


def _tensor_table(run: Run) -> Component:
    return html.Section(
        [
            html.Div(
                [
                    html.H2("Tensors"),
                    html.Button("Download CSV", id="tensor-csv", className="quiet"),
                ],
                className="title-row",
            ),
            html.P("Click a row to see only this tensor in the timeline.", className="hint"),
            _grid(
                "tensor-table",
                tensor_columns(),
                tensor_rows(run.trace),
                getRowId="params.data.tensor",
                csvExportParams={"fileName": "tensors.csv"},
            ),
        ]
    )


def _grid(
    name: str, columns: list[dict[str, Any]], rows: pd.DataFrame, **options: Any
) -> Component:
    headers = 2 if any("children" in column for column in columns) else 1
    height = min(34 * headers + 32 * max(len(rows), 2) + 20, 440)
    grid: Component = dag.AgGrid(
        id=name,
        columnDefs=columns,
        rowData=rows.astype(object).where(rows.notna(), None).to_dict("records"),
        defaultColDef={"sortable": True, "filter": True, "resizable": True, "minWidth": 96},
        columnSize="responsiveSizeToFit",
        dashGridOptions={
            "rowHeight": 32,
            "headerHeight": 34,
            "animateRows": False,
            "rowSelection": {
                "mode": "singleRow",
                "checkboxes": False,
                "enableClickSelection": True,
            },
            "enableCellTextSelection": True,
        },
        style={"height": f"{height}px", "width": "100%"},
        **options,
    )
    return grid


def _study(study: Study | None) -> Component:
    if study is None:
        return html.Section(
            [
                html.H2("Study"),
                html.P("No tuning study lies beside this trace.", className="note", id="no-study"),
            ]
        )
    parts: list[Component] = [html.H2("Study"), html.P(study.summary, className="note")]
    if study.warnings:
        parts.append(_warning_list(study.warnings, "About this study"))
    if not study.trials.empty:
        parts += [
            html.H3("Trials: gain over the reference, bars are two standard errors"),
            dcc.Graph(id="trials", config=_GRAPH),
            _grid("trial-table", trial_columns(study.trials), trial_rows(study.trials)),
        ]
    parts.append(html.H3("Verification: fresh pairs of the winner"))
    if study.verification.empty:
        parts.append(html.P("No verification pairs are recorded.", className="note"))
    else:
        parts.append(dcc.Graph(id="verification", config=_GRAPH))
    return html.Section(parts, id="study")
