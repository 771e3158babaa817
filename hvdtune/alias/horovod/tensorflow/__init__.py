"""hvdtune.tensorflow by Horovod's name: the same objects."""

import importlib
from collections.abc import Callable
from typing import Any, Final

import tensorflow as tf

from hvdtune.core.gradients.options import reduction_of_gradients
from hvdtune.core.gradients.variable_options import GradientOptions
from hvdtune.core.rank.basics import Average
from hvdtune.core.rank.collectives import ReduceOp
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.keras import keras2_compat
from hvdtune.tensorflow import *
from hvdtune.tensorflow.gradients import combine

from .._absent import stand_in
from ..common.util import gpu_available
from .util import _cache, _executing_eagerly, _make_subgraph, refs_to_vars, vars_to_refs

keras2_compat.keep(tf.keras)


def _make_allreduce_grads_fn(
    name: str,
    device_dense: str,
    device_sparse: str,
    compression: Any,
    sparse_as_dense: bool,
    op: ReduceOp | int = Average,
    gradient_predivide_factor: float = 1.0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[..., list[Any]]:
    """A function of (gradients, variables) that returns the gradients combined over all ranks.

    Optimizers around Horovod's are made of it. The arguments are DistributedGradientTape's.
    """
    reduction = reduction_of_gradients(op, gradient_predivide_factor)
    options = GradientOptions(compression, reduction, sparse_as_dense, groups or 0, process_set)

    def allreduce_grads(grads: Any, vars: Any = None) -> list[Any]:
        return combine(grads, grads if vars is None else vars, options)

    return allreduce_grads


_OPTIMIZER: Final = "use horovod.tensorflow.DistributedOptimizer"
_DistributedOptimizer = stand_in("horovod.tensorflow._DistributedOptimizer", _OPTIMIZER)
_DistributedAdasumOptimizer = stand_in(
    "horovod.tensorflow._DistributedAdasumOptimizer", f"{_OPTIMIZER} with op=Adasum"
)
_allreduce_cond = stand_in("horovod.tensorflow._allreduce_cond", "call allreduce on every rank")

# Last, because hvdtune.tensorflow has modules of the same names.
for _name in (
    "compression",
    "elastic",
    "functions",
    "gradient_aggregation",
    "mpi_ops",
    "sync_batch_norm",
    "util",
):
    importlib.import_module(f".{_name}", __name__)
