"""A training over the samples of a ledger with an audit file, whose ranks are killed.

    sampler_training.py SAMPLES EPOCHS pad|exact [WORKER:STEP ...]

Worker WORKER kills itself in its own step STEP. Every rank prints which samples it has trained.
"""

import os
import signal
import sys

from hvdtune.core.elastic.loop import run
from hvdtune.core.elastic.samples import SampleLedger
from hvdtune.core.elastic.state import ObjectState
from hvdtune.core.rank.objects import allgather_object, broadcast_object
from hvdtune.core.rank.runtime import init, rank

BATCH = 3
samples, epochs = int(sys.argv[1]), int(sys.argv[2])
faults = [tuple(map(int, word.split(":"))) for word in sys.argv[4:]]
own_steps = 0

init()
sampler = SampleLedger(range(samples), seed=3, pad=sys.argv[3] == "pad", audit="audit.jsonl")
state = ObjectState(broadcast_object, rank, sampler=sampler, trained=[])


@run
def train(state):
    global own_steps
    while sampler.epoch < epochs:
        share = list(sampler)
        steps = max(allgather_object(-(-len(share) // BATCH)))
        for step in range(steps):
            own_steps += 1
            if (int(os.environ["HVDTUNE_WORKER"]), own_steps) in faults:
                os.kill(os.getpid(), signal.SIGKILL)
            batch = share[step * BATCH : (step + 1) * BATCH]
            state.trained += [(sampler.epoch, n) for part in allgather_object(batch) for n in part]
            sampler.record_batch(step, len(batch))
            state.commit()
        sampler.set_epoch(sampler.epoch + 1)


train(state)
if rank() == 0:
    print(f"trained {sorted(state.trained)}")
