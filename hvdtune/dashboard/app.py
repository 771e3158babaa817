"""The server: Dash app, its callbacks, and a loopback listener that ends on Ctrl-C."""

import contextlib
import secrets
import socket
import sys
import threading
import traceback
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from dash import (
    ALL,
    MATCH,
    ClientsideFunction,
    Dash,
    Input,
    Output,
    State,
    html,
    no_update,
    set_props,
)
from dash.development.base_component import Component
from dash.exceptions import DependencyException
from flask import Response, request
from werkzeug.exceptions import HTTPException

from hvdtune.dashboard.blocks import failure, nothing
from hvdtune.dashboard.data import RunView, open_run
from hvdtune.dashboard.drawings import FIGURES
from hvdtune.dashboard.figures.theme import theme_of
from hvdtune.dashboard.gate import PublicAddress, guard, is_loopback
from hvdtune.dashboard.live import Attached, Live
from hvdtune.dashboard.pages import PAGES
from hvdtune.dashboard.routes import add_routes
from hvdtune.dashboard.runs import Runs
from hvdtune.dashboard.server import Server, UnderPrefix, return_freed_memory
from hvdtune.dashboard.shell import PageAddress, link, shell
from hvdtune.errors import UsageError

MANY_SLICES = 1_000_000  # take long enough for somebody to wonder


def serve(
    paths: Sequence[Path],
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    open_browser: bool = True,
    attached: Attached | None = None,
    link_gbps: float | None = None,
    prefix: str = "",
) -> None:
    """Show the runs at `paths`, and a job under way, in a browser until Ctrl-C.

    Each path is a trace file or a run's directory; port 0 picks a free one; `link_gbps` is what a
    link between hosts can carry, in 10^9 bit/s. The link with its token is printed, and handed to
    the browser when `open_browser` is set: on a machine shared with strangers, who can see a
    browser's arguments, leave it off. `prefix` is the path or the URL at which a proxy serves the
    pages. Raises UsageError if a path holds no trace, the port is taken or the prefix is malformed,
    TraceFormatError if a file is not a trace.
    """
    public = PublicAddress.parse(prefix) if prefix else PublicAddress()
    if not paths and attached is None:
        raise UsageError("no trace to show: pass a trace or a run folder")
    return_freed_memory()
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(_listen(host, port)))
        bound = listener.getsockname()[1]
        token = secrets.token_urlsafe(32)
        runs = [_opened(Path(path), link_gbps) for path in paths]
        for run in runs:
            for warning in run.trace.warnings:
                text = warning if warning.startswith(run.title) else f"{run.title}: {warning}"
                print(f"hvdtune: warning: {text}", file=sys.stderr)
        live = None if attached is None else stack.enter_context(contextlib.closing(Live(attached)))
        app = create_app(Runs(runs, live), token, host=host, public=public)
        server = Server(host, app.server, listener)
        # From the link on, Ctrl-C is the way to end it.
        with contextlib.suppress(KeyboardInterrupt):
            origin = public.origin or f"http://{_in_link(host)}:{bound}"
            _announce(host, f"{origin}{public.path}/?token={token}", open_browser)
            server.serve_forever()  # returns on Ctrl-C, its socket closed
    print("hvdtune dashboard: ended")


def _opened(path: Path, link_gbps: float | None) -> RunView:
    run = open_run(path, link_gbps)
    slices = run.trace.slice_count
    if slices >= MANY_SLICES:
        print(
            f"hvdtune: {run.title}: {slices:,} slices, preparing their lanes ...", file=sys.stderr
        )
    run.prepare()
    return run


def create_app(
    sources: Runs,
    token: str,
    *,
    host: str = "127.0.0.1",
    public: PublicAddress | None = None,
) -> Dash:
    """The Dash app over runs that are already open; every route asks for `token`."""
    public = public or PublicAddress()
    app = Dash(
        "hvdtune",
        title="hvdtune",
        update_title="",
        assets_folder=str(Path(__file__).with_name("assets")),
        serve_locally=True,
        routes_pathname_prefix="/",
        requests_pathname_prefix=f"{public.path}/",
        suppress_callback_exceptions=True,
        enable_mcp=False,
        add_log_handler=False,
        on_error=_show_error,
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
    app.index_string = app.index_string.replace("<html>", '<html lang="en">')
    app.layout = shell(sources, {path: page.TITLE for path, page in PAGES.items()}, public.path)
    _add_page_callbacks(app, sources)
    for page in PAGES.values():
        if register := getattr(page, "register", None):
            register(app, sources)
    add_routes(app.server, sources)
    _refuse_nonsense(app)
    guard(app.server, token, host, app.csp_hashes(), public)
    if public.path:
        app.server.wsgi_app = UnderPrefix(app.server.wsgi_app, public.path)
    return app


def _show_error(error: Exception) -> None:
    """Tell above the page what could not be computed; the rest of the page stands."""
    set_props("failure", {"children": _in_words(error)})


def _in_words(error: Exception) -> Component:
    traceback.print_exception(error)
    return failure(
        f"A part of this page could not be computed: {type(error).__name__}: {error}",
        "The dashboard's terminal shows the details. Please report this fault with them and, if "
        "you can, with the trace.",
    )


def _refuse_nonsense(app: Dash) -> None:
    """Refuse requests that are not of this page: what fails beside a callback is one."""

    def refuse(error: Exception) -> Any:
        if isinstance(error, HTTPException):
            return error
        if isinstance(error, DependencyException):  # of a script that is none of Dash's
            return _as_text(404, f"this dashboard has no {request.path}")
        if request.path != "/_dash-update-component":
            raise error
        return _as_text(400, f"invalid request: {error!r}")

    app.server.register_error_handler(Exception, refuse)


def _as_text(status: int, sentence: str) -> Response:
    kind = "text/plain; charset=utf-8"  # what was asked for is in it
    return Response(f"{status}: {sentence}\n", status, content_type=kind)


def _in_link(host: str) -> str:
    if host in ("0.0.0.0", "::"):
        return "localhost"
    return f"[{host}]" if ":" in host else host


def _announce(host: str, link: str, open_browser: bool) -> None:
    print(f"hvdtune dashboard: {link}  (Ctrl-C ends it)", flush=True)
    if not is_loopback(host):
        print(
            f"hvdtune: warning: {host} can be reached from other machines over plain http, and "
            "everyone with this link can view it",
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
        raise UsageError(
            f"cannot serve on {host} port {port}: {error.strerror}; --port 0 takes any free port"
        ) from error
    return listener


def _add_page_callbacks(app: Dash, runs: Runs) -> None:
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("hvdtune", "switch_theme"),
        Output("theme", "data"),
        Output("mantine", "forceColorScheme"),
        Input("theme-switch", "n_clicks"),
    )

    @app.callback(
        Output("content", "children"),
        Output({"type": "nav", "path": ALL}, "href"),
        Output("run", "value" if len(runs) > 1 else "data"),
        Output("failure", "children"),
        Input("url", "pathname"),
        Input("url", "search"),
    )
    def show_page(path: str | None, search: str | None) -> tuple[Any, list[str], str, list[Any]]:
        place = PageAddress.of(search, len(runs))
        links = [link(page, place.run) for page in PAGES]
        page = PAGES.get(unquote(path or "/").removeprefix(request.script_root))
        if page is None:
            words = nothing(f"There is no page {path}.", "Choose one on the left.")
            return [html.H1("Page not found"), words], links, str(place.run), []
        if place.missing:
            words = nothing(
                f"There is no run {place.missing}: this dashboard shows runs 0 to {len(runs) - 1}.",
                "Choose one at the top.",
            )
            return [html.H1(page.TITLE), words], links, str(place.run), []
        try:
            parts = page.layout(runs[place.run], place)
        except Exception as error:  # any fault of a page is that page's
            parts = [html.H1(page.TITLE), _in_words(error)]
        return parts, links, str(place.run), []

    if len(runs) > 1:
        # Both, since scripts of pages change the address as well: whatever they have changed and is
        # not said, Dash would put back.
        @app.callback(
            Output("url", "href"),
            Output("url", "search"),
            Input("run", "value"),
            State("url", "href"),
            State("url", "search"),
            prevent_initial_call=True,
        )
        def choose_run(chosen: str, address: str, search: str | None) -> Any:
            if chosen == str(PageAddress.of(search, len(runs)).run):
                return no_update, no_update
            query = f"run={chosen}"
            return urlsplit(address)._replace(query=query, fragment="").geturl(), f"?{query}"

    @app.callback(
        Output({"type": "figure", "name": MATCH, "run": MATCH}, "figure"),
        Input("theme", "data"),
        State({"type": "figure", "name": MATCH, "run": MATCH}, "id"),
    )
    def draw(theme: str | None, asked: dict[str, Any]) -> Any:
        return FIGURES[asked["name"]](runs[asked["run"]], theme_of(theme))
