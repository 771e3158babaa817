"""Calls functions on ranks that mpirun starts."""

import hvdtune
from hvdtune.errors import FunctionError


def place(offset):
    from hvdtune.core.rank import runtime
    from hvdtune.core.rank.objects import allgather_object

    runtime.init()
    ranks = allgather_object(runtime.rank())
    print(f"out of {runtime.rank()}", flush=True)
    if offset is None and runtime.rank() == 1:
        raise KeyError("no such weight")
    return ranks, runtime.rank() + (offset or 0), runtime.formed_by_mpi()


print("results", hvdtune.run(place, (10,), np=2, use_mpi=True))
try:
    hvdtune.run(place, (None,), np=2, use_mpi=True)
except FunctionError as error:
    print("raised", error.rank, str(error).splitlines()[0])
