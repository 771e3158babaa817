"""A training that goes on until its study, in the folder `run`, has a verdict.

    tuned_training.py WORKER FOLDER PAIRS

Worker WORKER is killed when the study in FOLDER has so many pairs. At the end every rank prints the
sizes under which the steps were taken, and the sum that `tests` make of these.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from hvdtune.core.elastic.loop import run
from hvdtune.core.elastic.state import ObjectState
from hvdtune.core.rank.collectives import ReduceOp, Reduction, allreduce_async
from hvdtune.core.rank.handles import synchronize
from hvdtune.core.rank.numpy_adapter import ADAPTER
from hvdtune.core.rank.objects import broadcast_object
from hvdtune.core.rank.runtime import init, mark_step, rank, size

killed, folder, pairs = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
is_struck = int(os.environ["HVDTUNE_WORKER"]) == killed

init()
state = ObjectState(broadcast_object, rank, total=0, sizes=[], is_over=False)


def summed(*values):
    array = np.array(values, np.int64)
    synchronize(allreduce_async(ADAPTER, [array], [array], "sum", Reduction(ReduceOp.SUM)))
    return array


@run
def train(state):
    while not state.is_over:
        log = folder / "pairs.jsonl"
        if is_struck and log.exists() and log.read_bytes().count(b"\n") >= pairs:
            os.kill(os.getpid(), signal.SIGKILL)
        is_over = rank() == 0 and any(Path("run").glob("studies/*/verdict.json"))
        gradient, ends = summed((rank() + 1) * (len(state.sizes) + 1), is_over)
        state.total += int(gradient)
        state.sizes.append(size())
        state.is_over = bool(ends)
        mark_step()
        state.commit()


train(state)
runs = [(n, state.sizes.count(n)) for n in sorted(set(state.sizes), reverse=True)]
wanted = sum((step + 1) * n * (n + 1) // 2 for step, n in enumerate(state.sizes))
account = "every step once" if state.total == wanted else "steps lost or doubled"
print(f"ended with {size()}: {account}: {runs}")
