"""What a person sees when a page or the dashboard itself fails."""

import threading
from contextlib import contextmanager

import pytest
from werkzeug.serving import make_server

from hvdtune.dashboard.app import create_app
from hvdtune.dashboard.data import Run
from hvdtune.dashboard.drawings import FIGURES
from hvdtune.dashboard.runs import Runs

from .conftest import Dashboard
from .synthetic import training_trace

WAIT_MS = 15_000


@contextmanager
def served():
    app = create_app(Runs([Run("run", training_trace(tensors=4, steps=30, hostile=False))]), "key")
    server = make_server("127.0.0.1", 0, app.server, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def opened(browser):
    with served() as origin:
        context = browser.new_context()
        page = context.new_page()
        page.goto(f"{origin}/?token=key")
        page.wait_for_selector("#content h1")

        def go(path):
            page.goto(origin + path)
            page.wait_for_selector("#content h1")
            return page

        yield go
        context.close()


def fail(*_):
    raise ZeroDivisionError("a fault <b>of ours</b>")


def test_a_page_that_fails_says_so_and_the_others_stand(opened, monkeypatch, capsys):
    monkeypatch.setattr("hvdtune.dashboard.pages.ranks.layout", fail)
    page = opened("/ranks")
    said = page.get_by_role("alert").inner_text()
    assert "ZeroDivisionError: a fault <b>of ours</b>" in said
    assert page.locator("#content h1").inner_text() == "Ranks"
    assert "ZeroDivisionError" in capsys.readouterr().err
    page.locator("nav a", has_text="Tensors").click()
    page.locator("#content h1", has_text="Tensors").wait_for(timeout=WAIT_MS)
    assert page.get_by_role("alert").count() == 0


def test_a_figure_that_fails_is_told_above_the_page(opened, monkeypatch):
    monkeypatch.setitem(FIGURES, "breakdown", fail)
    page = opened("/")
    page.locator("#failure [role=alert]", has_text="a fault <b>of ours</b>").wait_for(
        timeout=WAIT_MS
    )
    assert page.locator("#verdict").inner_text()
    page.locator("nav a", has_text="Tensors").click()
    page.locator("#content h1", has_text="Tensors").wait_for(timeout=WAIT_MS)
    assert page.locator("#failure [role=alert]").count() == 0


def test_a_dashboard_that_has_ended_is_told_of(browser, plain_trace):
    dashboard = Dashboard(plain_trace)
    context = browser.new_context()
    page = context.new_page()
    page.goto(dashboard.link)
    page.goto(dashboard.origin + "/timeline")
    page.wait_for_selector("#swimlane[data-tiles]", timeout=WAIT_MS)
    assert page.locator("#unreachable").is_hidden()
    dashboard.close()
    page.locator("#swimlane").focus()
    page.keyboard.press("w")
    page.locator("#unreachable", has_text="does not answer").wait_for(timeout=WAIT_MS)
    context.close()
