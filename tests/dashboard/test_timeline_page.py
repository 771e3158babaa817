"""The swimlane in a real browser."""

import json
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from hvdtune.dashboard.data import open_run
from hvdtune.dashboard.swimlane import Swimlane

from .conftest import opened, served
from .synthetic import HOSTILE, training_trace

GUTTER = 196  # pixels left of the lanes, where there is room
KINETO = Path(__file__).parents[1] / "timeline" / "data" / "kineto"


def view(page):
    """From where to where the address says that the timeline shows, in ns."""
    query = parse_qs(urlsplit(page.url).query)
    return int(query["from"][0]), int(query["to"][0])


def drawn(page):
    return int(page.locator("#swimlane").get_attribute("data-tiles") or 0)


def wait_for_status(page, text):
    page.wait_for_function(
        "text => document.getElementById('swimlane-status').textContent.includes(text)",
        arg=text,
    )


def wait_for_details(page, text):
    page.wait_for_function(
        "text => document.getElementById('swimlane-details').textContent.includes(text)",
        arg=text,
    )


@pytest.fixture
def timeline(visit):
    def go(address="/timeline?run=0"):
        page = visit(address)
        page.wait_for_selector("#swimlane[data-tiles]")
        return page

    return go


def press(page, key):
    page.locator("#swimlane").focus()
    page.keyboard.press(key)


def move(page, key):
    """By a key that asks for another stretch; waits until the address has it."""
    before = page.url
    press(page, key)
    page.wait_for_function("before => location.href !== before", arg=before)


def test_it_shows_the_whole_trace_and_says_so(timeline):
    page = timeline()
    assert "slices" in page.locator("#swimlane-status").inner_text()
    first, last = view(page)
    assert first == 0
    assert last > 230e6
    painted = page.evaluate(
        """() => { const c = document.getElementById('swimlane');
        const d = c.getContext('2d').getImageData(160, 40, c.width - 170, 200).data;
        const seen = new Set(); for (let i = 0; i < d.length; i += 4)
        seen.add(d[i] + ',' + d[i+1] + ',' + d[i+2]); return [...seen]; }"""
    )
    assert {"0,114,178", "0,158,115", "86,180,233"} <= set(painted)  # busy, bucket, negotiate


def test_keys_zoom_and_move_and_the_address_follows(timeline):
    page = timeline()
    whole = view(page)
    for _ in range(3):
        move(page, "w")
    zoomed = view(page)
    assert zoomed[1] - zoomed[0] < 0.4 * (whole[1] - whole[0])
    move(page, "d")
    assert view(page)[0] > zoomed[0]
    move(page, "Home")
    assert view(page) == whole


TRACE = training_trace()
# As it is once it was written: time starts with the first event.
WHOLE = 0, Swimlane.of(TRACE).last_ns - TRACE.events["begin_ns"].min()


@pytest.mark.parametrize(
    ("query", "shown", "kept"),
    [
        pytest.param("from=44000000&to=84000000&rank=1", (44e6, 84e6), "rank=1", id="a stretch"),
        pytest.param(
            "from=10&to=5", WHOLE, "from=0&", id="the whole where it ends before it begins"
        ),
        pytest.param("tensor=model.layer3.weight", WHOLE, "tensor=model.layer3", id="a tensor"),
    ],
)
def test_a_link_reproduces_the_view(timeline, query, shown, kept):
    page = timeline(f"/timeline?run=0&{query}")
    assert view(page) == shown
    assert kept in page.url


def test_the_stretch_is_told(timeline):
    page = timeline("/timeline?run=0&from=44000000&to=84000000")
    assert page.locator("#swimlane-status").inner_text().startswith("44 ms to 84 ms (40 ms)")


def test_arrow_keys_step_through_slices_and_words_follow(timeline):
    page = timeline("/timeline?run=0&from=44000000&to=84000000")
    press(page, "ArrowRight")
    wait_for_status(page, "rank 0 busy")
    press(page, "ArrowDown")
    wait_for_status(page, "rank 0 wait")
    press(page, "ArrowDown")
    wait_for_status(page, "rank 0 negotiate")
    wait_for_details(page, "announced last")
    before = page.locator("#swimlane-status").inner_text()
    press(page, "ArrowRight")
    page.wait_for_function(
        "before => document.getElementById('swimlane-status').innerText !== before", arg=before
    )
    press(page, "Enter")
    assert page.evaluate("document.activeElement.id") == "swimlane-details"
    press(page, "Escape")
    wait_for_status(page, "slices")


def test_a_click_chooses_a_slice_and_tells_what_it_is(timeline):
    page = timeline("/timeline?run=0&from=53000000&to=66000000&rank=0")
    box = page.locator("#swimlane").bounding_box()
    # The bucket lane is the sixth: busy, wait, negotiate, queue, pack, communicate.
    bucket = json.loads(
        page.evaluate("fetch('/find?run=0&text=layer0.weight&number=4').then(r => r.text())")
    )
    middle = (bucket["begin_ns"] + bucket["end_ns"]) / 2
    x = box["x"] + GUTTER + (middle - 53e6) / 13e6 * (box["width"] - GUTTER)
    page.mouse.click(x, box["y"] + 44 + 5 * 21 + 9)
    wait_for_details(page, "closed because")
    assert "model.layer0.weight" in page.locator("#swimlane-details").inner_text()


def test_dragging_gives_totals_of_a_stretch(timeline):
    page = timeline()
    box = page.locator("#swimlane").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 600, box["y"] + 120, steps=4)
    page.mouse.up()
    wait_for_details(page, "Totals of")
    wait_for_details(page, "rank 1 pack")


def test_the_wheel_with_ctrl_zooms_where_the_mouse_is(timeline):
    page = timeline()
    box = page.locator("#swimlane").bounding_box()
    whole = view(page)
    page.mouse.move(box["x"] + box["width"] - 40, box["y"] + 100)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.keyboard.up("Control")
    page.wait_for_function("() => !location.search.includes('from=0&')")
    first, last = view(page)
    assert first > 0.5 * whole[1]
    assert last <= 1.06 * whole[1]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param("layer3.weight", "ALLREDUCE model.layer3.weight", id="a tensor"),
        pytest.param("onerror", HOSTILE, id="a name that is no markup"),
    ],
)
def test_what_is_looked_for_is_found_and_told_as_text(timeline, text, found):
    page = timeline()
    page.get_by_label("Find a tensor").fill(text)
    page.keyboard.press("Enter")
    wait_for_details(page, found)
    assert page.evaluate("window.pwned") is None
    assert page.locator("#content img").count() == 0


@pytest.mark.parametrize("size", [(1280, 900), (390, 844)])
def test_the_list_of_keys_begins_at_its_top(timeline, size):
    page = timeline()
    page.set_viewport_size(dict(zip(("width", "height"), size, strict=True)))
    press(page, "?")
    dialog = page.locator("#swimlane-help[open]")
    assert dialog.evaluate("dialog => dialog.scrollTop") == 0
    heading, top = (part.bounding_box()["y"] for part in (dialog.locator("h2").first, dialog))
    assert 0 <= top <= heading
    page.keyboard.press("Tab")
    assert dialog.locator("button").evaluate("button => button === document.activeElement")
    page.keyboard.press("Enter")
    page.wait_for_selector("#swimlane-help:not([open])", state="attached")


def test_hits_are_counted_and_gone_through_from_the_keyboard(timeline):
    page = timeline()
    press(page, "/")
    assert page.evaluate("document.activeElement.id") == "swimlane-search"
    page.keyboard.type("layer3.weight")
    for key, hit in (("Enter", 1), ("Enter", 2), ("Shift+Enter", 1), ("Shift+Enter", 12)):
        page.keyboard.press(key)
        page.locator("#swimlane-hits", has_text=f"{hit} of 12").wait_for()
    page.keyboard.press("Escape")
    press(page, "n")
    page.locator("#swimlane-hits", has_text="1 of 12").wait_for()
    page.get_by_label("Find a tensor").fill("no such name")
    page.keyboard.press("Enter")
    page.locator("#swimlane-hits", has_text="no name contains no such name").wait_for()
    press(page, "?")
    page.locator("#swimlane-help[open]", has_text="go to the next hit").wait_for()
    page.keyboard.press("Escape")
    page.wait_for_selector("#swimlane-help:not([open])", state="attached")


def test_the_overview_moves_the_window_and_draws_another(timeline):
    page = timeline("/timeline?run=0&from=44000000&to=84000000")
    page.wait_for_selector("#swimlane-overview[title*='2 ranks']")
    box = page.locator("#swimlane-overview").bounding_box()
    scale = (box["width"] - GUTTER - 2) / WHOLE[1]
    middle = box["y"] + box["height"] / 2

    def drag(begin_ns, end_ns, expected):
        page.mouse.move(box["x"] + GUTTER + 1 + begin_ns * scale, middle)
        page.mouse.down()
        page.mouse.move(box["x"] + GUTTER + 1 + end_ns * scale, middle, steps=3)
        page.mouse.up()
        page.wait_for_function(
            """expected => { const query = new URLSearchParams(location.search);
            const is_there = (key, k) => Math.abs(query.get(key) - expected[k]) < 2e6;
            return ['from', 'to'].every(is_there); }""",
            arg=expected,
        )

    drag(64e6, 104e6, [84e6, 124e6])
    drag(20e6, 50e6, [20e6, 50e6])


def test_a_counter_is_drawn_and_told_where_the_mouse_is(browser, tmp_path):
    changes = (0, 9), (5, 3), (9, 0)
    counts = [{"ph": "C", "name": "memory", "pid": 1, "ts": at, "args": {"GB": gb}}
              for at, gb in changes]  # fmt: skip
    (tmp_path / "trace.json").write_text(json.dumps({"traceEvents": counts}))
    with (
        served(open_run(tmp_path / "trace.json")) as origin,
        opened(browser, origin, "/timeline") as (page, complaints),
    ):
        page.wait_for_selector("#swimlane[data-tiles]")
        box = page.locator("#swimlane").bounding_box()
        page.mouse.move(box["x"] + 900, box["y"] + 50)
        told = "memory: 3 (0 to 9 in the whole trace)"
        page.wait_for_function("t => document.getElementById('swimlane').title === t", arg=told)
        high, low, ground = colours(page, [(400, 45), (900, 45), (900, 120)])
        assert low == ground != high
    assert complaints == []


def test_one_slice_is_counted_as_one(browser, tmp_path):
    only = [{"ph": "X", "name": "a", "pid": 3, "tid": 1, "ts": 1, "dur": 5}]
    (tmp_path / "trace.json").write_text(json.dumps(only))
    with (
        served(open_run(tmp_path / "trace.json")) as origin,
        opened(browser, origin, "/timeline") as (page, complaints),
    ):
        page.wait_for_selector("#swimlane[data-tiles]")
        wait_for_status(page, "1 slice drawn")
    assert complaints == []


def test_lanes_are_pinned_and_folded_and_a_link_keeps_it(timeline):
    page = timeline("/timeline?run=0&from=44000000&to=84000000")
    for key, said in (
        ("ArrowDown", "rank 0 busy"),
        ("ArrowDown", "rank 0 wait"),
        ("p", "rank 0 wait is pinned"),
        ("ArrowDown", "rank 0 busy"),
        ("e", "rank 0 busy is folded"),
        ("Shift+E", "rank 0 is folded"),
    ):
        press(page, key)
        wait_for_status(page, said)
    page.wait_for_function("() => location.search.endsWith('pin=0%2Fwait&fold=0%2F')")
    low = page.locator("#swimlane").bounding_box()["height"]
    page.reload()
    page.wait_for_selector("#swimlane[data-tiles]")
    assert page.locator("#swimlane").bounding_box()["height"] == low
    pinned = set(colours(page, [(x, 56) for x in range(150, 900)]))
    assert "240,228,66" in pinned and "0,114,178" not in pinned  # waits, and is not busy


def test_ranges_are_marked_with_notes_and_a_link_keeps_them(timeline):
    page = timeline("/timeline?run=0&from=44000000&to=84000000&mark=5-2&mark=x")
    press(page, "m")
    page.wait_for_selector(".note-form input:focus")
    page.keyboard.type(HOSTILE)
    page.keyboard.press("Enter")
    wait_for_status(page, "Marked 44 ms to 84 ms")
    page.reload()
    page.wait_for_selector("#swimlane[data-tiles]")
    page.locator("#swimlane-marks", has_text=HOSTILE).wait_for()
    press(page, "Home")
    page.locator("#swimlane-marks button").first.press("Enter")
    page.wait_for_function("() => location.search.includes('from=34000000&to=94000000')")
    page.get_by_role("button", name="Remove the mark of 44 ms to 84 ms").press("Enter")
    page.wait_for_function("() => !location.search.includes('mark=')")
    assert page.locator("#swimlane-marks").inner_text() == ""


def test_the_critical_path_is_drawn_and_told_and_a_link_keeps_it(timeline):
    page = timeline("/timeline?run=0&from=84000000&to=204000000")
    press(page, "c")
    wait_for_status(page, "Most of the path through the ranks is rank")
    page.wait_for_function("() => location.search.includes('path=1')")
    page.reload()
    page.wait_for_selector("#swimlane[data-path]")
    assert int(page.locator("#swimlane").get_attribute("data-path")) >= 3
    page.mouse.move(0, 0)
    seen = colours(page, [(600, y) for y in range(40, 260)])
    assert seen.count("232,48,140") in (2, 3, 4)  # as thick as it is
    page.get_by_role("button", name="Critical path").press("Enter")
    page.wait_for_function("() => !location.search.includes('path=')")


def colours(page, points):
    """Of pixels of the canvas, in one reading, since browsers complain of several."""
    return page.evaluate(
        """points => { const c = document.getElementById('swimlane');
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        return points.map(([x, y]) => d.slice(4 * (y * c.width + x)).slice(0, 3).join()); }""",
        points,
    )


def test_settings_are_a_band_above_the_lanes_which_say_which(timeline):
    page = timeline("/timeline?run=0&from=40000000&to=50000000")
    middle = page.locator("#swimlane").bounding_box()
    page.mouse.move(middle["x"] + middle["width"] - 20, middle["y"] + 38)
    page.wait_for_function("() => document.getElementById('swimlane').title.includes('cycle_time')")
    left, right = colours(page, [(160, 38), (900, 38)])
    assert left != right


def test_a_server_that_fails_is_told_of(timeline, page):
    timeline()
    page.route("**/tile**", lambda route: route.fulfill(status=200, body=b"no tile"))
    press(page, "w")
    wait_for_status(page, "cannot be read")


def test_the_chosen_slice_is_part_of_the_address(timeline):
    page = timeline()
    page.get_by_label("Find a tensor").fill("layer3.weight")
    page.get_by_role("button", name="Find", exact=True).click()
    wait_for_details(page, "layer3.weight")
    page.wait_for_function("() => location.search.includes('row=')")
    page.reload()
    page.wait_for_selector("#swimlane[data-tiles]")
    wait_for_details(page, "layer3.weight")
    press(page, "Enter")
    assert page.evaluate("document.activeElement.id") == "swimlane-details"
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.id") == "swimlane"
    page.keyboard.press("Escape")
    page.wait_for_function("() => !location.search.includes('row=')")


def test_slices_of_another_program_are_chosen_and_described(browser):
    with (
        served(open_run(KINETO)) as origin,
        opened(browser, origin, "/timeline") as (page, complaints),
    ):
        page.wait_for_selector("#swimlane[data-tiles]")
        page.get_by_label("Find a tensor").fill("aten::addmm")
        page.get_by_role("button", name="Find", exact=True).click()
        wait_for_details(page, "aten::addmm")
        wait_for_details(page, "cpu_op")
        wait_for_status(page, "slices")
        assert len(page.screenshot()) > 30_000
    assert complaints == []
