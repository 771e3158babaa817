"""Signal handlers that raise, and the collector, while operations are in flight."""

import gc
import signal
import time
from functools import partial

import pytest
import torch
from torch import distributed as dist

from hvdtune.core.rank.process import PROCESS
from hvdtune.distributed import flight
from hvdtune.errors import RankLostError
from tests.distributed import members

COUNT = 1 << 16


class Interrupted(Exception):
    """Raised by the signal handler."""


class Stop(KeyboardInterrupt):
    """As Interrupted."""


class Interrupting:
    """A runtime of the core in which a signal comes before or after the next submission."""

    def __init__(self, native, *, before):
        self._native = native
        self._before = before

    def __getattr__(self, name):
        return getattr(self._native, name)

    def submit(self, *given, **named):
        if self._before:
            signal.raise_signal(signal.SIGALRM)
        self._native.submit(*given, **named)
        signal.raise_signal(signal.SIGALRM)


def interrupt(owner, call, kind, *, before):
    """Calls it with a handler that raises in the submission to `owner.native`."""

    def handle(number, frame):
        raise kind

    signal.signal(signal.SIGALRM, handle)
    native, owner.native = owner.native, Interrupting(owner.native, before=before)
    with pytest.raises(kind):
        call()
    owner.native = native


def is_interrupted(rank, size, kind):
    """Rank 0 is interrupted in a collective and in a message, before and after each is submitted.

    It drops the tensors of those that are in flight, and fills what is allocated in their place.
    """
    group = dist.group.WORLD
    store = dist.distributed_c10d._get_default_store()
    dist.send(torch.ones(1), 1) if rank == 0 else dist.recv(torch.ones(1), 0)
    sevens = []
    if rank == 0:
        pair = group._pair_with(1)._runtime
        interrupt(group._job, lambda: dist.all_reduce(torch.ones(COUNT)), kind, before=True)
        interrupt(group._job, lambda: dist.all_reduce(torch.ones(COUNT)), kind, before=False)
        interrupt(pair, lambda: dist.send(torch.full((COUNT,), 5.0), 1), kind, before=True)
        interrupt(pair, lambda: dist.send(torch.full((COUNT,), 5.0), 1), kind, before=False)
        gc.collect()
        sevens = [torch.full((COUNT,), 7.0) for _ in range(8)]
        store.set("interrupted", "")
    store.wait(["interrupted"])
    if rank == 1:
        found, message = torch.full((COUNT,), 2.0), torch.empty(COUNT)
        dist.all_reduce(found)
        dist.recv(message, 0)
        assert found.eq(3).all() and message.eq(5).all()
    # What comes after has the numbers that it has on the other rank.
    for number in range(3):
        value = torch.full((3,), float(number))
        dist.all_reduce(value)
        assert value.tolist() == [2.0 * number] * 3
        dist.send(value, 1) if rank == 0 else dist.recv(value, 0)
    assert all(each.eq(7).all() for each in sevens)
    end_s = time.monotonic() + 60
    while PROCESS.in_flight and time.monotonic() < end_s:  # the completer ends what was dropped
        time.sleep(0.001)
    assert not PROCESS.in_flight


@pytest.mark.parametrize("kind", [Interrupted, Stop])
def test_what_is_submitted_is_kept_and_numbered_once_when_a_handler_raises(kind, tmp_path):
    members.run(partial(is_interrupted, kind=kind), 2, tmp_path)


class Holder:
    """An object that refers to itself."""

    def __init__(self, work):
        self.me = self
        self.work = work
        self.future = work.get_future()


def leaves_works_to_the_collector(rank, size):
    gc.set_threshold(1)
    strided = torch.ones(8, 2).t()  # which the completer copies the result to
    for number in range(200):
        Holder(dist.all_reduce(strided, dist.ReduceOp.MAX, async_op=True))
        if number % 16 == 0:
            dist.barrier()
    dist.barrier()


def test_works_that_the_collector_frees_do_not_stop_the_completer(tmp_path):
    members.run(leaves_works_to_the_collector, 2, tmp_path)


def waits_for_news(rank, size):
    """A poll returns at once while another thread waits for news of why an operation failed."""
    work = dist.all_reduce(torch.ones(1), async_op=True)
    work.wait()
    failing = flight.Flight("it", 60.0, (), lambda _: [], (), awaits="nothing")
    slept = []

    def find_loss(wait_s=0.0, other=None):
        slept.append((wait_s, failing._finishing.acquire(blocking=False)))
        failing._finishing.release()

    flight.find_loss, flight.news_can_come = find_loss, lambda _: True
    failing._failure = RankLostError("lost", 1)
    assert not failing.ended
    with pytest.raises(dist.DistBackendError, match="it: lost"):
        failing.wait()
    (poll, is_free), *waits = slept
    assert poll == 0.0 and is_free and waits[-1][0] > 0.0 and all(free for _, free in waits)


def test_nothing_waits_for_news_with_the_lock(tmp_path):
    members.run(waits_for_news, 1, tmp_path)


def refuses(rank, size):
    """Rank 1's handler raises before its call is submitted: the others get no refusal for it."""
    if rank == 1:
        interrupt(dist.group.WORLD._job, dist.barrier, Interrupted, before=True)
    value = torch.ones(1)
    dist.all_reduce(value)
    return value.item()


def test_what_a_handler_raises_is_no_refusal(tmp_path):
    assert members.run(refuses, 2, tmp_path) == [2.0, 2.0]
