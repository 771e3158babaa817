"""Which names operations have, by which the core knows those that it has carried out before."""

import torch
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hvdtune.torch as hvd
from hvdtune.distributed.names import COUNT, OperationNames
from hvdtune.timeline.analysis.metrics import cache
from hvdtune.timeline.reading.opening import open_trace
from tests.distributed import members

STEP = ["broadcast", "allreduce 3", "allreduce 3", "allreduce 5", "allgather"]


def test_operations_that_do_not_repeat_are_numbered():
    names = OperationNames()
    assert [names.next(object()) for _ in range(2000)] == [(n, n % COUNT) for n in range(2000)]


def test_what_repeats_soon_has_the_name_of_its_like_and_not_too_soon():
    names = OperationNames()
    named = []
    for number in range(1500):
        what = f"once {number}" if number < 70 else STEP[number % len(STEP)]
        named.append((what, names.next(what)[1]))
    later = named[600:]
    assert len(set(later)) == len({name for _, name in later}), "a name is of one operation only"
    assert min(later.index(each, at + 1) - at for at, each in enumerate(later[:300])) >= 256


def test_an_evaluation_between_steps_does_not_take_the_rhythm_away():
    names = OperationNames()
    for number in range(700):
        names.next(STEP[number % len(STEP)])
    for _ in range(3):
        names.next("evaluation")
    named = [
        (STEP[number % len(STEP)], names.next(STEP[number % len(STEP)])[1]) for number in range(900)
    ]
    assert len(set(named[300:])) == len({name for _, name in named[300:]}) < COUNT


def test_ranks_that_disagreed_go_on_with_names_that_agree():
    ranks = [OperationNames(), OperationNames()]
    for number in range(1200):
        what = STEP[number % len(STEP)]
        given = [
            names.next("allreduce 4" if wrong and number == 201 else what)
            for wrong, names in enumerate(ranks)
        ]
        assert given[0] == given[1]
        if number == 201:
            for names in ranks:
                names.forget(number)


def trains(rank, size, folder):
    model = DistributedDataParallel(torch.nn.BatchNorm1d(8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(220):
        if step == 200:
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
