"""What ranks print, and what they raise, when nothing moves."""

import contextlib
import ctypes
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

import hvdtune.torch as hvd
from hvdtune.core.rank.in_flight import note_end_of_wait, note_wait
from hvdtune.errors import HangError, HorovodInternalError
from tests.parallel.ranks import run, start

PATIENCE_S = 100.0


def keep_stderr(folder):
    log = os.open(folder / f"{hvd.rank()}.txt", os.O_CREAT | os.O_WRONLY, 0o600)
    os.dup2(log, 2)


def until_told(folder, word):
    """Goes round until this rank's pages hold the word."""
    deadline = time.monotonic() + PATIENCE_S
    while word not in (folder / f"{hvd.rank()}.txt").read_text():
        assert time.monotonic() < deadline, f"no page says {word!r}"
        yield


def sleeps_at_length(folder):
    for _ in until_told(folder, "never called"):
        time.sleep(0.1)


def computes_at_length(folder):
    for _ in until_told(folder, "still computing"):
        sum(range(10_000))


def holds_the_interpreter_lock(folder):
    for _ in until_told(folder, "never called"):
        ctypes.PyDLL(None).sleep(4)


def waits_in_a_lock(folder):
    lock = threading.Lock()
    lock.acquire()
    for _ in until_told(folder, "never called"):
        lock.acquire(timeout=0.1)


def sleeps_deep_in_a_library(folder):
    """Sleep below many frames of a library, some of which the report leaves out."""
    source = "def call(depth, end):\n    return call(depth - 1, end) if depth else end()"
    library = {}
    exec(compile(source, "/opt/site-packages/deep.py", "exec"), library)
    library["call"](20, lambda: sleeps_at_length(folder))


def hang_once(way, folder):
    keep_stderr(folder)
    hvd.barrier()
    if hvd.rank() == 1:
        way(folder)
    return hvd.allreduce(torch.ones(3), op=hvd.Sum, name="late").sum().item()


WAYS = {
    sleeps_at_length: "never called",
    computes_at_length: "still computing",
    holds_the_interpreter_lock: "never called",
    waits_in_a_lock: "never called",
    sleeps_deep_in_a_library: "never called",
}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_every_rank_prints_who_is_missing_why_and_where(way, tmp_path):
    with start(hang_once, 3, way, tmp_path, hang_warning_s=1.0) as job:
        for outcome in job.outcomes():
            assert outcome.value == 9.0, outcome.trace
    for rank in range(3):
        text = (tmp_path / f"{rank}.txt").read_text()
        assert f"hvdtune[{rank}] warning: no progress for " in text
        assert '"allreduce.late" allreduce(sum) float32 [3]' in text
        assert "by ranks 0, 2, waits for\n    rank 1: " + WAYS[way] in text
        assert f"in {way.__name__}\n" in text.partition("rank 1's main thread")[2]


def call_in_another_order(folder):
    keep_stderr(folder)
    first, second = ("b", "a") if hvd.rank() == 1 else ("a", "b")
    hvd.allreduce(torch.ones(2), name=first)
    hvd.allreduce(torch.ones(2), name=second)


def test_ranks_that_call_in_another_order_are_told_so_and_given_up(tmp_path):
    with start(call_in_another_order, 3, tmp_path, hang_warning_s=0.5, hang_abort_s=1.5) as job:
        for outcome in job.outcomes():
            assert isinstance(outcome.error, HangError), outcome.trace
            assert "called in a different order or with other tensors" in str(outcome.error)
    text = (tmp_path / "2.txt").read_text()
    assert (
        "rank 1: called in a different order or with other tensors; "
        'it waits for "allreduce.b", which ranks 0, 2 have not' in text
    )


def wait_in_other_calls_after_a_join(folder):
    keep_stderr(folder)
    if hvd.rank() == 2:
        hvd.join()
    with contextlib.suppress(HorovodInternalError):
        hvd.broadcast(torch.ones(2), root_rank=2, name="weights")  # which has joined
    hvd.allreduce(torch.ones(2), name=f"of rank {hvd.rank()}")


DEADLOCKS = {
    call_in_another_order: "ranks 0, 2, waits for\n    rank 1: called in a different order",
    wait_in_other_calls_after_a_join: 'it waits for "allreduce.of rank 1", which rank 0 has not',
}


@pytest.mark.parametrize("body", DEADLOCKS, ids=lambda body: body.__name__)
def test_a_deadlock_is_told_long_before_the_warning_time(body, tmp_path):
    with start(body, 3, tmp_path, hang_warning_s=1e6) as job:
        deadline = time.monotonic() + PATIENCE_S
        while "no progress for " not in (page := log_of(0, tmp_path)):
            assert time.monotonic() < deadline and job.processes[0].is_alive()
            time.sleep(0.1)
    reason = "every rank waits for an operation that another has not called"
    assert f"and none is possible: {reason}" in page
    assert DEADLOCKS[body] in page


def log_of(rank, folder):
    path = folder / f"{rank}.txt"
    return path.read_text() if path.exists() else ""


def look_beside_another_thread(told):
    """A thread that waits for long tells the core so, with and without another thread."""
    native = SimpleNamespace(note_blocked_threads=told.append)
    for _ in range(2):
        note_wait(native)
        note_end_of_wait(native)
    with ThreadPoolExecutor(1) as other:
        other.submit(os.getpid).result()
        note_wait(native)
    note_end_of_wait(native)
    return told


def test_a_thread_that_could_still_call_something_spoils_the_proof():
    assert run(look_beside_another_thread, 1, []) == [[1, 0, 1, 0, 0, 0]]


def disagree(folder):
    keep_stderr(folder)
    hvd.barrier()
    if hvd.rank() == 2:
        for _ in until_told(folder, "mismatch"):
            time.sleep(0.1)
    hvd.allreduce(torch.ones(4 if hvd.rank() == 1 else 3), op=hvd.Sum, name="x")


def test_a_mismatch_is_told_before_the_last_rank_has_called(tmp_path):
    with start(disagree, 3, tmp_path, hang_warning_s=0.5) as job:
        job.outcomes()
    assert (
        "mismatch: rank 0 called allreduce(sum) float32 [3], rank 1 called allreduce(sum) "
        "float32 [4]\n    rank 2: never called" in (tmp_path / "0.txt").read_text()
    )


def compute_through_four_pages(folder):
    keep_stderr(folder)
    hvd.barrier()
    if hvd.rank() == 1:
        # Far longer than the job may hang.
        for _ in until_told(folder, "next report in 4."):
            sum(range(10_000))
    return hvd.allreduce(torch.ones(1), op=hvd.Sum).item()


@pytest.mark.slow
def test_a_rank_that_computes_is_told_less_and_less_often_and_never_given_up(tmp_path):
    options = {"hang_warning_s": 0.6, "hang_abort_s": 2.0}
    with start(compute_through_four_pages, 2, tmp_path, **options) as job:
        assert [outcome.value for outcome in job.outcomes()] == [2.0, 2.0]
    assert (tmp_path / "0.txt").read_text().count("no progress for ") in (4, 5)


def sleep_until_given_up(folder):
    keep_stderr(folder)
    hvd.barrier()
    if hvd.rank() == 1:
        for _ in until_told(folder, "the job ends\n"):
            time.sleep(0.1)
        time.sleep(0.5)
    hvd.allreduce(torch.ones(1), name="doomed")


def test_a_rank_that_sleeps_is_given_up_and_named(tmp_path):
    with start(sleep_until_given_up, 3, tmp_path, hang_warning_s=0.5, hang_abort_s=1.5) as job:
        for outcome in job.outcomes():
            assert isinstance(outcome.error, HangError), outcome.trace
            assert outcome.error.rank == 1
            assert outcome.error.tensor == "allreduce.doomed"
            assert "for rank 1: never called" in str(outcome.error)


def say_nothing(folder):
    keep_stderr(folder)
    hvd.barrier()
    if hvd.rank() == 1:
        time.sleep(1.5)
    hvd.allreduce(torch.ones(1))


def test_no_page_is_printed_where_the_check_is_off(tmp_path):
    with start(say_nothing, 2, tmp_path, hang_warning_s=0.0, hang_abort_s=0.5) as job:
        assert [outcome.trace for outcome in job.outcomes()] == ["", ""]
    assert (tmp_path / "0.txt").read_text() == ""
