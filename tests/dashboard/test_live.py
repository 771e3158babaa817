import itertools
import re
import threading
import time

import pandas as pd
import pytest

from hvdtune.dashboard.data import RunView
from hvdtune.dashboard.live import Attached, Live, Snapshot
from hvdtune.dashboard.pages import live as live_page
from hvdtune.dashboard.pages.live import verdict
from hvdtune.errors import TraceFormatError
from hvdtune.launcher.control import JobSteps
from hvdtune.workflows.attached_job import StepFeed
from tests.kit.synthetic import Training

from .conftest import opened, served
from .synthetic import training_trace

WAIT_S = 20


def wait_until(condition):
    give_up = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_a_job_without_files_yet_is_waited_for_and_its_end_is_seen():
    ended = threading.Event()
    live = Live(Attached("job", list, lambda: not ended.is_set()), every_s=0.01)
    assert (live.now.ended, live.now.note) == (False, "No rank has begun to record yet.")
    ended.set()
    wait_until(lambda: live.now.ended)
    live.close()


@pytest.mark.parametrize("error", [TraceFormatError("rank-0.hvt: no trace"), OSError("gone")])
def test_files_that_cannot_be_read_are_told_of_and_read_again(error):
    tried = []

    def files():
        tried.append(1)
        raise error

    live = Live(Attached("job", files, lambda: True), every_s=0.01)
    wait_until(lambda: len(tried) > 2)
    assert live.now.note == str(error)
    live.close()


def test_events_that_cannot_be_analysed_do_not_end_the_watching(monkeypatch, tmp_path, capsys):
    def fail(_):
        raise ZeroDivisionError("no")

    monkeypatch.setattr("hvdtune.dashboard.live.merge", lambda *_, **__: training_trace())
    monkeypatch.setattr("hvdtune.dashboard.data.summary", fail)
    live = Live(Attached("job", lambda: [tmp_path], lambda: True), every_s=0.01)
    wait_until(lambda: "ZeroDivisionError('no')" in live.now.note)
    monkeypatch.undo()
    monkeypatch.setattr("hvdtune.dashboard.live.merge", lambda *_, **__: training_trace())
    wait_until(lambda: live.now.number > 0)
    assert live.now.note == ""
    live.close()
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_steps_of_ranks_elsewhere_are_shown_without_their_files():
    tables = [
        pd.DataFrame({"rank": [0, 1], "step": [0, 0], "step_ms": [1.0, 2.0]}),
        pd.DataFrame({"rank": [0, 1] * 2, "step": [0, 0, 1, 1], "step_ms": [1.0, 2.0, 3.0, 5.0]}),
    ]
    asked = []

    def steps():
        asked.append(1)
        return tables[min(len(asked) // 2, 1)]

    live = Live(Attached("job", list, lambda: True, steps=steps), every_s=0.01)
    wait_until(lambda: len(asked) > 5)
    now = live.now
    assert now.number == 2  # nothing is drawn again where nothing is new
    shown, adopted = live_page._steps(now, 0)
    assert (shown["step_ms"].tolist(), adopted) == ([1.0, 2.0, 3.0, 5.0], [])
    assert live_page._steps(now, 1)[0]["step_ms"].tolist() == [3.0, 5.0]
    assert "2 steps, 3.50 ms" in live_page._told(now)
    assert "2 ranks, 0 of them on this host" in live_page._told(now)
    assert now.note == "No rank of this host has recorded anything."
    live.close()


def test_the_rank_that_others_wait_for_is_busy_longest_in_steps_that_all_have():
    run = RunView("job", Training([10.0, 14.0]).trace())
    busy = live_page._busy(Snapshot(run), 20).pivot(index="step", columns="rank", values="busy_ms")
    assert len(busy) == 20 and (busy[1] > busy[0] + 3).all()
    alone = RunView("job", Training([10.0]).trace())
    assert live_page._busy(Snapshot(alone), 20).empty


def test_a_job_with_ranks_elsewhere_is_watched_before_its_first_step():
    class Launcher:
        rows = ()

        def steps(self, job, since):
            return JobSteps(1, since, list(self.rows)[since:])

    launcher = Launcher()
    feed = StepFeed(launcher)
    assert feed.table().empty
    launcher.rows = [[1000, 2000], [3000, 4000]]
    table = feed.table()
    assert table.to_dict("list") == {
        "rank": [0, 1, 0, 1], "step": [0, 0, 1, 1], "step_ms": [1.0, 2.0, 3.0, 4.0]
    }  # fmt: skip
    assert feed.table() is table


def test_closing_does_not_wait_for_the_next_reading():
    live = Live(Attached("job", list, lambda: True), every_s=3600)
    live.close()
    assert "hvdtune-live" not in {thread.name for thread in threading.enumerate()}


def test_a_page_whose_answers_take_longer_than_its_ticks_goes_on(browser, monkeypatch):
    told = live_page._told

    def slowly(now):
        time.sleep(0.2)
        return told(now)

    monkeypatch.setattr(live_page, "_EVERY_MS", 20)
    monkeypatch.setattr(live_page, "_told", slowly)
    counts = itertools.count(1)

    def steps():
        return pd.DataFrame({"rank": 0, "step": range(next(counts)), "step_ms": 1.0})

    live = Live(Attached("job", list, lambda: True, steps=steps), every_s=0.01)
    shown = """told => { const text = document.getElementById('live-note')?.textContent ?? '';
      return text.includes(' steps') && text !== told && text; }"""
    with served(live=live) as origin, opened(browser, origin, "/live") as (page, complaints):
        first = page.wait_for_function(shown, arg="").json_value()
        page.wait_for_function(shown, arg=first)
        page.get_by_role("button", name="Pause").click()
        page.get_by_role("button", name="Resume").click()
        page.get_by_role("button", name="Pause").wait_for()
        again = page.locator("#live-note").inner_text()
        page.wait_for_function(shown, arg=again)
        assert complaints == []
    live.close()


@pytest.mark.parametrize(
    ("training", "said"),
    [
        pytest.param(
            Training([10.0, 14.0]),
            r"Rank 1 computes longer, .*\. It costs 4\.00 ms per step \(.*\);"
            r" seen directly\. Remedy: give rank 1 less work .* on alpha\.",
            id="found",
        ),
        pytest.param(Training([10.0]), r"No bottleneck has been found in \d+ steps\.", id="none"),
        pytest.param(
            Training([17.0, 17.0], asleep_ms=[12.0, 12.0]),
            r"Not explained: in \d+ steps, 2\d % of a step is known to be computing; .*\.",
            id="not explained",
        ),
        pytest.param(
            Training([10.0, 10.0], steps=1),
            r"Too few steps for findings yet\. All ranks share only .* are needed\.",
            id="too early",
        ),
    ],
)
def test_what_costs_time_is_told_in_sentences(training, said):
    def words(part):
        if isinstance(part, str):
            return [part]
        inside = part if isinstance(part, list) else getattr(part, "children", None) or []
        return [
            word
            for each in ([inside] if isinstance(inside, str) else inside)
            for word in words(each)
        ]

    text = " ".join(" ".join(words(verdict(RunView("job", training.trace())))).split())
    assert re.search(said, text), text
