import json
import os
import socket
import threading
import time

import pytest

from hvdtune.errors import HvdtuneError, UsageError
from hvdtune.launch import control
from hvdtune.launch.control import JobState, call, open_control


class FakeJob:
    """Keeps what it is asked to record."""

    def __init__(self, timeline=""):
        self.state = JobState("train.py", 2, timeline=timeline, steps=7)
        self.channel = self
        self.asked = []

    def record(self, path, max_bytes=0):
        self.asked.append((path, max_bytes))

    def await_asked(self, count):
        give_up_s = time.monotonic() + 20
        while len(self.asked) < count and time.monotonic() < give_up_s:
            time.sleep(0.005)
        return self.asked


@pytest.fixture
def job():
    job = FakeJob()
    listening = open_control(job)
    yield job
    listening.close()
    assert "hvdtune-control" not in [thread.name for thread in threading.enumerate()]


def raw_connection():
    """To the only launcher that this process is."""
    name = next(iter(control._names(os.getpid())))
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(20)
    connection.connect(f"\0{name}")
    return connection


def test_a_launcher_says_how_its_job_is(job):
    with call(str(os.getpid())) as caller:
        assert (caller.pid, caller.state()) == (os.getpid(), job.state)


def test_recording_is_passed_on_and_ended(job):
    with call(str(os.getpid())) as caller:
        assert caller.record("/tmp/rank-%r.hvt", 1024) == job.state
        caller.stop()
    assert job.asked == [("/tmp/rank-%r.hvt", 1024), ("", 0)]


def test_hanging_up_ends_the_recording(job):
    with call(str(os.getpid())) as caller:
        caller.record("/tmp/rank-%r.hvt", 0)
    assert job.await_asked(2)[1] == ("", 0)


def test_one_caller_records_at_a_time(job):
    with call(str(os.getpid())) as first, call(str(os.getpid())) as second:
        first.record("/tmp/a-%r", 0)
        with pytest.raises(HvdtuneError, match="somebody else records this job"):
            second.record("/tmp/b-%r", 0)
        second.stop()
        assert job.asked == [("/tmp/a-%r", 0)]


def test_another_user_is_not_heard(job, monkeypatch):
    monkeypatch.setattr(control, "_peer", lambda _: (1, 12345, 12345))
    with raw_connection() as connection:
        assert connection.recv(100) == b""


def test_a_launcher_of_another_user_is_not_called(job, monkeypatch):
    monkeypatch.setattr(control, "_peer", lambda _: (os.getpid(), 12345, 12345))
    monkeypatch.setattr(control.os, "getuid", lambda: 54321)
    with pytest.raises(UsageError, match="no job that"):
        call(str(os.getpid()))


@pytest.mark.parametrize("words", [b"no json", b'{"ask": "shell"}', b"[" * 60000])
def test_what_is_no_request_is_refused_and_nothing_happens(job, words):
    with raw_connection() as connection:
        connection.send(words)
        assert "no request" in json.loads(connection.recv(65536))["error"]
    assert job.asked == []


def test_callers_that_say_nothing_delay_nobody(job):
    silent = [raw_connection() for _ in range(control._MOST_CALLERS - 1)]
    with call(str(os.getpid())) as caller:
        assert caller.state().steps == 7
    for connection in silent:
        connection.close()


def test_a_run_folder_names_its_job(tmp_path):
    jobs = [FakeJob(str(tmp_path / run / "ranks" / "launch-0" / "rank-%r.hvt")) for run in "ab"]
    listening = [open_control(job) for job in jobs]
    for run, job in zip("ab", jobs, strict=True):
        (tmp_path / run).mkdir()
        with call(str(tmp_path / run)) as caller:
            assert caller.state() == job.state
    for control_ in listening:
        control_.close()


@pytest.mark.parametrize(
    ("target", "fault"),
    [("1", "is no job that `hvdtune run` has started"), ("no/folder", "neither a process id nor"),
     ("/", "no job runs in / now"), ("4194305", "there is no process 4194305")],
)  # fmt: skip
def test_what_names_no_job_is_one_sentence(target, fault):
    with pytest.raises(UsageError, match=fault):
        call(target)


def test_a_job_that_ends_is_an_error_to_its_caller():
    listening = open_control(FakeJob())
    with call(str(os.getpid())) as caller:
        listening.close()
        with pytest.raises(HvdtuneError, match="has ended"):
            caller.state()
