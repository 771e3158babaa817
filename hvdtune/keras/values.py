"""Numbers and arrays over all ranks, as scripts of Keras want them: computed at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hvdtune.core.rank import collectives
from hvdtune.core.rank.collectives import (
    ReduceOp,
    Reduction,
    chosen_op,
    synchronize,
)
from hvdtune.core.rank.numpy_adapter import ADAPTER
from hvdtune.errors import UsageError
from hvdtune.keras import backend


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | int | None = None,
    compression: Any = None,
) -> Any:
    """Combines a number or an array over all ranks; an array of NumPy, or its number.

    Args:
        average: superseded by `op`: True is hvd.Average, False hvd.Sum.
        op: hvd.Average (the default), Sum, Min, Max, Product or Adasum.
        compression: does nothing: values are sent as they are.
    """
    reduction = Reduction(
        chosen_op(op, average, stacklevel=4),  # a package's function calls this one
        prescale_factor,
        postscale_factor,
    )
    return synchronize(backend.start_allreduce(value, name, reduction))[()]


def allgather(value: Any, name: str | None = None) -> Any:
    """The ranks' arrays, joined along the first dimension, an array of NumPy."""
    rows = [np.asarray(value)]
    return synchronize(collectives.allgather_async(ADAPTER, rows, name, grouped=False))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """The root's number or array on every rank, an array of NumPy, or its number."""
    array = np.array(value)
    handle = collectives.broadcast_async(ADAPTER, array, array, root_rank, name)
    return synchronize(handle)[()]


def reducescatter(
    value: Any, name: str | None = None, op: ReduceOp | int = ReduceOp.AVERAGE
) -> Any:
    """Combines an array over all ranks; this rank's part of its rows, an array of NumPy."""
    reduction = Reduction(chosen_op(op, None, stacklevel=3))
    rows = [np.asarray(value)]
    handle = collectives.reducescatter_async(ADAPTER, rows, name, reduction, grouped=False)
    return synchronize(handle)


def broadcast_global_variables(root_rank: int) -> None:
    """Of TensorFlow 1, where a session had all variables.

    Raises:
        UsageError: Keras has no such variables any more.
    """
    raise UsageError(
        "hvd.broadcast_global_variables() needs a session of TensorFlow 1; use "
        "hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank) in fit(), or "
        "hvd.broadcast_variables(model.variables, root_rank)"
    )


def load_model(
    keras: Any,
    filepath: Any,
    custom_optimizers: Sequence[Any] | None,
    custom_objects: dict[str, Any] | None,
    compression: Any,
) -> Any:
    """A saved model, whose optimizer combines gradients over all ranks."""
    from hvdtune.keras.optimizer import DistributedOptimizer

    known = {kind.__name__: kind for kind in custom_optimizers or []}
    model = keras.models.load_model(filepath, custom_objects={**known, **(custom_objects or {})})
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        model.optimizer = DistributedOptimizer(optimizer, compression=compression)
        if getattr(model, "jit_compile", None):
            model.jit_compile = False  # see hvdtune.tensorflow.xla; compiled without it
    return model
