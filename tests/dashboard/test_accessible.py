"""For keyboards and screen readers."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from hvdtune.dashboard.pages import PAGES

from .conftest import settle

GRAVE = {"serious", "critical"}
HEADER = "#tensor-table .ag-header-cell"


# The pages with all that others are made of: text, figures, tables, forms and the canvas.
_IN_CI = ("/", "/timeline", "/tensors", "/study")


def _pages(in_ci):
    return [pytest.param(path, marks=[pytest.mark.slow] * (path not in in_ci)) for path in PAGES]


@pytest.mark.parametrize("path", [*_pages(_IN_CI), pytest.param("/?run=1", marks=pytest.mark.slow)])
def test_no_page_has_a_grave_violation(visit, path):
    page = visit(path)
    settle(page)
    assert grave_violations(page) == {}


# A theme's colours are the same on all pages.
@pytest.mark.parametrize("path", _pages(["/timeline"]))
def test_no_page_has_a_grave_violation_in_the_dark_theme(visit, path):
    page = visit(path)
    page.locator("#theme-switch").click()
    page.wait_for_selector("[data-mantine-color-scheme=dark]", state="attached")
    page.evaluate("localStorage.removeItem('hvdtune-theme')")
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


@pytest.mark.parametrize(
    ("address", "focus", "keys", "outcome"),
    [
        pytest.param(
            "/",
            "a[href^='/ranks']",
            ["Enter"],
            "document.querySelector('#content h1')?.textContent.includes('Ranks')",
            id="another page is opened",
        ),
        pytest.param(
            "/",
            "#theme-switch",
            ["Space"],
            "document.documentElement.dataset.theme === 'dark'",
            id="the theme is switched",
        ),
        pytest.param(
            "/timeline",
            "#swimlane",
            ["t"],
            "document.querySelector('#swimlane-details').textContent.includes('Totals of')",
            id="totals are asked for",
        ),
        pytest.param(
            "/timeline",
            "#swimlane-search",
            [*"layer3.weight", "Enter"],
            "document.querySelector('#swimlane-details').textContent.includes('model.layer3.w')",
            id="a tensor is found",
        ),
        pytest.param(
            "/timeline",
            "#swimlane-ranks",
            ["ArrowDown", "ArrowDown", "Enter"],
            "location.search.includes('rank=')",
            id="ranks are chosen",
        ),
        pytest.param(
            "/compare",
            "#compare-second",
            ["w"],
            "(kept => kept.has('with-to') && kept.get('with-to') - kept.get('with-from') < 30e6)("
            "new URLSearchParams(location.search))",
            id="the second of two timelines is zoomed",
        ),
        pytest.param(
            "/tensors",
            HEADER,
            [*["ArrowDown"] * 4, "Space"],
            "document.querySelector('#tensor-chosen a')",
            id="a tensor is chosen in its table",
        ),
    ],
)
def test_keys_suffice(visit, address, focus, keys, outcome):
    page = visit(address)
    settle(page)
    tab_to(page, focus)
    for key in keys:
        page.keyboard.press(key)
    page.wait_for_function(f"() => {outcome}")
    page.evaluate("localStorage.removeItem('hvdtune-theme')")


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
    for _ in ("busy", "wait", "negotiate"):
        page.keyboard.press("ArrowDown")
    wait_for_text(page, "#swimlane-details", "announced last")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "swimlane-details"


def test_tensors_are_sorted(visit):
    page = visit("/tensors")
    page.wait_for_selector("#tensor-table .ag-row")
    tab_to(page, HEADER)
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
