"""For keyboards and screen readers."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from hvdtune.dashboard.pages import PAGES

from .conftest import settle

GRAVE = {"serious", "critical"}


@pytest.mark.parametrize("path", [*PAGES, "/?run=1"])
def test_no_page_has_a_grave_violation(visit, path):
    page = visit(path)
    settle(page)
    assert grave_violations(page) == {}


# A theme's colours are the same on all pages.
_IN_CI = ("/", "/timeline")


@pytest.mark.parametrize(
    "path", [pytest.param(p, marks=[pytest.mark.slow] * (p not in _IN_CI)) for p in PAGES]
)
def test_no_page_has_a_grave_violation_in_the_dark_theme(visit, path):
    page = visit(path)
    page.locator("#theme-switch").click()
    page.wait_for_selector("[data-mantine-color-scheme=dark]", state="attached")
    page.evaluate("localStorage.clear()")
    settle(page)
    assert grave_violations(page) == {}


def grave_violations(page):
    return {
        rule["id"]: [node["html"][:200] for node in rule["nodes"]][:3]
        for rule in Axe().run(page).response["violations"]
        if rule["impact"] in GRAVE
    }


def tab_to(page, selector, most=60):
    """As somebody without a mouse gets there."""
    for _ in range(most):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    pytest.fail(f"{selector} cannot be reached with Tab")


def wait_for_text(page, selector, text):
    page.locator(selector, has_text=text).first.wait_for()


def test_the_head_is_skipped_at_one_key(visit):
    page = visit("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"


def test_another_page_is_opened(visit):
    page = visit("/")
    tab_to(page, "a[href^='/ranks']")
    page.keyboard.press("Enter")
    wait_for_text(page, "#content h1", "Ranks")


def test_the_theme_is_switched(visit):
    page = visit("/")
    tab_to(page, "#theme-switch")
    page.keyboard.press("Space")
    page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")
    page.evaluate("localStorage.clear()")


def test_another_run_is_chosen(visit):
    page = visit("/")
    tab_to(page, "#run")
    page.keyboard.press("ArrowDown")
    other = page.get_by_role("option", name="other.json")
    other.wait_for()
    for _ in range(10):  # the list may open before one of its lines is marked
        page.wait_for_timeout(200)
        if other.get_attribute("data-combobox-selected"):
            break
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?run=1")


def timeline(visit, address="/timeline"):
    page = visit(address)
    page.wait_for_selector("#swimlane[data-tiles]")
    return page


def test_the_timeline_is_zoomed_and_moved(visit):
    page = timeline(visit)
    tab_to(page, "#swimlane")
    before = page.locator("#swimlane-status").inner_text()
    for key in "wwd":
        page.keyboard.press(key)
    page.wait_for_function(
        "before => document.getElementById('swimlane-status').textContent !== before", arg=before
    )
    page.wait_for_function("() => !location.search.includes('from=0&')")


def test_a_slice_is_chosen_and_its_words_are_reached(visit):
    page = timeline(visit, "/timeline?run=0&from=44000000&to=84000000")
    tab_to(page, "#swimlane")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    wait_for_text(page, "#swimlane-details", "announced last")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "swimlane-details"


def test_totals_are_asked_for(visit):
    page = timeline(visit)
    tab_to(page, "#swimlane")
    page.keyboard.press("t")
    wait_for_text(page, "#swimlane-details", "Totals of")


def test_a_tensor_is_found(visit):
    page = timeline(visit)
    tab_to(page, "#swimlane-search")
    page.keyboard.type("layer3.weight")
    page.keyboard.press("Enter")
    wait_for_text(page, "#swimlane-details", "model.layer3.weight")


def test_ranks_are_chosen(visit):
    page = timeline(visit)
    tab_to(page, "#swimlane-ranks")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_function("() => location.search.includes('rank=')")


def test_tensors_are_sorted(visit):
    page = visit("/tensors")
    page.wait_for_selector("#tensor-table .ag-row")
    tab_to(page, "#tensor-table .ag-header-cell, #tensor-table .ag-header-group-cell")
    page.keyboard.press("ArrowDown")
    for _ in range(8):
        if page.evaluate("document.activeElement.getAttribute('col-id')") == "bytes":
            break
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("#tensor-table .ag-header-cell[col-id=bytes][aria-sort=ascending]")


def test_tensors_are_downloaded(visit):
    page = visit("/tensors")
    page.wait_for_selector("#tensor-table .ag-row")
    tab_to(page, "#tensor-table-csv")
    with page.expect_download() as download:
        page.keyboard.press("Enter")
    assert download.value.suggested_filename == "tensor.csv"


def test_a_tensor_is_chosen_in_its_table(visit):
    page = visit("/tensors")
    page.wait_for_selector("#tensor-table .ag-row")
    tab_to(page, "#tensor-table .ag-header-cell, #tensor-table .ag-header-group-cell")
    for _ in range(4):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    page.wait_for_selector("#tensor-chosen a")
