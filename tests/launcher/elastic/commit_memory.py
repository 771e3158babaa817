"""Commits again and again, and prints how much memory the process takes before and after."""

import os
import sys

import numpy as np
import psutil

from hvdtune.core.elastic.loop import run
from hvdtune.core.elastic.parts import PerRank
from hvdtune.core.elastic.state import ObjectState
from hvdtune.core.rank.objects import broadcast_object
from hvdtune.core.rank.runtime import init, rank

commits, settling = int(sys.argv[1]), int(sys.argv[2])
FLOATS = 1 << 16  # half a MiB, on every rank alike and for each

init()
own = PerRank(np.zeros(FLOATS), lambda values: values[0])
state = ObjectState(broadcast_object, rank, shared=np.zeros(FLOATS), own=own)


def resident():
    return psutil.Process(os.getpid()).memory_info().rss


@run
def train(state):
    first = 0
    for number in range(commits):
        if number == settling:
            first = resident()
        state.shared, state.own = state.shared + 1, state.own + rank()
        state.commit()
    print(f"grown by {(resident() - first) / FLOATS / 8:.1f} of {commits - settling} commits")


train(state)
