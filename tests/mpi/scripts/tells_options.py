import os

from hvdtune.core.rank.build_info import mpi_enabled
from hvdtune.core.rank.runtime import init, rank, setting, size

init()
options = f"{setting()['cycle_time_ms']}, {os.environ['HVDTUNE_LOG_LEVEL']}"
print(f"rank {rank()} of {size()}, by MPI: {mpi_enabled()}, {options}")
