"""A training without a framework, which keeps an account of its samples and has faults at will.

    training.py SAMPLES EPOCHS [to-disk] [steps] [own [no-copies]] [WORKER:STEP:FAULT ...]

It goes on from the folder `commits`, and commits there, with `to-disk`. With `steps` it says where
a step ends. With `own` each rank keeps for itself which samples it has trained, with copies on all
others, or on none. Worker WORKER has its FAULT in its own step STEP, or after the last one where
STEP is 0:

    kill, stop, raise, leave (exit code 1), again (an error of a collective's)
    die       kill, when the commits are on the disk
    cut       off from the network, until a process starts on its host again
    new       makes the file `more`
    grow      makes `more`, and waits until the launcher tells this only rank of newcomers
    news      makes `more`, and trains on when the State has the launcher's news
    ask       asks for another generation, as news of hosts do
    hold      waits for newcomers in step STEP of the training, which is the same on all ranks: they
              may have begun a step that was broken off, or not
    remove    makes `gone`, and waits for `seen`

With HVDTUNE_TEST_NETWORK, JSON of `netns.Host` by the names of hosts and `router`, it moves to its
host. The place in the environment has to be the rank's in each generation. A step trains two
samples on each rank, with noise of its own. At the end every rank prints its size, what is wrong
with the account, the sizes over time, after how many commits the random numbers were dealt that
each step had, and the weights, which `replay` makes of these.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

from hvdtune.core.elastic.loop import run
from hvdtune.core.elastic.parts import PerRank
from hvdtune.core.elastic.state import ObjectState, course_of
from hvdtune.core.rank.collectives import ReduceOp, Reduction, allreduce_async
from hvdtune.core.rank.handles import synchronize
from hvdtune.core.rank.numpy_adapter import ADAPTER
from hvdtune.core.rank.objects import allgather_object, broadcast_object
from hvdtune.core.rank.runtime import (
    cross_rank,
    cross_size,
    init,
    local_rank,
    local_size,
    mark_step,
    rank,
    size,
)
from hvdtune.errors import CollectiveError
from tests.launcher.elastic.replay import RATE, SEED, batch_of, gradient_of, seed_of
from tests.parallel.netns import Host, Network

samples, epochs = int(sys.argv[1]), int(sys.argv[2])
worker = os.environ["HVDTUNE_WORKER"]
faults = {}
held_step = 0
has_own = "own" in sys.argv
folder = "commits" if "to-disk" in sys.argv else None
for word in [word for word in sys.argv[3:] if ":" in word]:
    number, step, fault = word.split(":", 2)
    if number == worker and fault == "hold":
        held_step = int(step)
    elif number == worker:
        faults[int(step)] = fault
own_steps = 0
hosts = {
    name: Host(**host)
    for name, host in json.loads(os.environ.get("HVDTUNE_TEST_NETWORK", "{}")).items()
}
if hosts:
    own_host, network = hosts[os.environ["HVDTUNE_HOST"]], Network((), hosts["router"])
    cut_off = Path(f"cut-{own_host.address}")
    if cut_off.exists():
        network.rejoin(own_host)
        cut_off.unlink()
    own_host.enter()
    os.environ["HVDTUNE_ADDRESS"] = own_host.address


def fail_if_told() -> None:
    global own_steps
    own_steps += 1
    fail(faults.get(own_steps, ""))
    if len(state.sizes) + 1 == held_step:
        fail("hold")


def fail(fault: str) -> None:
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "die":
        state.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "raise":
        raise ValueError("as told")
    elif fault == "new":
        Path("more").touch()
    elif fault == "cut":
        cut_off.touch()
        network.isolate(own_host)
    elif fault == "again":
        raise CollectiveError("as told")
    elif fault == "leave":
        os._exit(1)
    elif fault == "remove":
        Path("gone").touch()
        while not Path("seen").exists():
            time.sleep(0.01)
    elif fault == "news":
        Path("more").touch()
        while state._host_messages.empty():
            time.sleep(0.01)
    elif fault == "ask":
        state.on_hosts_updated(time.time(), 2)
    elif fault in ("grow", "hold"):
        if fault == "grow":
            Path("more").touch()
        while True:  # until it raises HostsUpdatedInterrupt
            state.commit() if has_own else state.check_host_updates()
            time.sleep(0.01)


class NoisyState(ObjectState):
    """Has one generator of random numbers."""

    noise = np.random.RandomState(SEED)
    dealt = -1  # never

    def seed(self):
        return SEED

    def deal_randomness(self, seed, commits):
        self.noise, self.dealt = np.random.RandomState(seed_of(seed, commits, rank())), commits


def merge(parts):
    return [n for part in parts for n in part]


def place_in_environment():
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
    own, horovods = (
        [int(os.environ[f"{prefix}_{name}"]) for name in names] for prefix in ("HVDTUNE", "HOROVOD")
    )
    assert own == horovods
    return own


first_place = place_in_environment()
init()
print(f"starts as {first_place}")
first = {"weights": np.zeros(8), "epoch": 0, "done": 0, "ledger": [], "sizes": [], "dealt_at": []}
if has_own:
    first["own"] = PerRank([], merge, copies=0 if "no-copies" in sys.argv else 9)
state = NoisyState(broadcast_object, rank, **first)

if folder is not None and state.resume(from_disk=folder):
    print(f"resumed after {course_of(state).commits} commits")


@run
def train(state):
    place = [rank(), size(), local_rank(), local_size(), cross_rank(), cross_size()]
    assert place_in_environment() == place
    while state.epoch < epochs:
        while state.done < samples:
            fail_if_told()
            batch = batch_of(samples, state.done, rank(), size())
            gradient = gradient_of(batch, state.weights, state.noise)
            handle = allreduce_async(
                ADAPTER, [gradient], [gradient], "gradient", Reduction(ReduceOp.SUM)
            )
            synchronize(handle)
            state.weights = state.weights + RATE * gradient
            trained = [n for part in allgather_object(list(batch)) for n in part]
            state.ledger.append(trained)
            if has_own:
                state.own.extend(batch)
            state.sizes.append(size())
            state.dealt_at.append(state.dealt)
            state.done += len(trained)
            state.record_samples(len(trained))
            if "steps" in sys.argv:
                mark_step()
            state.commit(to_disk=folder)
        state.epoch, state.done = state.epoch + 1, 0


train(state)
fail(faults.get(0, ""))
trained = sorted(n for step in state.ledger for n in step)
wanted = sorted(list(range(samples)) * epochs)
found = sorted(merge(allgather_object(state.own))) if has_own else wanted
account = "every sample once" if trained == wanted == found else "samples lost or doubled"
sizes, dealt = (",".join(map(str, numbers)) for numbers in (state.sizes, state.dealt_at))
weights = state.weights.tobytes().hex()
print(f"ended with {size()}: {account}; sizes {sizes}; dealt {dealt}; weights {weights}")
