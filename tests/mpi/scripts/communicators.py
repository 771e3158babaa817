"""Jobs of some of the processes that mpirun started, four of them."""

import arrays_only as hvd
import numpy as np
from mpi4py import MPI

from hvdtune.errors import UsageError

WORLD = MPI.COMM_WORLD


def expect_job(rank, size, members):
    """`members` are the world's ranks of the job."""
    assert (hvd.rank(), hvd.size()) == (rank, size)
    mine = np.array([WORLD.rank])
    total = hvd.summed(mine)
    assert total.item() == sum(members), (total, members)
    assert hvd.gathered(mine).tolist() == members
    hvd.shutdown()


def refused(comm, part_of_text):
    try:
        hvd.init(comm=comm)
    except UsageError as error:
        assert part_of_text in str(error), error
    else:
        raise AssertionError(f"{comm} was accepted")


mine = [rank for rank in range(4) if rank % 2 == WORLD.rank % 2]
split = WORLD.Split(WORLD.rank % 2, WORLD.rank)
hvd.init(comm=split)
expect_job(split.rank, 2, mine)

# Ranks of a job are numbered as listed.
members = [3, 0, 1]
if WORLD.rank in members:
    hvd.init(comm=members)
    expect_job(members.index(WORLD.rank), 3, members)
else:
    refused(members, "this process is rank 2 and not listed")

refused([0, 1, 2, 3, 3], "listed twice")
refused([0, 1, 2, 3, 4], "mpirun started 4 processes, no 4")
refused(WORLD.rank, "not int")
refused(MPI.COMM_NULL, "not in that communicator")

hvd.init(comm=WORLD)
# mpi4py on this thread while hvdtune's own calls MPI.
handles = [hvd.sum_async(np.ones(50_000, np.float32), f"t{i}") for i in range(50)]
for i in range(200):
    assert WORLD.allreduce(i) == 4 * i
for handle in handles:
    assert (hvd.synchronize(handle) == 4).all()
expect_job(WORLD.rank, 4, [0, 1, 2, 3])
print(f"rank {WORLD.rank} is done")
