"""A training that needs no framework, for commands whose point is not the script."""

TRAIN = """
from hvdtune.core.rank.collectives import barrier
from hvdtune.core.rank.runtime import init, mark_step, rank, size

init()
for step in range({steps}):
    barrier()
    mark_step()
if rank() == 0:
    print("ranks:", size())
"""
