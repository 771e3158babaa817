"""A barrier that tells who has not come."""

import os
import signal
from datetime import timedelta

import pytest
from torch import distributed as dist

from hvdtune.distributed import monitored_barrier
from tests.distributed import members


def misses_two(rank, size):
    limit = timedelta(seconds=60 if rank else 0.3)  # rank 0's decides
    monitored_barrier()
    pair = dist.new_group([0, 1])
    if rank < 2:
        monitored_barrier(pair)
        said = []
        for wait_all in (False, True):
            with pytest.raises(dist.DistBackendError, match="monitored_barrier") as caught:
                monitored_barrier(timeout=limit, wait_all_ranks=wait_all)
            said.append((caught.value.rank, str(caught.value)))
        dist.barrier()
        return said
    dist.barrier()
    return None


def misses_a_killed_one(rank, size):
    monitored_barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistBackendError, match=r"monitored_barrier: .*rank 1") as caught:
        monitored_barrier()  # which otherwise takes a minute
    assert "did not call" not in str(caught.value)
    return caught.value.rank


def test_a_killed_rank_ends_it_at_once(tmp_path):
    first, _, last = members.run(misses_a_killed_one, 3, tmp_path, kills=1)
    assert (first.value, last.value) == (1, 1)


def test_who_has_not_come_is_named_on_all_that_have(tmp_path):
    found = members.run(misses_two, 4, tmp_path)
    one = (2, "monitored_barrier: rank 2 did not call it within 0.3 s")
    both = (2, "monitored_barrier: rank 2, rank 3 did not call it within 0.3 s")
    assert found == [[one, both], [one, both], None, None]
