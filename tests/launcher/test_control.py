import contextlib
import json
import os
import socket
import threading
import time

import pytest

from hvdtune.errors import HvdtuneError, UsageError
from hvdtune.launcher import control
from hvdtune.launcher.control import JobState, JobSteps, StepLog, connect, open_control


class FakeJob:
    """Keeps what it is asked to record."""

    def __init__(self, timeline=""):
        self.state = JobState("train.py", 2, timeline=timeline, steps=7)
        self.channel = self
        self.asked = []
        self.log = StepLog()
        self.steps_since = self.log.since

    def record(self, path, max_bytes=0):
        self.asked.append((path, max_bytes))

    def await_asked(self, count):
        give_up_s = time.monotonic() + 60
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
    name = next(name for pid, name in control._names() if pid == os.getpid())
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(60)
    connection.connect(f"\0{name}")
    return connection


def test_a_launcher_says_how_its_job_is(job):
    with connect(str(os.getpid())) as caller:
        assert (caller.pid, caller.state()) == (os.getpid(), job.state)


def test_recording_is_passed_on_and_ended(job):
    with connect(str(os.getpid())) as caller:
        assert caller.record("/tmp/rank-%r.hvt", 1024) == job.state
        caller.stop()
    assert job.asked == [("/tmp/rank-%r.hvt", 1024), ("", 0)]


def test_hanging_up_ends_the_recording(job):
    with connect(str(os.getpid())) as caller:
        caller.record("/tmp/rank-%r.hvt", 0)
    assert job.await_asked(2)[1] == ("", 0)


def test_one_caller_records_at_a_time(job):
    with connect(str(os.getpid())) as first, connect(str(os.getpid())) as second:
        first.record("/tmp/a-%r", 0)
        with pytest.raises(HvdtuneError, match="another process is recording this job"):
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
    with pytest.raises(UsageError, match="not a job that"):
        connect(str(os.getpid()))


@pytest.mark.parametrize(
    "words",
    [
        b"no json",
        b'{"ask": "shell"}',
        b"[" * 60000,
        b'{"ask": "record", "path": "/tmp/a", "max_bytes": -1}',
        b'{"ask": "record", "path": "/tmp/a", "max_bytes": 18446744073709551616}',
        b'{"ask": "steps", "since": 9223372036854775807}',
    ],
)
def test_what_is_no_request_is_refused_and_nothing_happens(job, words):
    with raw_connection() as connection:
        connection.send(words)
        assert "not a valid request" in json.loads(connection.recv(65536))["error"]
    assert job.asked == []


def test_what_goes_wrong_with_a_request_is_its_answer_and_the_next_one_is_answered(job):
    def fail(path, max_bytes=0):
        raise ValueError("a fault")

    with connect(str(os.getpid())) as caller, connect(str(os.getpid())) as other:
        job.record = fail
        with pytest.raises(HvdtuneError, match="ValueError: a fault"):
            caller.record("/tmp/rank-%r.hvt", 0)
        del job.record
        assert other.record("/tmp/rank-%r.hvt", 0) == job.state
    assert job.await_asked(2) == [("/tmp/rank-%r.hvt", 0), ("", 0)]


def test_callers_that_say_nothing_delay_nobody(job):
    silent = [raw_connection() for _ in range(control._MOST_CALLERS - 1)]
    with connect(str(os.getpid())) as caller:
        assert caller.state().steps == 7
    for connection in silent:
        connection.close()


def test_the_steps_of_all_ranks_are_told_as_they_end(job):
    with connect(str(os.getpid())) as caller:
        assert caller.steps(0, 0) == JobSteps()
        job.log.begin_job()
        job.log.add(0, (1_000_999, 2_000_000))
        job.log.add(1, (3_000_000, 4_000_000))
        assert caller.steps(0, 0) == JobSteps(1, 0, [[1000, 2000], [3000, 4000]])
        assert caller.steps(1, 1) == JobSteps(1, 1, [[3000, 4000]])
        assert caller.steps(1, 2) == JobSteps(1, 2, [])
        # Another job of the same launcher, which has come further already.
        job.log.begin_job()
        for step in range(3):
            job.log.add(step, (5_000_000, 6_000_000))
        assert caller.steps(1, 2) == JobSteps(2, 0, [[5000, 6000]] * 3)


def test_steps_of_many_ranks_come_in_several_messages_and_old_ones_go(job):
    ranks, steps = 1000, control._KEPT_NUMBERS // 1000 + 5
    for step in range(steps):
        job.log.add(step, [10**12] * ranks)
    with connect(str(os.getpid())) as caller:
        found = caller.steps(0, 0)
        assert found.first == 5
        seen = list(found.durations_us)
        while (found := caller.steps(0, 5 + len(seen))).durations_us:
            assert found.first == 5 + len(seen)
            seen += found.durations_us
    assert seen == [[10**9] * ranks] * (steps - 5)


def test_an_answer_that_cannot_be_understood_is_an_error(job, monkeypatch):
    monkeypatch.setattr(job, "steps_since", lambda job, first: {"first": "none"})
    with connect(str(os.getpid())) as caller, pytest.raises(HvdtuneError, match="another version"):
        caller.steps(0, 0)


def test_a_run_folder_names_its_job(tmp_path):
    jobs = [FakeJob(str(tmp_path / run / "ranks" / "launch-0" / "rank-%r.hvt")) for run in "ab"]
    listening = [open_control(job) for job in jobs]
    for run, job in zip("ab", jobs, strict=True):
        (tmp_path / run).mkdir()
        with connect(str(tmp_path / run)) as caller:
            assert caller.state() == job.state
    for control_ in listening:
        control_.close()


def listener(name, backlog=1):
    """A socket of somebody who is no launcher."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.bind(b"\0" + name)
    made.listen(backlog)
    return made


def busy_listener(name):
    """One that takes no more connections."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(listener(name, backlog=0))
        while True:
            caller = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            caller.setblocking(False)
            try:
                caller.connect(b"\0" + name)
            except BlockingIOError:
                return stack.pop_all()


# Whoever waited for one of them would do so for longer than a test may take.
@pytest.mark.parametrize(
    ("others", "make"),
    [
        ([b"hvdtune-job-%d-%d" % (os.getpid(), number) for number in range(200)], listener),
        ([b"hvdtune-job-%d-busy%d" % (os.getpid(), number) for number in range(9)], busy_listener),
        ([b"\xff", b"\n\n", b" \n@hvdtune-job-1-x\n", b"hvdtune-job-x-1"], listener),
    ],
    ids=["silent-under-foreseeable-names", "busy", "names-that-are-no-text"],
)
def test_sockets_of_others_keep_nobody_from_a_launcher(monkeypatch, tmp_path, others, make):
    monkeypatch.setattr(control, "_ANSWER_S", 3600.0)
    job = FakeJob(str(tmp_path / "rank-%r.hvt"))
    with contextlib.ExitStack() as stack:
        for name in others:
            stack.enter_context(make(name))
        stack.callback(open_control(job).close)
        with connect(str(tmp_path)) as caller:
            assert caller.state() == job.state


@pytest.mark.parametrize(
    ("target", "fault"),
    [("1", "is not a job that `hvdtune run` started"), ("no/folder", "neither a process id nor"),
     (".", r"no job runs in \S+ now"), ("4194305", "there is no process 4194305")],
)  # fmt: skip
def test_what_names_no_job_is_one_sentence(tmp_path, monkeypatch, target, fault):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=fault):
        connect(target)


def test_a_job_that_ends_is_an_error_to_its_caller():
    listening = open_control(FakeJob())
    with connect(str(os.getpid())) as caller:
        listening.close()
        with pytest.raises(HvdtuneError, match="has ended"):
            caller.state()
