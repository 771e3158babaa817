"""Ways to end: `ends.py WAY [FILE]`, two processes. FILE receives what a survivor is told."""

import os
import signal
import sys
import time
from pathlib import Path

import torch

import hvdtune.torch as hvd
from hvdtune.errors import RankLostError

way = sys.argv[1]
if "mpi4py-first" in way:
    from mpi4py import MPI

torch.set_num_threads(1)
hvd.init()
if "mpi4py-later" in way:
    from mpi4py import MPI
assert hvd.allreduce(torch.ones(3), op=hvd.Sum).tolist() == [2.0] * 3

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
            hvd.allreduce(torch.ones(2_000_000), name="step")
    except RankLostError as error:
        if len(sys.argv) > 2:
            Path(sys.argv[2]).write_text(f"rank {error.rank} was lost")
        sys.exit(3)
print("reached the end", flush=True)
