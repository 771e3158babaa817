"""A training without a framework, which keeps an account of its samples and has faults at will.

    training.py SAMPLES EPOCHS [to-disk] [WORKER:STEP:FAULT ...]

It goes on from the folder `commits`, and commits there, with `to-disk`. Worker WORKER has its FAULT
in its own step STEP: kill, stop, raise, leave (exit code 1), die (kill when the commits are on the
disk), remove, which makes the file `gone` and waits for `seen`, or grow, which makes `more` and
waits until the launcher tells this only rank of newcomers. A step trains two samples on each
rank. At the end every rank prints its size, the weights and what is wrong with the account.
"""

import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from hvdtune.core.elastic.loop import run
from hvdtune.core.elastic.state import ObjectState
from hvdtune.core.rank.collectives import ReduceOp, Reduction, allreduce_async
from hvdtune.core.rank.handles import synchronize
from hvdtune.core.rank.numpy_adapter import ADAPTER
from hvdtune.core.rank.objects import allgather_object, broadcast_object
from hvdtune.core.rank.runtime import init, rank, size

_BATCH = 2

samples, epochs = int(sys.argv[1]), int(sys.argv[2])
worker = os.environ["HVDTUNE_WORKER"]
faults = {}
folder = "commits" if "to-disk" in sys.argv else None
for word in [word for word in sys.argv[3:] if word != "to-disk"]:
    number, step, fault = word.split(":", 2)
    if number == worker:
        faults[int(step)] = fault
own_steps = 0


def fail_if_told() -> None:
    global own_steps
    own_steps += 1
    fault = faults.get(own_steps, "")
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "die":
        state.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "raise":
        raise ValueError("as told")
    elif fault == "leave":
        os._exit(1)
    elif fault == "remove":
        Path("gone").touch()
        while not Path("seen").exists():
            time.sleep(0.01)
    elif fault == "grow":
        Path("more").touch()
        while True:  # until it raises HostsUpdatedInterrupt
            state.check_host_updates()
            time.sleep(0.01)


init()
state = ObjectState(
    broadcast_object, rank, weights=np.zeros(8), epoch=0, done=0, ledger=[], sizes=[]
)

if folder is not None and state.resume(from_disk=folder):
    print(f"resumed after {state.commits} commits")


@run
def train(state):
    while state.epoch < epochs:
        while state.done < samples:
            fail_if_told()
            batch = range(state.done, samples)[rank() :: size()][:_BATCH]
            gradient = sum((np.sin((n + 1) * (state.weights + 1)) for n in batch), np.zeros(8))
            handle = allreduce_async(
                ADAPTER, [gradient], [gradient], "gradient", Reduction(ReduceOp.SUM)
            )
            synchronize(handle)
            state.weights = state.weights + 0.01 * gradient
            trained = [n for part in allgather_object(list(batch)) for n in part]
            state.ledger.append(trained)
            state.sizes.append(size())
            state.done += len(trained)
            state.record_samples(len(trained))
            state.commit(to_disk=folder)
        state.epoch, state.done = state.epoch + 1, 0


train(state)
trained = sorted(n for step in state.ledger for n in step)
wanted = sorted(list(range(samples)) * epochs)
account = "every sample once" if trained == wanted else "samples lost or doubled"
sizes = ",".join(map(str, state.sizes))
print(f"ended with {size()}: {account}; sizes {sizes}; weights {state.weights.tobytes().hex()}")
