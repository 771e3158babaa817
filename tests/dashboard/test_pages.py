"""Every page in a real browser."""

import socket
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from hvdtune.dashboard.app import serve
from hvdtune.dashboard.pages import PAGES
from hvdtune.errors import UsageError

from .conftest import Dashboard, settle
from .synthetic import HOSTILE

_TEXT = ("/definitions",)  # pages with nothing that a browser lays out in its own way
_ON_TOP = """() => {
  const title = document.querySelector('#content h1'), box = title.getBoundingClientRect();
  return title === document.elementFromPoint(box.x + 5, box.y + box.height / 2);
}"""


def wait_for(page, selector, text):
    page.locator(selector, has_text=text).first.wait_for()


@pytest.mark.parametrize(
    "widths", [(1280, 320), pytest.param((760, 480), marks=pytest.mark.slow)], ids=str
)
@pytest.mark.parametrize(
    "path", [pytest.param(path, marks=[pytest.mark.slow] * (path in _TEXT)) for path in PAGES]
)
def test_every_page_opens_and_nothing_sticks_out_of_it(visit, path, widths):
    page = visit(f"{path}?run=0")
    assert page.locator("#content h1").inner_text() == PAGES[path].TITLE
    link = page.locator(f"nav a[href='{path}?run=0']")
    assert link.get_attribute("data-active") == "true"
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.evaluate("window.scrollTo(0, 0)")
        assert page.evaluate(_ON_TOP), "something covers the title"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        pytest.param(
            "/",
            [
                *(
                    ("#content", "2 of 2"),
                    ("#content", "on 2 hosts"),
                    ("#content", "5 steps of 2 ranks"),
                ),
                *(
                    ("#content", "12 events were dropped"),
                    ("#verdict", "Only 5 steps were recorded"),
                ),
            ],
            id="what the run is",
        ),
        pytest.param(
            "/ranks",
            [
                *(("#content .heatmaplayer image", ""), ("#rank-table [col-id=host]", "node-1")),
                ("#content .yaxislayer-above text", "node-1: rank 1"),
            ],
            id="who is late",
        ),
        pytest.param(
            "/fusion",
            [
                ("#reason-table [col-id=reason]", "cycle"),
                ("#content .legendtext", "cycle"),
                ("#reason-table [col-id=bytes_p50]", "391 KiB"),
                ("#reason-table [col-id=busy_ms]", "61.2"),
            ],
            id="why buckets closed",
        ),
        pytest.param(
            "/study",
            [
                ("#verdict", "+7.3 % [6.1, 8.4] 95 % CI"),
                ("#trial-table [col-id=reason]", "<b>slow</b>"),
                *(("#content .legendtext", state) for state in ("complete", "pruned", "failed")),
                *(("#content .legendtext", f"launch {number}") for number in (2, 3)),
            ],
            id="the study with verdict, trials and pairs",
        ),
    ],
)
def test_a_page_shows(visit, address, shown):
    page = visit(address)
    settle(page)
    for selector, text in shown:
        wait_for(page, selector, text)


def test_the_overview_says_what_costs_time_and_leads_to_it(visit):
    page = visit("/?run=1")
    verdict = page.locator("#verdict").inner_text()
    assert "communication that no computing hides" in verdict
    assert "ms per step" in verdict and "95 % interval" in verdict
    assert "from 26 steps" in verdict
    page.locator("#verdict a", has_text="Show me in step").click()
    page.wait_for_selector("#swimlane[data-tiles]")
    assert "run=1&from=" in page.url


def test_links_lead_from_page_to_page_and_keep_the_run(visit):
    page = visit("/?run=1")
    page.locator("nav a", has_text="Tensors").click()
    page.wait_for_selector("#tensor-table")
    assert page.url.endswith("/tensors?run=1")
    page.go_back()
    wait_for(page, "#content h1", "Overview")


def test_a_long_address_does_no_harm(visit):
    assert visit("/?" + "a=1&" * 150).locator("#verdict").count() == 1


def test_a_row_of_a_tensor_shows_its_times_and_leads_to_the_timeline(visit):
    page = visit("/tensors")
    page.locator("#tensor-table [col-id=tensor]", has_text="model.layer2.bias").click()
    wait_for(page, "#tensor-chosen", "model.layer2.bias")
    wait_for(page, "#tensor-phases .legendtext", "communicate (12 times)")
    page.locator("#tensor-chosen a").click()
    page.wait_for_selector("#swimlane[data-tiles]")
    assert "tensor=model.layer2.bias" in page.url


def test_tensors_are_sorted(visit):
    page = visit("/tensors")
    page.locator("#tensor-table .ag-header-cell[col-id=bytes]").click()
    page.wait_for_selector("#tensor-table .ag-header-cell[col-id=bytes][aria-sort=ascending]")


@pytest.mark.parametrize(
    ("part", "name"), [("layer2.bias", "model.layer2.bias"), ("<img", HOSTILE)]
)
def test_a_tensor_is_chosen_in_its_table_and_its_name_stays_text(visit, part, name):
    page = visit("/tensors")
    page.locator("#tensor-table [col-id=tensor]", has_text=part).click()
    wait_for(page, "#tensor-chosen", name)
    assert page.locator("#content img").count() == 0
    assert page.evaluate("window.pwned") is None


@pytest.mark.parametrize(
    ("name", "holds"),
    [
        ("profile.yaml", "cycle_time_ms: 0.5"),
        ("hvdtune.env", "HVDTUNE_CYCLE_TIME_MS=0.5"),
        pytest.param("horovod.env", "HOROVOD_CYCLE_TIME=0.5", marks=pytest.mark.slow),
    ],
)
def test_the_winner_is_downloaded(visit, name, holds):
    page = visit("/study")
    with page.expect_download() as download:
        page.get_by_role("button", name=name, exact=True).click()
    assert download.value.suggested_filename == name
    assert holds in download.value.path().read_text()
    wait_for(page, "#export-note", f"{name} was downloaded")


def test_two_runs_are_compared(visit):
    page = visit("/compare")
    wait_for(page, "#compare-shown", "Too few steps to compare")
    assert page.locator("#compare-table").count() == 0
    page.locator("#compare-a").click()
    page.get_by_role("option", name="other.json").click()
    wait_for(page, "#compare-shown", "No difference of step times is shown")
    wait_for(page, "#compare-table [col-id=quantity]", "Step time")
    page.wait_for_selector("#compare-shown .pair .barlayer")
    page.wait_for_selector("#compare-shown .pair .boxlayer")
    settle(page)
    heights = "() => [...document.querySelectorAll('.pair .main-svg')].map(e => e.clientHeight)"
    assert min(page.evaluate(heights)) > 200
    assert "run=1&with=1" in page.url
    page.reload()
    wait_for(page, "#compare-shown", "No difference of step times is shown")


def test_a_tensor_of_the_address_is_chosen(visit):
    page = visit("/tensors")
    page.locator("#tensor-table [col-id=tensor]", has_text="model.layer2.bias").click()
    wait_for(page, "#tensor-chosen", "model.layer2.bias")
    assert "tensor=model.layer2.bias" in page.url
    page.reload()
    wait_for(page, "#tensor-chosen", "model.layer2.bias")
    page.goto(page.url.replace("layer2", "layer999"))
    wait_for(page, "#tensor-chosen", "No tensor is chosen")


HEAT_MAP = "Heat map of rank by step"


@pytest.mark.parametrize(
    ("address", "button", "name", "holds", "least_bytes"),
    [
        ("/tensors", "Download CSV: tensor", "tensor.csv", [b"Operation", b"layer2.bias"], 50),
        ("/fusion", "Download CSV: reason", "reason.csv", [b"Closed because"], 20),
        ("/ranks?run=1", f"Save as SVG: {HEAT_MAP}", "hvdtune.svg", [b"<svg"], 5_000),
        ("/ranks?run=1", f"Save as PNG: {HEAT_MAP}", "hvdtune.png", [b"\x89PNG"], 5_000),
        ("/timeline?run=1", "Save PNG", "timeline.png", [b"\x89PNG"], 5_000),
    ],
)
def test_what_is_shown_is_saved(visit, address, button, name, holds, least_bytes):
    page = visit(address)
    settle(page)
    with page.expect_download() as download:
        page.get_by_role("button", name=button).click()
    assert download.value.suggested_filename == name
    content = download.value.path().read_bytes()
    assert all(part in content for part in holds)
    assert len(content) > least_bytes


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("/nowhere", "There is no page /nowhere"),
        ("/?run=99", "There is no run 99: this dashboard shows runs 0 to 1."),
        ("/?run=x", "There is no run x"),
        ("/tensors?run=-1", "There is no run -1"),
        pytest.param("/?run=-1", "There is no run -1", marks=pytest.mark.slow),
        pytest.param("/?run=1e9", "There is no run 1e9", marks=pytest.mark.slow),
        ("/compare?run=0&with=99", "There is no run 99"),
        ("/tensors?run=1&tensor=none", "There is no tensor none in this trace."),
        ("/study?run=1", "hvdtune run --trials 40"),
    ],
)
def test_what_an_address_asks_for_and_is_not_there_is_told(visit, address, said):
    page = visit(address)
    wait_for(page, "#content", said)


@pytest.mark.parametrize(
    ("path", "then"),
    [("/", "**/?run=1"), pytest.param("/timeline", "**/timeline?run=1&from=*", id="timeline")],
)
def test_another_run_can_be_chosen(visit, path, then):
    page = visit(path)
    settle(page)
    page.locator("#run").click()
    page.get_by_role("option", name="other.json").click()
    page.wait_for_url(then)
    wait_for(page, "nav a[href='/tensors?run=1']", "Tensors")


def test_the_theme_can_be_switched_and_is_kept(visit):
    page = visit("/")
    ground = "() => getComputedStyle(document.querySelector('main')).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Light / dark").click()
    page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")
    assert page.evaluate(ground) != light
    page.reload()
    page.wait_for_selector("#content h1")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.wait_for_selector("[data-mantine-color-scheme=dark]", state="attached")
    page.evaluate("localStorage.removeItem('hvdtune-theme')")


def test_the_token_leaves_the_address_bar(visit):
    assert "token" not in visit("/?token=key").url


def test_without_the_token_there_is_a_plain_403(origin):
    with pytest.raises(HTTPError) as caught:
        urlopen(Request(origin + "/_dash-update-component", data=b"{}", method="POST"))
    assert caught.value.code == 403
    assert caught.value.read().startswith(b"403: this hvdtune dashboard opens only with the link")


def test_ctrl_c_ends_it_cleanly(plain_trace):
    dashboard = Dashboard(plain_trace)
    code, printed = dashboard.interrupt()
    assert (code, printed) == (0, "hvdtune dashboard: ended\n")


def test_a_port_in_use_is_one_line_that_names_it(plain_trace):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UsageError,
            match=rf"^cannot serve on 127\.0\.0\.1 port {port}: .*in use; --port 0 takes any",
        ):
            serve([plain_trace], port=port, open_browser=False)


def test_no_path_at_all_is_a_usage_error():
    with pytest.raises(UsageError, match="no trace to show"):
        serve([], open_browser=False)
