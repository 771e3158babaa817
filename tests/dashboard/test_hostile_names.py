"""Whatever a trace or a study calls things: a page shows it, runs nothing of it, asks nobody."""

import json

import pytest

from hvdtune.dashboard.data import open_run
from hvdtune.dashboard.pages import PAGES
from hvdtune.timeline import write_chrome

from .conftest import opened, served, settle
from .hostile import payloads
from .studies import write_study
from .synthetic import Recording

COUNT = 300
PER_STEP = 10


def hostile_trace():
    """Tensors, hosts, spans, settings and warnings of such names."""
    names = payloads(COUNT)
    recording = Recording()
    ranks = 3
    for step in range(COUNT // PER_STEP):
        start = 10_000 * step
        for rank in range(ranks):
            recording.add(rank, "STEP", (start, start + 9_900), seq=step, arg=5_000)
            recording.add(rank, "BLOCKED", (start + 6_000 + 900 * rank, start + 9_800))
            span = (start + 100, start + 400)
            recording.add(rank, "SPAN", span, name=names[-1 - step])
            bucket = (start + 8_200, start + 9_700)
            recording.add(
                rank, "BUCKET", bucket, name=names[step], seq=PER_STEP, bucket=step, arg=4096
            )
            for index in range(PER_STEP):
                name = names[step * PER_STEP + index]
                key = {"name": name, "seq": 0, "bucket": step}
                ready = start + 5_000 + 10 * index + 900 * rank
                recording.add(rank, "NEGOTIATE", (ready, start + 8_100), **key, arg=1)
                recording.add(rank, "ALLREDUCE", bucket, **key, arg=409)
    recording.add(0, "KNOB_ADOPTED", (5, 5), name=json.dumps({names[3]: names[4]}), arg=1)
    trace = recording.trace(ranks, names[:20])
    for rank in range(ranks):
        trace.meta["ranks"][rank] |= {"host": names[rank + 5], "size": ranks}
    return trace


@pytest.fixture(scope="module")
def hostile_origin(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hostile") / "<img src=x onerror=window.pwned=1>"
    folder.mkdir()
    write_chrome(hostile_trace(), folder / "trace.json.gz")
    write_study(folder, reason=payloads(12)[11])
    run = open_run(folder)
    with served(run, run) as origin:
        yield origin


# Where nothing listens: all pages have to do without other machines.
NOWHERE = {"server": "http://127.0.0.1:9", "bypass": "127.0.0.1"}


_IS_TOLD = """([details, name]) =>
  document.getElementById(details).textContent.includes(name.trim())"""
# Timelines of a page: how many of the names are looked for in each.
_FOUND_IN = {"/timeline": {"swimlane": 10}, "/compare": {"compare-first": 1, "compare-second": 2}}

# Elements and attributes that would come of a name.
_FOUND = """() => [...document.querySelectorAll('#content *')].filter(e =>
  ['SCRIPT', 'IMG', 'IFRAME', 'OBJECT', 'VIDEO', 'MARQUEE', 'MATH', 'STYLE'].includes(
    e.tagName.toUpperCase()) && !e.closest('.js-plotly-plot, .ag-root-wrapper')
  || [...e.attributes].some(a => a.name.startsWith('on')
    || (a.name === 'href' && a.value.includes('javascript:')))).map(e => e.outerHTML)"""


def test_pages_work_offline_and_no_name_is_run_or_becomes_markup(browser, hostile_origin):
    with opened(browser, hostile_origin, proxy=NOWHERE) as (page, complaints):
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        for path in PAGES:
            page.goto(hostile_origin + path)
            page.wait_for_selector("#content h1")
            settle(page)
            for timeline, count in _FOUND_IN.get(path, {}).items():
                for name in payloads(COUNT)[:: COUNT // count]:
                    page.locator(f"#{timeline}-search").fill(name)
                    page.locator(f"#{timeline}-search").press("Enter")
                    page.wait_for_function(_IS_TOLD, arg=[f"{timeline}-details", name])
            if path == "/tensors":
                page.locator("#tensor-table .ag-row").first.click()
                page.wait_for_selector("#tensor-chosen a")
                settle(page)
            assert page.evaluate(_FOUND) == [], path
            assert page.evaluate("window.pwned") is None
        assert page.locator("#content").count() == 1
    assert complaints == []


def test_three_hundred_names_are_there_and_no_two_alike():
    assert len(set(payloads(COUNT))) == COUNT
