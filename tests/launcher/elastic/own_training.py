"""A training whose ranks have something for themselves, and are killed at any place of a commit or
of the way into a generation.

    own_training.py KILLS SEED COPIES

What the ranks have for themselves is how many numbers they have counted, and the sum of their
squares. It ends after so many kills, and then all numbers must have been counted once. A rank kills
itself at a place (below) or up to 2 ms behind it, in a generation in which no other has, and while
all that it holds has its copies.
"""

import os
import random
import signal
import sys
from pathlib import Path

import numpy as np

from hvdtune.core.elastic import parts
from hvdtune.core.elastic.loop import run
from hvdtune.core.elastic.parts import PartStore, PerRank
from hvdtune.core.elastic.state import ObjectState
from hvdtune.core.rank import collectives
from hvdtune.core.rank.objects import allgather_object, broadcast_object
from hvdtune.core.rank.process import PROCESS
from hvdtune.core.rank.runtime import init, rank, size

kills, seed, copies = map(int, sys.argv[1:])
number = int(os.environ["HVDTUNE_WORKER"])
chance = random.Random(f"{seed} {number}")
folder = Path("kills")
folder.mkdir(exist_ok=True)
signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends the process at any instant
settled = None  # the generation of what is held with its copies, None before
is_training = False


def generation():
    return PROCESS.worker.place.generation


def has_copies():
    """Whether all that this rank holds is held by another one, too."""
    if settled is None:
        return not PROCESS.worker.has_state
    return all(int(path.name) < settled for path in folder.iterdir())


def reach(place):
    if chance.random() >= (1 / 400 if is_training else 1 / 15) or size() < 2:
        return
    if len(list(folder.iterdir())) >= kills or not has_copies():
        return
    try:
        (folder / str(generation())).touch(exist_ok=False)
    except FileExistsError:
        return
    print(f"rank {rank()} is killed at {place} while {'training' if is_training else 'joining'}")
    if chance.random() < 0.5:
        os.kill(os.getpid(), signal.SIGKILL)
    signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, 2e-3))


def with_places(owner, name):
    inner = getattr(owner, name)

    def outer(*args, **kwargs):
        reach(f"{name} begins")
        result = inner(*args, **kwargs)
        reach(f"{name} ends")
        return result

    setattr(owner, name, outer)


class OwnState(ObjectState):
    def save(self):
        reach("save begins")
        super().save()
        reach("save ends")

    def deal_randomness(self, seed, commits):
        assert commits == self.commits, f"commit {commits} is counted, not {self.commits}"


init()
for owner, name in [
    (parts, "allgather_object"),
    (parts, "_exchange"),
    (collectives, "barrier"),
    (PartStore, "prepare"),
    (PartStore, "divide"),
]:
    with_places(owner, name)
settle = PartStore.settle


def settle_and_note(store, version):
    global settled
    reach("settle begins")
    settle(store, version)
    if store._settled is not None and store._settled.version.size > 1:  # one rank has no copies
        settled = store._settled.version.generation
    reach("settle ends")


PartStore.settle = settle_and_note


def merge(values):
    return sum(values, np.zeros(2, np.int64))


def sent(value):
    reach("broadcast begins")
    found = broadcast_object(value)
    reach("broadcast ends")
    return found


own = PerRank(np.zeros(2, np.int64), merge, copies)
state = OwnState(sent, rank, done=0, commits=0, is_over=False, own=own)


@run
def train(state):
    global is_training
    is_training = True
    try:
        while not state.is_over:
            mine = state.done + rank()
            state.own = np.add(state.own, [1, mine**2])
            killed = allgather_object(len(list(folder.iterdir())))
            state.done += size()
            state.commits += 1
            latest = max((int(path.name) for path in folder.iterdir()), default=0)
            state.is_over = min(killed) >= kills and latest < generation()
            state.commit()
    finally:
        is_training = False


train(state)
counted, squares = sum(allgather_object(state.own))
wanted = sum(n**2 for n in range(state.done))
account = "all counted once" if (counted, squares) == (state.done, wanted) else "lost or doubled"
print(f"ended with {size()}: {account}: {counted} of {state.done}")
