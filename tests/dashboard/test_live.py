import threading
import time

import pytest

from hvdtune.dashboard.live import Attached, Live
from hvdtune.errors import TraceFormatError

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

    monkeypatch.setattr("hvdtune.dashboard.live.merge", lambda files: training_trace())
    monkeypatch.setattr("hvdtune.dashboard.data.summary", fail)
    live = Live(Attached("job", lambda: [tmp_path], lambda: True), every_s=0.01)
    wait_until(lambda: "ZeroDivisionError('no')" in live.now.note)
    monkeypatch.undo()
    monkeypatch.setattr("hvdtune.dashboard.live.merge", lambda files: training_trace())
    wait_until(lambda: live.now.number > 0)
    assert live.now.note == ""
    live.close()
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_closing_does_not_wait_for_the_next_reading():
    live = Live(Attached("job", list, lambda: True), every_s=3600)
    live.close()
    assert "hvdtune-live" not in {thread.name for thread in threading.enumerate()}
