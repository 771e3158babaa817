"""Training scripts without a framework, whose import would take most of a test's time."""

# Its ranks meet in every step, which lasts a millisecond.
PACED = """
import time
from hvdtune.core.rank.collectives import barrier
from hvdtune.core.rank.runtime import init, mark_step

init()
for _ in range({steps}):
    time.sleep(0.001)
    barrier()
    mark_step()
"""

# Its ranks meet in every step, and rank 0 says how many they are.
MEET = """
from hvdtune.core.rank.collectives import barrier
from hvdtune.core.rank.runtime import init, mark_step, rank, size

init()
for step in range({steps}):
    barrier()
    mark_step()
if rank() == 0:
    print("ranks:", size())
"""

# Its ranks combine a gradient in every step.
REDUCE = """
import numpy as np
from hvdtune.core.rank.collectives import Reduction, allreduce_async
from hvdtune.core.rank.handles import synchronize
from hvdtune.core.rank.numpy_adapter import ADAPTER
from hvdtune.core.rank.runtime import init, mark_step

init()
gradient = np.ones(1000, np.float32)
for step in range({steps}):
    synchronize(allreduce_async(ADAPTER, [gradient], [gradient], "gradient", Reduction()))
    mark_step()
"""
