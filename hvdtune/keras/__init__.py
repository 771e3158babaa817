"""hvdtune for Keras: `import hvdtune.keras as hvd`, with Horovod's names.

Keras 3 on its tensorflow or its torch backend.
"""

from collections.abc import Sequence
from typing import Any, Final

import keras

from hvdtune.core.gradients import Groups, variables_of
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
from hvdtune.keras import backend, callbacks, elastic, values
from hvdtune.keras.optimizer import DistributedOptimizer as _distributed
from hvdtune.keras.values import allgather, broadcast, broadcast_global_variables, reducescatter
from hvdtune.recording import start_timeline, stop_timeline

if backend.name_of(keras) == "torch":
    from hvdtune.torch.compression import Compression
else:
    from hvdtune.tensorflow.compression import Compression  # type: ignore[assignment]

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
    "PartialDistributedOptimizer",
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
broadcast_variables = backend.broadcast_variables


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool = True,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | int | None = None,
    compression: Any = Compression.none,
) -> Any:
    """Combines a number or an array over all ranks; an array of NumPy, or its number.

    Args:
        average: False is hvd.Sum; `op` supersedes it.
        op: hvd.Average (the default), Sum, Min, Max, Product or Adasum.
        compression: does nothing: values are sent as they are.
    """
    chosen = op if op is not None or average else Sum
    return values.allreduce(value, name, None, prescale_factor, postscale_factor, chosen)


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp | int = Average,
    num_groups: int = 0,
    groups: Groups | None = None,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps an optimizer of Keras so that it applies gradients combined over all ranks.

    See hvdtune.keras.optimizer.DistributedOptimizer, which has the arguments in another order.
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


def PartialDistributedOptimizer(
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
    groups: Groups | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """As DistributedOptimizer; gradients of `local_layers` stay on this rank.

    Args:
        local_layers: a layer of Keras or several, built, whose variables differ between ranks.

    Raises:
        UsageError: local_layers has something that is no layer.
    """
    wrapped = _distributed(
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
        0,
        groups,
        process_set,
        scale_local_gradients,
    )
    for variable in variables_of(local_layers):
        wrapped.register_local_var(variable)
    return wrapped


def load_model(
    filepath: Any,
    custom_optimizers: Sequence[Any] | None = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """A saved model, whose optimizer combines gradients over all ranks.

    Args:
        filepath: as for keras.models.load_model.
        custom_optimizers: classes of optimizers that Keras does not know.
        custom_objects: as for keras.models.load_model.
        compression: as for DistributedOptimizer.
        legacy_opts: does nothing.
    """
    return values.load_model(keras, filepath, custom_optimizers, custom_objects, compression)
