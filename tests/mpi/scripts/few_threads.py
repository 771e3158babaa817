"""mpi4py asked for one thread only."""

import mpi4py

mpi4py.rc.thread_level = "funneled"

from mpi4py import MPI  # noqa: E402

from hvdtune.core.rank.runtime import init  # noqa: E402
from hvdtune.errors import UsageError  # noqa: E402

assert MPI.Query_thread() < MPI.THREAD_MULTIPLE
try:
    init()
except UsageError as error:
    print(error)
