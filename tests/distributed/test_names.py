"""Which names operations have, by which the core knows those that it has carried out before."""

import random
from collections import deque

import pytest
import torch
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hvdtune.torch as hvd
from hvdtune.distributed.names import COUNT, LAG, OperationNames
from hvdtune.timeline.analysis.metrics import cache
from hvdtune.timeline.reading.opening import open_trace
from tests.distributed import members

STEP = ["broadcast", "allreduce 3", "allreduce 3", "allreduce 5", "allgather"]


def named(names, what):
    """The number in the name of the next operation, which is submitted."""
    name = names.next()
    names.add(what)
    return name


def test_operations_that_do_not_repeat_are_numbered():
    names = OperationNames()
    assert [named(names, object()) for _ in range(2000)] == [n % COUNT for n in range(2000)]
    assert names.count == 2000


def test_what_repeats_soon_has_the_name_of_its_like_and_not_too_soon():
    names = OperationNames()
    found = []
    for number in range(1700):
        what = f"once {number}" if number < 70 else STEP[number % len(STEP)]
        found.append((what, named(names, what)))
    later = found[800:]
    assert len(set(later)) == len({name for _, name in later}), "a name is of one operation only"
    assert min(later.index(each, at + 1) - at for at, each in enumerate(later[:300])) >= 256


def test_an_evaluation_between_steps_does_not_take_the_rhythm_away():
    names = OperationNames()
    for number in range(900):
        named(names, STEP[number % len(STEP)])
    for _ in range(3):
        named(names, "evaluation")
    steps = [STEP[number % len(STEP)] for number in range(900)]
    found = [(step, named(names, step)) for step in steps]
    assert len(set(found[300:])) == len({name for _, name in found[300:]}) < COUNT


def test_what_is_remembered_has_a_bound_while_operations_repeat():
    names = OperationNames()
    for number in range(20_000):
        named(names, STEP[number % len(STEP)])
    assert len(names._history[1]) < 2 * COUNT


class Rank:
    """Names its operations, and hears of each mismatch `delay` operations later."""

    def __init__(self, delay):
        self._names = OperationNames()
        self._delay = delay
        self._heard = deque()

    def start(self, what, is_mismatch):
        number = self._names.count
        # Operation LAG before the next has ended, so this is the last moment to hear of it.
        while self._heard and self._heard[0] <= number - self._delay():
            self._names.note_mismatch(self._heard.popleft())
        if is_mismatch:
            self._heard.append(number)
        return named(self._names, what)


@pytest.mark.parametrize("seed", range(5))
def test_names_do_not_depend_on_when_a_rank_hears_of_a_mismatch(seed):
    chance = random.Random(seed)
    ranks = [Rank(lambda: 1), Rank(lambda: LAG), Rank(lambda: chance.randint(1, LAG))]
    period, moduli = 5, set()
    for number in range(12_000):
        if number % 1500 == 0:
            period = chance.choice([1, 3, 5, 64, 130, 300])
        is_mismatch = chance.random() < 0.004
        # A mismatch looks like the rhythm to some ranks, and not to others.
        what = number % period
        calls = [(what, "other", rank)[chance.randrange(3)] for rank in range(3)]
        given = {
            rank.start(call if is_mismatch else what, is_mismatch)
            for rank, call in zip(ranks, calls, strict=True)
        }
        assert len(given) == 1, number
        moduli.add(ranks[0]._names._modulus)
    assert len(moduli) > 2


def trains(rank, size, folder):
    model = DistributedDataParallel(torch.nn.BatchNorm1d(8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(520):
        if step == 500:
            hvd.start_timeline(folder / "trace.json")
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
    hvd.stop_timeline()
    dist.barrier()


class Training:
    """For a process of its own."""

    def __init__(self, folder):
        self._folder = folder

    def __call__(self, rank, size):
        trains(rank, size, self._folder)


def test_announcements_of_ddp_hit_the_response_cache(tmp_path):
    members.run(Training(tmp_path), 2, tmp_path)
    found = cache.table(open_trace(tmp_path / "trace.json").events)
    assert list(found["cached_percent"]) == [100, 100]
