"""Jobs of some of the processes that mpirun started, four of them."""

import arrays_only as hvd
import numpy as np
from mpi4py import MPI

from hvdtune.errors import MismatchError, UsageError

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
    refused(members, "this process is rank 2 and is not listed")

refused([0, 1, 2, 3, 3], "listed twice")
refused([0, 1, 2, 3, 4], "mpirun started 4 processes, so rank 4 does not exist")
refused(WORLD.rank, "not int")
refused(MPI.COMM_NULL, "not in that communicator")

ours, everybody, first = hvd.ProcessSet(split), hvd.ProcessSet(WORLD), hvd.ProcessSet([0, 3])
# Ranks of the communicator are in another order than those of the job.
turned = hvd.ProcessSet(WORLD.Split(WORLD.rank // 2, -WORLD.rank))
assert str(ours) == f"ProcessSet(process_set_id=None, ranks=None, mpi_comm={split})"
hvd.init(comm=WORLD, process_sets=[ours, first, everybody, turned, hvd.ProcessSet(split.Dup())])
number = 1 + WORLD.rank % 2
assert str(ours) == f"ProcessSet(process_set_id={number}, ranks={mine}, mpi_comm={split})"
assert ours.mpi_comm is split and (ours.rank(), ours.size()) == (split.rank, 2)
assert (first.process_set_id, first.ranks, first.mpi_comm) == (3, [0, 3], None)
assert (everybody.process_set_id, everybody.ranks) == (0, [0, 1, 2, 3])
half = [rank for rank in range(4) if rank // 2 == WORLD.rank // 2]
assert (turned.process_set_id, turned.ranks) == (4 + WORLD.rank // 2, half)
assert str(hvd.global_process_set).endswith(f"ranks=[0, 1, 2, 3], mpi_comm={WORLD})")
for process_set in (ours, turned):
    assert hvd.gathered(np.array([WORLD.rank]), process_set).tolist() == process_set.ranks
try:
    hvd.add_process_set(hvd.ProcessSet(split))
except NotImplementedError as error:
    assert isinstance(error, UsageError) and "hvd.init(process_sets=[...])" in str(error)
else:
    raise AssertionError("a communicator was added to a job")
hvd.gathered(np.zeros(1))  # a rank that leaves would end the others' operations in their sets
hvd.shutdown()
# The same objects in the next job, in which ranks have other numbers.
hvd.init(comm=[3, 2, 1, 0], process_sets=[ours])
assert hvd.global_process_set.mpi_comm is None and ours.ranks == sorted(3 - rank for rank in mine)
hvd.shutdown()

for comm, kind, part in (
    (MPI.COMM_NULL, UsageError, "this process is not in that communicator"),
    (WORLD if WORLD.rank else MPI.COMM_SELF, MismatchError, "at the same position"),
):
    try:
        hvd.init(comm=WORLD, process_sets=[hvd.ProcessSet(comm)])
    except kind as error:
        assert part in str(error), error
    else:
        raise AssertionError(f"{comm} was accepted")

hvd.init(comm=WORLD)
# mpi4py on this thread while hvdtune's own calls MPI.
handles = [hvd.sum_async(np.ones(50_000, np.float32), f"t{i}") for i in range(50)]
for i in range(200):
    assert WORLD.allreduce(i) == 4 * i
for handle in handles:
    assert (hvd.synchronize(handle) == 4).all()
expect_job(WORLD.rank, 4, [0, 1, 2, 3])
print(f"rank {WORLD.rank} is done")
