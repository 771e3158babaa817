import socket
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from hvdtune.dashboard.app import serve
from hvdtune.errors import UsageError

from .conftest import Dashboard
from .synthetic import HOSTILE

LABELS = "#timeline .yaxislayer-above text"
WAIT_MS = 15_000


def _labels(page):
    return page.locator(LABELS).all_text_contents()


def _wait_for_note(page, text):
    page.wait_for_function(
        "text => document.getElementById('note').textContent.includes(text)", arg=text,
        timeout=WAIT_MS,
    )  # fmt: skip


def _choose_tensor(page, name):
    page.locator("#tensors").click()
    page.locator(".dash-dropdown-content input[type=search]").fill(name)
    page.locator(".dash-dropdown-option", has_text=name).first.click()
    page.keyboard.press("Escape")


def test_the_page_shows_tensors_phases_and_what_the_run_is(page):
    assert "model.layer0.weight  r0" in _labels(page)
    legend = page.locator("#timeline .legendtext").all_text_contents()
    assert {"negotiate", "queue", "communicate", "exchange", "announced last"} <= set(legend)
    head = page.locator("#head").inner_text()
    assert "2\non 2 hosts" in head
    assert "6 samples" in head
    assert "12 events were dropped" in head


def test_the_token_leaves_the_address_bar(page):
    assert "token" not in page.url


def test_without_the_token_there_is_a_plain_403(dashboard):
    with pytest.raises(HTTPError) as caught:
        urlopen(Request(dashboard.origin + "/_dash-update-component", data=b"{}", method="POST"))
    assert caught.value.code == 403
    assert caught.value.read().startswith(b"403: this hvdtune dashboard opens only with the link")


def test_next_and_previous_move_by_a_step(page):
    page.get_by_role("button", name="Next", exact=True).click()
    _wait_for_note(page, "Step 3:")
    page.get_by_role("button", name="Previous", exact=True).click()
    page.get_by_role("button", name="Previous", exact=True).click()
    _wait_for_note(page, "Step 1:")


def test_the_slider_chooses_a_step(page):
    page.locator("#window [role=slider]").focus()
    page.keyboard.press("End")
    _wait_for_note(page, "Step 5:")


def test_several_steps_can_be_shown_at_once(page):
    page.locator("#count").click()
    page.locator(".dash-dropdown-option", has_text="3").first.click()
    _wait_for_note(page, "Step 2 to step 4:")


def test_dragging_zooms_and_a_double_click_shows_the_whole_window(page):
    span = "() => document.querySelector('#timeline .js-plotly-plot').layout.xaxis.range"
    whole = page.evaluate(span)
    page.locator("#timeline").scroll_into_view_if_needed()
    box = page.locator("#timeline .nsewdrag").bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.3, middle - 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, middle + 60, steps=5)
    page.mouse.up()
    page.wait_for_function(f"limit => ({span})()[0] > limit", arg=whole[0] + 5, timeout=WAIT_MS)
    page.mouse.dblclick(box["x"] + box["width"] * 0.9, middle)
    page.wait_for_function(f"limit => ({span})()[0] <= limit", arg=whole[0], timeout=WAIT_MS)


def test_the_tensor_filter_leaves_only_that_tensor(page):
    _choose_tensor(page, "model.layer3.weight")
    _wait_for_note(page, "1 tensor on 2 ranks")
    tensors = [label for label in _labels(page) if not label.startswith(("steps", "buckets"))]
    assert sorted(tensors) == ["model.layer3.weight  r0", "model.layer3.weight  r1"]


def test_the_rank_filter_leaves_only_that_rank(page):
    page.locator("#ranks").click()
    page.locator(".dash-dropdown-option", has_text="rank 1").click()
    page.keyboard.press("Escape")
    _wait_for_note(page, "12 tensors on 1 rank")
    assert all(label.endswith("r1") for label in _labels(page))


def test_a_click_on_a_table_row_filters_the_timeline(page):
    page.locator("#tensor-table [col-id=tensor]", has_text="model.layer2.bias").click()
    _wait_for_note(page, "1 tensor on 2 ranks")
    assert "model.layer2.bias  r1" in _labels(page)


def test_the_table_sorts_and_downloads_as_csv(page):
    header = page.locator("#tensor-table .ag-header-cell[col-id=bytes]")
    header.click()
    page.wait_for_selector("#tensor-table .ag-header-cell[col-id=bytes][aria-sort=ascending]")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    text = download.value.path().read_text()
    assert "Size (bytes)" in text
    assert "model.layer2.bias" in text


def test_hostile_names_stay_text_everywhere(page):
    page.locator("#tensor-table [col-id=tensor]", has_text="<img").click()
    _wait_for_note(page, "1 tensor on 2 ranks")
    assert any(label.startswith("<img src=x") for label in _labels(page))
    page.locator("#timeline").scroll_into_view_if_needed()
    bar = page.locator("#timeline .barlayer .trace").nth(2).locator(".point path").first
    box = bar.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#timeline .hovertext")
    assert HOSTILE in page.locator("#timeline .hovertext").first.text_content()
    assert page.locator("img[src=x]").count() == 0
    assert page.evaluate("window.pwned") is None


def test_a_hover_tells_the_duration_with_its_unit_and_the_late_rank(page):
    _choose_tensor(page, "model.layer3.weight")
    _wait_for_note(page, "1 tensor on 2 ranks")
    page.locator("#timeline").scroll_into_view_if_needed()
    bar = page.locator("#timeline .barlayer .trace").nth(2).locator(".point path").first
    box = bar.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_selector("#timeline .hovertext")
    hover = page.locator("#timeline .hovertext").first.text_content()
    assert "negotiate" in hover
    assert " ms" in hover
    assert "announced last" in hover


def test_the_study_is_shown_with_verdict_trials_and_pairs(page):
    assert "+7.3 % [6.1, 8.4] 95 % CI" in page.locator("#verdict").inner_text()
    page.locator("#trial-table").scroll_into_view_if_needed()
    page.wait_for_selector("#trial-table [col-id=reason]:has-text('<b>slow</b>')")
    states = page.locator("#trials .legendtext").all_text_contents()
    assert states == ["complete", "pruned", "failed"]
    launches = page.locator("#verification .legendtext").all_text_contents()
    assert launches == ["launch 2", "launch 3"]


def test_another_run_can_be_chosen_and_says_that_it_has_no_study(page):
    page.locator("#run").click()
    page.locator(".dash-dropdown-option", has_text="other.json").click()
    page.wait_for_selector("#no-study")
    _wait_for_note(page, "4 tensors on 2 ranks")
    assert page.locator("#verdict").count() == 0


def test_the_theme_can_be_switched_and_is_kept(page):
    ground = "() => getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_role("button", name="Light / dark").click()
    page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")
    assert page.evaluate(ground) != light
    page.reload()
    page.wait_for_selector("#timeline .barlayer .point")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.parametrize("width", [1280, 800])
def test_nothing_sticks_out_of_the_page(page, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.wait_for_timeout(500)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_ctrl_c_ends_it_cleanly(plain_trace):
    dashboard = Dashboard(plain_trace)
    code, printed = dashboard.interrupt()
    assert (code, printed) == (0, "hvdtune dashboard: ended\n")


def test_a_port_in_use_is_one_line_that_names_it(plain_trace):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            UsageError, match=rf"^cannot serve on 127\.0\.0\.1 port {port}: .*in use$"
        ):
            serve([plain_trace], port=port, open_browser=False)


def test_no_path_at_all_is_a_usage_error():
    with pytest.raises(UsageError, match="no trace to show"):
        serve([], open_browser=False)
