"""The server: Dash app, its callbacks, and a loopback listener that ends on Ctrl-C."""

import contextlib
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from dash import ClientsideFunction, Dash, Input, Output, State, ctx, no_update
from werkzeug.serving import WSGIRequestHandler, make_server

from hvdtune.dashboard.data import Run, open_run
from hvdtune.dashboard.figures.theme import theme_of
from hvdtune.dashboard.figures.timeline import timeline_figure
from hvdtune.dashboard.figures.trials import trials_figure
from hvdtune.dashboard.figures.verification import verification_figure
from hvdtune.dashboard.gate import guard, is_loopback
from hvdtune.dashboard.page import body, layout
from hvdtune.dashboard.window import View, draw_window
from hvdtune.errors import UsageError


def serve(
    paths: Sequence[Path], host: str = "127.0.0.1", port: int = 0, *, open_browser: bool = True
) -> None:
    """Show the runs at `paths` in a browser until Ctrl-C.

    Each path is a trace file or a run's directory; port 0 picks a free one. The link with its
    token is printed, and handed to the browser when `open_browser` is set: on a machine shared
    with strangers, who can see a browser's arguments, leave it off. Raises UsageError when a path
    holds no trace or the port is taken, TraceFormatError when a file is no trace.
    """
    if not paths:
        raise UsageError("no trace to show: name a trace file or a run's directory")
    with contextlib.closing(_listen(host, port)) as listener:
        bound = listener.getsockname()[1]
        token = secrets.token_urlsafe(32)
        runs = [open_run(Path(path)) for path in paths]
        for run in runs:
            for warning in run.trace.warnings:
                print(f"hvdtune: warning: {run.title}: {warning}", file=sys.stderr)
        app = create_app(runs, token, host=host)
        server = make_server(
            host, bound, app.server, threaded=True, request_handler=_Quiet, fd=listener.fileno()
        )
        # From the link on, Ctrl-C is the way to end it.
        with contextlib.suppress(KeyboardInterrupt):
            _announce(host, f"http://{_in_link(host)}:{bound}/?token={token}", open_browser)
            server.serve_forever()  # returns on Ctrl-C, its socket closed
    print("hvdtune dashboard: ended")


def create_app(sources: Sequence[Run], token: str, *, host: str = "127.0.0.1") -> Dash:
    """The Dash app over runs that are already open; every route asks for `token`."""
    app = Dash(
        "hvdtune",
        title="hvdtune timeline",
        update_title="",
        assets_folder=str(Path(__file__).with_name("assets")),
        serve_locally=True,
        suppress_callback_exceptions=True,
        enable_mcp=False,
        add_log_handler=False,
    )
    app.enable_dev_tools(
        debug=False,
        dev_tools_ui=False,
        dev_tools_props_check=False,
        dev_tools_hot_reload=False,
        dev_tools_serve_dev_bundles=False,
        dev_tools_validate_callbacks=False,
        dev_tools_disable_version_check=True,
    )
    app.layout = layout(sources)
    _add_page_callbacks(app, sources)
    _add_timeline_callbacks(app, sources)
    _add_study_callbacks(app, sources)
    guard(app.server, token, host, app.csp_hashes())
    return app


class _Quiet(WSGIRequestHandler):
    """Logs no requests: their addresses would put the token on the terminal."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


def _in_link(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _announce(host: str, link: str, open_browser: bool) -> None:
    print(f"hvdtune dashboard: {link}  (Ctrl-C ends it)", flush=True)
    if not is_loopback(host):
        print(
            f"hvdtune: warning: {host} can be reached from other machines, over plain http",
            file=sys.stderr,
        )
    if open_browser:
        # A text browser would hold this thread for as long as it is open.
        threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"cannot serve on {host}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(64)
    except OSError as error:
        listener.close()
        raise UsageError(f"cannot serve on {host} port {port}: {error.strerror}") from error
    return listener


def _add_page_callbacks(app: Dash, runs: Sequence[Run]) -> None:
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("hvdtune", "switch_theme"),
        Output("theme", "data"),
        Input("theme-switch", "n_clicks"),
    )

    @app.callback(Output("content", "children"), Input("run", "value"), prevent_initial_call=True)
    def show_run(run: int) -> list[Any]:
        return list(body(runs[run]))

    @app.callback(
        Output("tensor-table", "exportDataAsCsv"),
        Input("tensor-csv", "n_clicks"),
        prevent_initial_call=True,
    )
    def export(clicks: int | None) -> bool:
        return bool(clicks)


def _add_timeline_callbacks(app: Dash, runs: Sequence[Run]) -> None:
    @app.callback(
        Output("window", "value"),
        Input("previous", "n_clicks"),
        Input("next", "n_clicks"),
        State("window", "value"),
        State("count", "value"),
        State("run", "value"),
        prevent_initial_call=True,
    )
    def move(back: int | None, on: int | None, window: int, count: int, run: int) -> Any:
        if not (back or on):
            return no_update
        moved = window + (count if ctx.triggered_id == "next" else -count)
        return min(max(moved, 0), max(len(runs[run].windows) - 1, 0))

    @app.callback(
        Output("tensors", "value"),
        Input("tensor-table", "cellClicked"),
        prevent_initial_call=True,
    )
    def choose_tensor(cell: dict[str, Any] | None) -> Any:
        return [cell["rowId"]] if cell else no_update

    @app.callback(
        Output("page", "data"),
        Input("page-previous", "n_clicks"),
        Input("page-next", "n_clicks"),
        Input("window", "value"),
        Input("count", "value"),
        Input("tensors", "value"),
        Input("ranks", "value"),
        State("page", "data"),
        prevent_initial_call=True,
    )
    def turn_page(*values: Any) -> int:
        turns = {"page-previous": -1, "page-next": 1}
        if ctx.triggered_id not in turns:
            return 0
        return max(int(values[-1]) + turns[ctx.triggered_id], 0)

    @app.callback(
        Output("timeline", "figure"),
        Output("note", "children"),
        Output("where", "children"),
        Output("pager", "hidden"),
        Input("window", "value"),
        Input("count", "value"),
        Input("tensors", "value"),
        Input("ranks", "value"),
        Input("page", "data"),
        Input("theme", "data"),
        State("run", "value"),
    )
    def draw(*values: Any) -> tuple[go.Figure, str, str, bool]:
        window, count, tensors, ranks, page, theme, run = values
        view = View(window, count, tuple(tensors or ()), tuple(ranks or ()), page)
        return _draw(runs[run], view, theme)


def _draw(run: Run, view: View, theme: str | None) -> tuple[go.Figure, str, str, bool]:
    drawing = draw_window(run, view)
    figure = timeline_figure(drawing, theme_of(theme))
    # A zoom outlives a change of theme or filter, not a move to another stretch of time.
    figure.update_xaxes(uirevision=f"{run.title} {view.window} {view.count}")
    figure.update_yaxes(uirevision=f"{run.title} {' '.join(drawing.rows)}")
    labels = run.windows["label"]
    position = f"{view.window + 1:,} of {len(labels):,}"
    where = f"{labels.iloc[view.window]} ({position})" if len(labels) else ""
    return figure, drawing.note, where, drawing.pages < 2


def _add_study_callbacks(app: Dash, runs: Sequence[Run]) -> None:
    @app.callback(Output("trials", "figure"), Input("theme", "data"), State("run", "value"))
    def draw_trials(theme: str | None, run: int) -> Any:
        study = runs[run].study
        if study is None:
            return no_update
        return trials_figure(study.trials, study.noise_floor_percent, theme_of(theme))

    @app.callback(Output("verification", "figure"), Input("theme", "data"), State("run", "value"))
    def draw_verification(theme: str | None, run: int) -> Any:
        study = runs[run].study
        if study is None:
            return no_update
        interval = study.verdict.interval_percent if study.verdict else None
        return verification_figure(study.verification, interval, theme_of(theme))
