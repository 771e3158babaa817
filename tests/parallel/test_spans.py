"""What the timeline has of a script besides its collectives."""

import gc
import signal
import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

import hvdtune.torch as hvd
from hvdtune.core.rank import runtime, spans
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import HvdtuneError
from hvdtune.timeline import merge
from hvdtune.timeline.analysis.metrics import breakdown
from tests.parallel.ranks import run


def work(folder: Path) -> None:
    loader = DataLoader(torch.arange(6), collate_fn=lambda rows: (time.sleep(0.004), rows)[1])
    heap = [[number] for number in range(200_000)]
    gc.collect()
    gc.disable()
    runtime.mark_step()
    for step, _ in enumerate(loader):
        with hvd.span("augment"):
            time.sleep(0.002)
        hvd.allreduce(torch.ones(1000), name="gradient")
        if step == 2:
            gc.collect()
        if step == 4:
            torch.save(torch.zeros(1 << 20), folder / f"checkpoint-{hvd.rank()}")
        runtime.mark_step()
    del heap


def recorded(folder: Path):
    run(work, 2, folder, timeline=str(folder / "rank-%r.hvt"))
    return merge(sorted(folder.glob("*.hvt"))).events


def test_a_script_shows_its_input_pauses_and_waits(tmp_path):
    events = recorded(tmp_path)
    spans = events[events["kind"] == "SPAN"].groupby(["rank", "name"], observed=True).size()
    for rank in range(2):
        assert spans[rank, "input"] == 6
        assert spans[rank, "augment"] == 6
        assert spans[rank, "gc"] >= 1
        assert spans[rank, "checkpoint"] == 1
    reduced = events[(events["kind"] == "ALLREDUCE") & (events["rank"] == 0)]
    blocked = events[(events["kind"] == "BLOCKED") & (events["rank"] == 0)]
    # Rank 0 waits for each of them until the end.
    assert len(blocked) >= len(reduced) == 6
    assert blocked["end_ns"].max() >= reduced["end_ns"].max()


def test_steps_say_how_much_of_a_processor_their_thread_had(tmp_path):
    steps = breakdown.table(recorded(tmp_path))
    assert len(steps) >= 10
    known = steps[steps["step"] > 0]
    assert (known["ran_ms"] > 0).all()
    assert (known["ran_ms"] <= known["step_ms"] + 1).all()
    assert (known["no_processor_ms"] >= 0).all()


def fail_late() -> None:
    """An operation about which the ranks disagree, and rank 1 comes to it late."""
    runtime.mark_step()
    hvd.allreduce(torch.ones(10), name="good")
    if hvd.rank() == 1:
        with hvd.span("late"):
            time.sleep(0.05)
    with pytest.raises(HvdtuneError):
        hvd.allreduce(torch.ones(10 + hvd.rank()), name="bad")
    runtime.mark_step()


def test_a_wait_that_ends_in_an_error_is_recorded(tmp_path):
    run(fail_late, 2, timeline=str(tmp_path / "rank-%r.hvt"))
    events = merge(sorted(tmp_path.glob("*.hvt"))).events
    (late_ns,) = events.loc[(events["kind"] == "SPAN") & (events["name"] == "late"), "end_ns"]
    waits = events[(events["kind"] == "BLOCKED") & (events["rank"] == 0)]
    assert ((waits["begin_ns"] < late_ns) & (waits["end_ns"] > late_ns)).any()


def watch_in_a_job() -> list[list[str]]:
    """What was called of a watcher that begins in a job, then left, formed and left again."""
    called: list[str] = []

    def watcher():
        called.append("begin")
        return lambda: called.append("end")

    spans.watch(watcher)
    seen = [list(called)]
    for change in (hvd.shutdown, hvd.init, hvd.shutdown):
        change()
        seen.append(list(called))
    PROCESS.watchers.remove(watcher)
    return seen


def test_what_is_imported_in_a_job_watches_from_then_on():
    assert run(watch_in_a_job, 1) == [
        [["begin"], ["begin", "end"], ["begin", "end", "begin"], ["begin", "end"] * 2]
    ]


def test_nothing_is_watched_after_shutdown():
    before = DataLoader(torch.arange(1)).__iter__().__class__.__mro__[1].__next__
    callbacks = len(gc.callbacks)
    hvd.init()
    assert len(gc.callbacks) == callbacks + 1
    hvd.shutdown()
    assert len(gc.callbacks) == callbacks
    assert DataLoader(torch.arange(1)).__iter__().__class__.__mro__[1].__next__ is before


class _Preempted(Exception):
    pass


def _preempt(*_):
    raise _Preempted


def _interrupt_collections():
    """How many of ten exceptions of a signal handler arrive whose signals come in collections."""
    before = signal.signal(signal.SIGALRM, _preempt)
    heap = [[number] for number in range(500_000)]
    arrived = 0
    for _ in range(10):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.005)
            gc.collect()
            time.sleep(2)
        except _Preempted:
            arrived += 1
    signal.signal(signal.SIGALRM, before)
    return arrived, len(heap)


def test_what_a_signal_handler_raises_in_a_collection_is_not_lost():
    assert run(_interrupt_collections, 1) == [(10, 500_000)]
