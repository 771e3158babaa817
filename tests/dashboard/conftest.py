import contextlib
import signal
import socket
import subprocess
import sys
import threading

import pytest

from hvdtune.dashboard.app import create_app
from hvdtune.dashboard.data import open_run
from hvdtune.dashboard.runs import Runs
from hvdtune.dashboard.server import Server
from hvdtune.timeline import write_chrome

from .studies import write_study
from .synthetic import training_trace

SERVE = """
import sys
from pathlib import Path
from hvdtune.dashboard.app import serve
serve([Path(path) for path in sys.argv[1:]], open_browser=False)
"""


SIZE = {"width": 1280, "height": 900}
WAIT_MS = 200_000

# What is not yet there of a page that is. A chart that is hidden is drawn when it is shown.
_UNFINISHED = (
    "#swimlane:not([data-tiles]), #compare-choice:empty, #live-place:empty, .dash-graph--pending,"
    "#compare-choice:has(#compare-a) ~ :is(#compare-shown, #compare-timelines):empty,"
    "[data-dash-is-loading]"
)
_IS_SETTLED = f"""() => {{
  const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
  const is_drawn = (graph) => {{
    const {{ width, font }} = graph.querySelector(".js-plotly-plot")?._fullLayout ?? {{}};
    return Math.abs(width - graph.clientWidth) < 2 && font.color === ink;
  }};
  const shown = [...document.querySelectorAll(".dash-graph")].filter((graph) => graph.clientWidth);
  const tables = [...document.querySelectorAll("[data-table]")];
  const root = document.documentElement, shape = root.scrollWidth + "," + root.scrollHeight;
  const is_still = shape === window.shape_before;
  window.shape_before = shape;
  return is_still && !document.querySelector("{_UNFINISHED}") && shown.every(is_drawn)
    && tables.every((button) => document.querySelector(`#${{button.dataset.table}} .ag-row`))
    && !document.getAnimations().length;
}}"""


def settle(page):
    """Returns when all of a page is there, in its theme and as wide as it shall be."""
    page.wait_for_function(_IS_SETTLED, polling=100)


class Dashboard:
    """A dashboard in a process of its own; `link` is what it printed."""

    def __init__(self, *paths):
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, *map(str, paths)], stdout=subprocess.PIPE, text=True
        )
        self.link = next(word for word in self.process.stdout.readline().split() if "://" in word)
        self.origin = self.link.split("/?")[0]

    def interrupt(self):
        """Ctrl-C; returns the exit code and what it printed last."""
        self.process.send_signal(signal.SIGINT)
        rest, _ = self.process.communicate()
        return self.process.returncode, rest

    def close(self):
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def served(*runs, live=None, public=None):
    """The origin of a dashboard in this process, which costs no imports; its token is `key`."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(
        "127.0.0.1", create_app(Runs(runs, live), "key", public=public).server, listener
    )
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        listener.close()


@contextlib.contextmanager
def opened(browser, origin, address="/", **more):
    """A page of a dashboard in a context of its own, and what it complains of."""
    with browser.new_context(viewport=SIZE, **more) as context:
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        complaints = watch(page, origin)
        page.goto(f"{origin}{address}{'&' if '?' in address else '?'}token=key")
        page.wait_for_selector("#content h1")
        yield page, complaints


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    write_chrome(training_trace(), folder / "trace.json.gz")
    write_study(folder, reason="<b>slow</b>")
    return folder


@pytest.fixture(scope="session")
def plain_trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "other.json"
    write_chrome(training_trace(tensors=4, steps=30, hostile=False, step_us=20_000), path)
    return path


@pytest.fixture(scope="session")
def origin(run_folder, plain_trace):
    """The address of a dashboard of two runs."""
    with served(open_run(run_folder), open_run(plain_trace)) as origin:
        yield origin


@pytest.fixture(scope="module")
def tab(browser, origin):
    """One for many tests, since it keeps the cookie, and the scripts of the pages compiled."""
    with opened(browser, origin, color_scheme="light") as tab:
        yield tab


@pytest.fixture
def page(tab):
    """A page; the test fails on console errors and on requests to other origins."""
    page, complaints = tab
    yield page
    page.unroute_all()
    page.goto("about:blank")
    page.set_viewport_size(SIZE)
    page.mouse.move(0, 0)
    told = list(complaints)
    complaints.clear()
    assert told == []


def watch(page, origin):
    """Errors on the page, and what it requests from other origins, from now on."""
    complaints = []
    page.on("console", lambda m: m.type in ("error", "warning") and complaints.append(m.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))

    def look(request):
        if not request.url.startswith((origin, "data:", "blob:")):
            complaints.append(f"request to {request.url}")

    page.on("request", look)
    return complaints


@pytest.fixture
def visit(page, origin):
    """Go to a page of the dashboard and wait until it is there."""

    def go(address):
        page.goto(origin + address)
        page.wait_for_selector("#content h1")
        return page

    return go
