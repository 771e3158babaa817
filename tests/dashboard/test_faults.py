"""What a person sees when a page or the dashboard itself fails."""

import pytest

from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.drawings import FIGURES

from .conftest import Dashboard, opened, served
from .synthetic import training_trace


@pytest.fixture(scope="module")
def tab(browser):
    with (
        served(RunView("run", training_trace(tensors=4, steps=30, hostile=False))) as origin,
        opened(browser, origin) as (page, _),
    ):
        yield page, origin


@pytest.fixture
def go(tab):
    page, origin = tab

    def go(path):
        page.goto(origin + path)
        page.wait_for_selector("#content h1")
        return page

    return go


def fail(*_):
    raise ZeroDivisionError("a fault <b>of ours</b>")


def test_a_page_that_fails_says_so_and_the_others_stand(go, monkeypatch, capsys):
    monkeypatch.setattr("hvdtune.dashboard.pages.ranks.layout", fail)
    page = go("/ranks")
    said = page.get_by_role("alert").inner_text()
    assert "ZeroDivisionError: a fault <b>of ours</b>" in said
    assert page.locator("#content h1").inner_text() == "Ranks"
    assert "ZeroDivisionError" in capsys.readouterr().err
    page.locator("nav a", has_text="Tensors").click()
    page.locator("#content h1", has_text="Tensors").wait_for()
    assert page.get_by_role("alert").count() == 0


def test_a_figure_that_fails_is_told_above_the_page(go, monkeypatch):
    monkeypatch.setitem(FIGURES, "breakdown", fail)
    page = go("/")
    page.locator("#failure [role=alert]", has_text="a fault <b>of ours</b>").wait_for()
    assert page.locator("#verdict").inner_text()
    page.locator("nav a", has_text="Tensors").click()
    page.locator("#content h1", has_text="Tensors").wait_for()
    assert page.locator("#failure [role=alert]").count() == 0


def test_a_dashboard_that_has_ended_is_told_of(browser, plain_trace):
    dashboard = Dashboard(plain_trace)
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(dashboard.link.replace("/?", "/timeline?"))
        page.wait_for_selector("#swimlane[data-tiles]")
        assert page.locator("#unreachable").is_hidden()
        dashboard.close()
        page.locator("#swimlane").focus()
        page.keyboard.press("w")
        page.locator("#unreachable", has_text="does not respond").wait_for()
