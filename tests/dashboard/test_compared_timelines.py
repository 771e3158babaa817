"""Two timelines under Compare, in a real browser."""

import contextlib
import json
from urllib.parse import parse_qs, urlsplit

import pytest

from hvdtune.dashboard.data import open_run
from hvdtune.dashboard.timeline_view import sentence_of_busy_time

from .conftest import opened, served, settle

SIDES = {"first": "", "second": "with-"}


@pytest.fixture(scope="module")
def compared(plain_trace, run_folder):
    """The runs of the two sides."""
    return dict(zip(SIDES, map(open_run, (plain_trace, run_folder)), strict=True))


@pytest.fixture
def timelines(visit):
    def go(address="/compare?run=1&with=0"):
        page = visit(address)
        load(page)
        return page

    return go


def load(page):
    for side in SIDES:
        page.wait_for_selector(f"#compare-{side}", state="attached")
        page.locator(f"#compare-{side}").scroll_into_view_if_needed()
        page.wait_for_selector(f"#compare-{side}[data-tiles]")
    page.wait_for_function("() => location.search.includes('with-from=')")


def press(page, side, *keys):
    page.locator(f"#compare-{side}").focus()
    for key in keys:
        page.keyboard.press(key)


def kept(page):
    """What the address says of each side."""
    query = parse_qs(urlsplit(page.url).query)
    keys = ("step", "from", "to")
    return {side: {key: query[prefix + key][0] for key in keys} for side, prefix in SIDES.items()}


def shown(page, compared):
    """From where to where each shows, in ns from the start of the step that it is aligned at."""
    found = {}
    for side, said in kept(page).items():
        first = compared[side].step_spans.at[int(said["step"]), "first_ns"]
        found[side] = int(said["from"]) - first, int(said["to"]) - first
    return found


def wait_for_change(page, before):
    """Until the address says of both that they show something else."""
    page.wait_for_function(
        """before => { const query = new URLSearchParams(location.search);
        return before.every(([key, value]) => query.get(key) !== value); }""",
        arg=[[SIDES[side] + "from", said["from"]] for side, said in before.items()],
    )


def wait_for_text(page, part, text):
    page.locator(f"#compare-{part}", has_text=text).first.wait_for()


def test_a_typical_step_of_each_is_shown_on_one_scale_and_keys_move_both(timelines, compared):
    page = timelines()
    start = kept(page)
    for side, run in compared.items():
        assert int(start[side]["step"]) == run.typical_step
        said = sentence_of_busy_time(run)
        assert not said or page.get_by_text(said).count()
    assert any(map(sentence_of_busy_time, compared.values()))
    for keys in ("w", "d"):
        before = kept(page)
        press(page, "second", *keys)
        wait_for_change(page, before)
        first, second = shown(page, compared).values()
        assert first == pytest.approx(second, abs=2)
    zoomed, whole = kept(page)["first"], start["first"]
    span, before_span = (int(said["to"]) - int(said["from"]) for said in (zoomed, whole))
    assert span == pytest.approx(0.6 * before_span, rel=0.01)


def test_what_is_not_linked_moves_alone_and_a_link_keeps_it(timelines, compared):
    page = timelines()
    page.get_by_label("Same time scale").press("Space")
    page.wait_for_function("() => location.search.includes('linked=0')")
    before = kept(page)
    press(page, "first", "w")
    wait_for_change(page, {"first": before["first"]})
    after = kept(page)
    assert after["second"] == before["second"]
    page.reload()
    load(page)
    assert kept(page) == after
    page.get_by_label("Same time scale").press("Space")
    page.wait_for_function("() => !location.search.includes('linked=0')")
    first, second = shown(page, compared).values()
    assert first == pytest.approx(second, abs=2)


def test_another_step_is_chosen_and_none_is_the_start_of_the_trace(timelines, compared):
    page = timelines()
    step = page.locator("#compare-first-view").get_by_label("Step (4 to 29)")
    step.fill("9")
    page.wait_for_function("() => location.search.includes('&step=9&')")
    first, second = shown(page, compared).values()
    assert first == pytest.approx(second, abs=2)
    step.fill("99")
    wait_for_text(page, "first-view", "Step 99 is not among the 26 steps")
    step.fill("")
    page.wait_for_function("() => location.search.includes('&step=start&')")
    said = kept(page)["first"]
    assert int(said["from"]) < 0 and int(said["to"]) > compared["first"].swimlane.last_ns


def test_lanes_are_pinned_in_both(timelines):
    page = timelines()
    press(page, "first", "ArrowDown", "ArrowDown", "p")
    wait_for_text(page, "first-status", "rank 0 wait is pinned")
    press(page, "second", "ArrowDown", "p")
    wait_for_text(page, "second-status", "rank 0 wait is no longer pinned")
    assert "pin=" not in page.url


def write_threads(path, threads):
    """A trace with slices, one inside the other, of threads: (rank, name, how deep)."""
    events = []
    for tid, (rank, name, deep) in enumerate(threads):
        place = {"pid": rank, "tid": tid}
        title = {"ph": "M", **place}
        events += [
            {**title, "name": "process_name", "args": {"name": f"rank {rank}"}},
            {**title, "name": "thread_name", "args": {"name": name}},
            *(
                {"ph": "X", "name": f"of {name}", **place, "ts": k, "dur": 90 - 2 * k}
                for k in range(deep)
            ),
        ]
    path.write_text(json.dumps({"traceEvents": events}))
    return open_run(path)


@contextlib.contextmanager
def side_by_side(browser, folder, *runs):
    opened_runs = [write_threads(folder / f"{number}.json", run) for number, run in enumerate(runs)]
    with (
        served(*opened_runs) as origin,
        opened(browser, origin, "/compare?run=0&with=1") as (page, complaints),
    ):
        load(page)
        yield page
    assert complaints == []


def test_lanes_of_the_second_are_in_the_order_of_the_first(browser, tmp_path):
    runs = [(0, "alpha", 1), (0, "beta", 1)], [(0, "beta", 1), (0, "alpha", 1)]
    with side_by_side(browser, tmp_path, *runs) as page:
        for name in ("alpha", "beta"):
            press(page, "second", "ArrowDown")
            wait_for_text(page, "second-status", f"of {name}, rank 0 {name}")
        assert {said["step"] for said in kept(page).values()} == {"start"}


def rows_of(page, side):
    """The names of lanes from top to bottom, of every third pixel."""
    box = page.locator(f"#compare-{side}").bounding_box()
    return page.evaluate(
        """([id, height]) => { const canvas = document.getElementById(id), titles = [];
        const { left, top } = canvas.getBoundingClientRect(), clientX = left + 9;
        for (let clientY = top + 1; clientY < top + height; clientY += 3) {
          canvas.dispatchEvent(new PointerEvent('pointermove', { clientX, clientY }));
          titles.push(canvas.title);
        }
        return titles; }""",
        [f"compare-{side}", box["height"]],
    )


def test_equal_lanes_stand_side_by_side_where_a_run_lacks_some(browser, tmp_path):
    first = [(0, "alpha", 1), (0, "beta", 4), (2, "alpha", 1)]
    second = [(0, "beta", 1), (0, "gamma", 3), (1, "delta", 1), (2, "alpha", 1)]
    with side_by_side(browser, tmp_path, first, second) as page:
        rows = {side: rows_of(page, side) for side in SIDES}
        assert rows["first"] == rows["second"]
        assert list(dict.fromkeys(filter(None, rows["first"]))) == [
            "rank 0 alpha",
            "rank 0 beta",
            "rank 0 gamma",
            "rank 1 delta",
            "rank 2 alpha",
        ]
        for side, lacking, down in (("first", "rank 1 delta", 4), ("second", "rank 0 alpha", 1)):
            press(page, side, *["ArrowDown"] * down)
            wait_for_text(page, f"{side}-status", f"{lacking}: this run has no such lane")


def test_a_timeline_is_asked_for_when_it_is_in_sight(visit, page):
    page.set_viewport_size({"width": 1280, "height": 400})
    visit("/compare?run=1&with=0")
    settle(page)
    asked = []
    page.on("request", lambda request: "/tile" in request.url and asked.append(request.url))
    page.locator("#compare-first").scroll_into_view_if_needed()
    page.wait_for_selector("#compare-first[data-tiles]")
    assert ["run=1&" in url for url in asked] == [True] * len(asked)
    assert page.locator("#compare-second[data-tiles]").count() == 0
    load(page)
    assert any("run=0&" in url for url in asked)
