"""Processes that are told their place by variables, as launchers tell it, and what they say."""

import json
import os
import re
import subprocess
import sys

# Meets the others twice, and says what it was told.
SCRIPT = """
import json, sys
import numpy as np
from hvdtune.core.rank import runtime
from hvdtune.core.rank.collectives import ReduceOp, Reduction, allreduce_async
from hvdtune.core.rank.handles import synchronize
from hvdtune.core.rank.numpy_adapter import ADAPTER

said = []
for _ in range(2):
    runtime.init()
    array = np.full(3, runtime.rank() + 1.0)
    synchronize(allreduce_async(ADAPTER, [array], [array], "sum", Reduction(ReduceOp.SUM)))
    said.append([runtime.rank(), runtime.size(), runtime.local_rank(), runtime.local_size(),
                 runtime.cross_rank(), runtime.cross_size(), array.tolist(), runtime.job_name(),
                 runtime.formed_by_mpi()])
    runtime.shutdown()
print(json.dumps(said), flush=True)
"""
KEY = "5a" * 32


def clean_environ():
    """This process's environment without what a launcher may have told it."""
    ours = ("HVDTUNE_", "HOROVOD_", "SLURM", "PMI", "OMPI_", "MPI_", "TORCHELASTIC", "PALS_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR"):
        kept.pop(name, None)
    return kept


class Processes:
    """Processes of one or several jobs, with a folder that they share. They end with the block."""

    def __init__(self, folder, stack):
        self._stack = stack
        # No MPI plugin may be there: what PMI started would be MPI's.
        self.environ = clean_environ() | {
            "HVDTUNE_SHARED_FOLDER": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def start(self, variables, script=SCRIPT, within=(), command=None):
        """Python runs `script`, or has the words of `command`; `within` is a command in front."""
        process = subprocess.Popen(
            [*within, sys.executable, *(command or ["-c", script])],
            env=self.environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        return process


def said_by(process):
    out, error = process.communicate(timeout=100)
    assert process.returncode == 0, error
    return json.loads(out)


def check(said, sizes=None):
    """That ranks met twice as one job. `said` by rank; `sizes` of the hosts, if several."""
    size = len(said)
    sizes = sizes or [size]
    for rank, jobs in enumerate(said):
        host = next(number for number in range(len(sizes)) if rank < sum(sizes[: number + 1]))
        local_rank = rank - sum(sizes[:host])
        total = [size * (size + 1) / 2] * 3
        for number, job in enumerate(jobs):
            place = [rank, size, local_rank, sizes[host], host, len(sizes)]
            assert job == [*place, total, said[0][number][7], False]
    assert said[0][0][7] != said[0][1][7]


def said_in(output):
    """What the ranks said, in the order of ranks."""
    # Python writes a line and its end apart, so lines of several processes may be joined.
    found = re.findall(r"said (\[\[.*?\]\])(?=said|$)", output, re.MULTILINE)
    return sorted(map(json.loads, found))
