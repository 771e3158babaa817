"""hvdtune for tf.keras: `import hvdtune.tensorflow.keras as hvd`, with Horovod's names.

tf.keras is Keras 3, or Keras 2 where TF_USE_LEGACY_KERAS=1 and tf_keras is installed.
"""

from collections.abc import Sequence
from typing import Any, Final

import tensorflow as tf

from hvdtune.core.gradients import Groups
from hvdtune.core.rank.build_info import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from hvdtune.core.rank.collectives import ReduceOp
from hvdtune.core.rank.objects import allgather_object, broadcast_object
from hvdtune.core.rank.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    remove_process_set,
)
from hvdtune.core.rank.runtime import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mark_step,
    rank,
    shutdown,
    size,
)
from hvdtune.core.rank.spans import span
from hvdtune.errors import (
    HorovodInternalError,
    HorovodVersionMismatchError,
    HostsUpdatedInterrupt,
)
from hvdtune.keras import values
from hvdtune.keras.optimizer import DistributedOptimizer as _distributed
from hvdtune.keras.values import allgather, broadcast, broadcast_global_variables, reducescatter
from hvdtune.recording import start_timeline, stop_timeline
from hvdtune.tensorflow.broadcast import broadcast_variables
from hvdtune.tensorflow.compression import Compression
from hvdtune.tensorflow.keras import callbacks, elastic

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "HorovodInternalError",
    "HorovodVersionMismatchError",
    "HostsUpdatedInterrupt",
    "Max",
    "Min",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "mark_step",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "span",
    "start_timeline",
    "stop_timeline",
]

Average: Final = ReduceOp.AVERAGE
Sum: Final = ReduceOp.SUM
Adasum: Final = ReduceOp.ADASUM
Min: Final = ReduceOp.MIN
Max: Final = ReduceOp.MAX
Product: Final = ReduceOp.PRODUCT


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Combines a number or an array over all ranks; an array of NumPy, or its number.

    Args:
        average: superseded by `op`: True is hvd.Average, False hvd.Sum.
        op: hvd.Average (the default), Sum, Min, Max, Product or Adasum.
        compression: does nothing: values are sent as they are.
    """
    return values.allreduce(value, name, average, prescale_factor, postscale_factor, op)


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp | int = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps an optimizer of tf.keras so that it applies gradients combined over all ranks.

    See hvdtune.keras.optimizer.DistributedOptimizer.
    """
    return _distributed(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        backward_passes_per_step,
        average_aggregated_gradients,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[Any] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """A saved model, whose optimizer combines gradients over all ranks.

    Args:
        filepath: as for tf.keras.models.load_model.
        custom_optimizers: classes of optimizers that Keras does not know.
        custom_objects: as for tf.keras.models.load_model.
        compression: as for DistributedOptimizer.
        legacy_opts: does nothing.
    """
    return values.load_model(tf.keras, filepath, custom_optimizers, custom_objects, compression)
