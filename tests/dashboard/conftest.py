import signal
import subprocess
import sys

import pytest

from hvdtune.timeline import write_chrome

from .studies import write_study
from .synthetic import training_trace

SERVE = """
import sys
from pathlib import Path
from hvdtune.dashboard.app import serve
serve([Path(path) for path in sys.argv[1:]], open_browser=False)
"""


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
        rest, _ = self.process.communicate(timeout=30)
        return self.process.returncode, rest

    def close(self):
        self.process.kill()
        self.process.communicate()


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
def dashboard(run_folder, plain_trace):
    dashboard = Dashboard(run_folder, plain_trace)
    yield dashboard
    dashboard.close()


@pytest.fixture(scope="module")
def context(browser, dashboard):
    """One for many tests, since it keeps the scripts of the pages, and the cookie."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    first = context.new_page()
    first.goto(dashboard.link)
    first.wait_for_selector("#content h1")
    first.close()
    yield context
    context.close()


@pytest.fixture
def page(context, dashboard):
    """A page; the test fails on console errors and on requests to other origins."""
    page = context.new_page()
    complaints = watch(page, dashboard.origin)
    yield page
    page.close()
    assert complaints == []


def watch(page, origin):
    """What the page complains of, and what it asks of other origins, from now on."""
    complaints = []
    page.on("console", lambda m: m.type in ("error", "warning") and complaints.append(m.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))

    def look(request):
        if not request.url.startswith((origin, "data:", "blob:")):
            complaints.append(f"request to {request.url}")

    page.on("request", look)
    return complaints


@pytest.fixture
def visit(page, dashboard):
    """Go to a page of the dashboard and wait until it is there."""

    def go(address):
        page.goto(dashboard.origin + address)
        page.wait_for_selector("#content h1")
        return page

    return go
