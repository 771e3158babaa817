"""Ways to end: `ends.py WAY [FILE]`, two processes. FILE receives what a survivor is told."""

import os
import signal
import sys
import time
from pathlib import Path

import arrays_only as hvd
import numpy as np

from hvdtune.errors import RankLostError

way = sys.argv[1]
if "mpi4py-first" in way:
    from mpi4py import MPI

hvd.init()
if "mpi4py-later" in way:
    from mpi4py import MPI
assert hvd.summed(np.ones(3)).tolist() == [2.0] * 3

if "shutdown" in way:
    hvd.shutdown()
if "finalize" in way:
    MPI.Finalize()
if "raise" in way and hvd.rank() == 1:
    raise ValueError("a bug of the script")
if "raise" in way or "kill" in way:
    begin = time.monotonic()
    try:
        while True:
            if hvd.rank() == 1 and time.monotonic() > begin + 0.3:
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.summed(np.ones(2_000_000), "step")
    except RankLostError as error:
        if len(sys.argv) > 2:
            Path(sys.argv[2]).write_text(f"rank {error.rank} was lost")
        sys.exit(3)
print("reached the end", flush=True)
