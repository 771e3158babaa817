"""Ranks of torch groups that are killed at a random moment of random operations.

`HVDTUNE_TEST_KILLS` says how many the long form kills (default 200).
"""

import os
import random
import threading
from functools import partial

import pytest
import torch
from torch import distributed as dist

from tests.distributed import members

SIZE = 4
IN_CI = 4
LONG = int(os.environ.get("HVDTUNE_TEST_KILLS", "200"))


def numbers(draw):
    return torch.ones(draw.choice((1, 1000, 300_000)) * SIZE)


def all_reduces_at_a_time(rank, draw):
    works = [dist.all_reduce(numbers(draw), async_op=True) for _ in range(4)]
    for work in works:
        work.wait()


def all_to_all(rank, draw):
    given = numbers(draw)
    dist.all_to_all_single(torch.empty_like(given), given)


def all_gather(rank, draw):
    given = numbers(draw)
    dist.all_gather_single(given.new_empty(SIZE * given.numel()), given)


def reduce_scatter(rank, draw):
    given = numbers(draw)
    dist.reduce_scatter_single(given.new_empty(given.numel() // SIZE), given)


def in_a_smaller_group(rank, draw):
    given = numbers(draw)
    if rank < 2:
        dist.all_reduce(given, group=SMALLER[0])


def around_a_ring(rank, draw):
    given = numbers(draw)
    right, left = (rank + 1) % SIZE, (rank - 1) % SIZE
    pair = [dist.P2POp(dist.isend, given, right), dist.P2POp(dist.irecv, given.clone(), left)]
    for work in dist.batch_isend_irecv(pair):
        work.wait()


def objects(rank, draw):
    dist.all_gather_object([None] * SIZE, "x" * draw.randrange(1000))


OPERATIONS = (
    all_reduces_at_a_time,
    all_to_all,
    all_gather,
    reduce_scatter,
    in_a_smaller_group,
    around_a_ring,
    objects,
    lambda rank, draw: dist.broadcast(numbers(draw), draw.randrange(SIZE)),
    lambda rank, draw: dist.reduce(numbers(draw), draw.randrange(SIZE)),
    lambda rank, draw: dist.barrier(),
)
SMALLER = []  # the group of ranks 0 and 1


def goes_on_until_one_is_killed(rank, size, seed):
    draw = random.Random(seed)  # the same on all ranks
    victim, in_s = draw.randrange(size), draw.uniform(0, 0.1)
    SMALLER[:] = [dist.new_group([0, 1])]
    dist.barrier()
    if rank == victim:
        threading.Timer(in_s, members.die).start()
    while True:
        draw.choice(OPERATIONS)(rank, draw)


def kill(seed, folder):
    victim = random.Random(seed).randrange(SIZE)
    folder.mkdir()
    body = partial(goes_on_until_one_is_killed, seed=seed)
    found = members.run(body, SIZE, folder, kills=victim)
    assert found.pop(victim).error is None
    for survivor in found:
        assert survivor.error.kind == "DistBackendError", (seed, survivor.trace)
        assert survivor.error.rank == victim, (seed, survivor.trace)
        assert f"rank {victim}" in str(survivor.error), (seed, survivor.trace)


@pytest.mark.parametrize("seed", range(IN_CI))
def test_all_others_are_told_who_was_killed(seed, tmp_path):
    kill(seed, tmp_path / "store")


@pytest.mark.slow
@pytest.mark.timeout(6000)
def test_all_others_are_told_who_was_killed_each_of_many_times(tmp_path):
    for seed in range(IN_CI, IN_CI + LONG):
        kill(seed, tmp_path / str(seed))
