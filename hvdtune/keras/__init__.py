"""hvdtune for Keras: `import hvdtune.keras as hvd`, with Horovod's names.

Keras 3 on its tensorflow or its torch backend.
"""

from typing import Any

import keras

from hvdtune.core.rank import basics
from hvdtune.core.rank.basics import *
from hvdtune.core.rank.collectives import ReduceOp
from hvdtune.core.rank.compression import NoneCompressor
from hvdtune.core.rank.objects import allgather_object, broadcast_object
from hvdtune.core.rank.variants import reordered
from hvdtune.keras import callbacks, collectives, elastic, optimizer
from hvdtune.keras.backend import compression_of
from hvdtune.keras.broadcast import broadcast_global_variables, broadcast_variables
from hvdtune.keras.optimizer import PartialDistributedOptimizer, load_model_of
from hvdtune.recording import start_timeline, stop_timeline

__all__ = [
    *basics.__all__,
    *collectives.__all__,
    "Compression",
    "DistributedOptimizer",
    "PartialDistributedOptimizer",
    "allgather_object",
    "allreduce",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "elastic",
    "load_model",
    "start_timeline",
    "stop_timeline",
]

Compression = compression_of(keras)
allgather, broadcast, reducescatter = (
    collectives.on_tensors(function, keras.ops.convert_to_tensor)
    for function in (collectives.allgather, collectives.broadcast, collectives.reducescatter)
)
load_model = load_model_of(keras)
# Horovod has the arguments in another order here than for tf.keras.
DistributedOptimizer = reordered(
    optimizer.DistributedOptimizer,
    "optimizer name device_dense device_sparse compression sparse_as_dense "
    "gradient_predivide_factor op num_groups groups backward_passes_per_step "
    "average_aggregated_gradients process_set scale_local_gradients",
)


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool = True,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | int | None = None,
    compression: Any = NoneCompressor,
) -> Any:
    """Combines a number, an array or a tensor over all ranks; returns a tensor of the backend.

    Args:
        average: False is hvd.Sum; `op` supersedes it.
        op: hvd.Average (the default), Sum, Min, Max, Product or Adasum.
        compression: does nothing: values are sent as they are.
    """
    chosen = op if op is not None or average else ReduceOp.SUM
    run = collectives.on_tensors(collectives.allreduce, keras.ops.convert_to_tensor)
    return run(value, name, None, prescale_factor, postscale_factor, chosen)
