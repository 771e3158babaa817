"""hvdtune on arrays of NumPy, for what has nothing to do with frameworks: to import one takes long.

tour.py and the document's commands use torch.
"""

import numpy as np

from hvdtune.core.rank import collectives
from hvdtune.core.rank.collectives import ReduceOp, Reduction
from hvdtune.core.rank.collectives import synchronize as synchronize
from hvdtune.core.rank.numpy_adapter import ADAPTER, Array
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.core.rank.process_sets import add_process_set as add_process_set
from hvdtune.core.rank.runtime import init as init
from hvdtune.core.rank.runtime import rank as rank
from hvdtune.core.rank.runtime import shutdown as shutdown
from hvdtune.core.rank.runtime import size as size


def sum_async(array: Array, name: str | None = None) -> int:
    sums = np.empty_like(array)
    by = Reduction(ReduceOp.SUM)
    return collectives.allreduce_async(ADAPTER, [array], [sums], name, by, grouped=False)


def summed(array: Array, name: str | None = None) -> Array:
    return synchronize(sum_async(array, name))


def gathered(array: Array, process_set: ProcessSet = global_process_set) -> Array:
    handle = collectives.allgather_async(ADAPTER, [array], None, process_set)
    (result,) = synchronize(handle)
    return result
