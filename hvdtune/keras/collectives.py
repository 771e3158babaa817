"""Collectives on numbers, arrays and tensors for scripts of Keras, computed at once.

The functions here take and return arrays of NumPy. `on_tensors` makes of them what the packages of
both Keras have.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hvdtune.core.rank import collectives
from hvdtune.core.rank.collectives import (
    ReduceOp,
    Reduction,
    Scope,
    chosen_op,
    complete,
    synchronize,
)
from hvdtune.core.rank.compression import NoneCompressor
from hvdtune.core.rank.numpy_adapter import ADAPTER
from hvdtune.core.rank.variants import Function
from hvdtune.keras.broadcast import array_of

__all__ = ["allgather", "broadcast", "reducescatter"]  # the two packages differ in allreduce


def on_tensors(function: Function, convert: Callable[[Any], Any]) -> Function:
    """Return the function with its value and its result made tensors by `convert`.

    In a graph, where a tensor has no value yet, it is the function itself.
    """

    @functools.wraps(function)
    def call(value: Any, *arguments: Any, **options: Any) -> Any:
        tensor = convert(value)
        if not hasattr(tensor, "numpy"):
            return function(value, *arguments, **options)
        return convert(np.asarray(function(array_of(tensor), *arguments, **options)))

    return call


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: ReduceOp | int | None = None,
    compression: Any = NoneCompressor,
) -> Any:
    """Combines a number, an array or a tensor over all ranks.

    Args:
        average: superseded by `op`: True is hvd.Average, False hvd.Sum.
        op: hvd.Average (the default), Sum, Min, Max, Product or Adasum.
        compression: does nothing: values are sent as they are.
    """
    chosen = chosen_op(op, average, stacklevel=4)
    reduction = Reduction(chosen, prescale_factor, postscale_factor)
    return complete(_start_allreduce(value, name, reduction))[()]


def allgather(value: Any, name: str | None = None) -> Any:
    """Joins the ranks' arrays or tensors along the first dimension."""
    rows = [np.asarray(value)]
    return complete(collectives.allgather_async(ADAPTER, rows, name, grouped=False))


def broadcast(value: Any, root_rank: int, name: str | None = None) -> Any:
    """Returns the root's number, array or tensor on every rank."""
    array = np.array(value)
    handle = collectives.broadcast_async(ADAPTER, array, array, root_rank, name)
    return complete(handle)[()]


def reducescatter(
    value: Any, name: str | None = None, op: ReduceOp | int = ReduceOp.AVERAGE
) -> Any:
    """Combines an array or a tensor over all ranks; returns this rank's rows of it."""
    reduction = Reduction(chosen_op(op, None, stacklevel=4))
    rows = [np.asarray(value)]
    handle = collectives.reducescatter_async(ADAPTER, rows, name, reduction, grouped=False)
    return complete(handle)


def minimum_of(values: Sequence[int], name: str) -> list[int]:
    """Return the minimum over ranks of each number."""
    handle = _start_allreduce(np.array(values, np.int64), name, Reduction(ReduceOp.MIN))
    return [int(value) for value in complete(handle)]


def mean_of(values: dict[str, Any]) -> dict[str, Any]:
    """Each number's mean over all ranks, which must have the same names."""
    average = Reduction(ReduceOp.AVERAGE)
    started = {}
    with Scope():
        for name, value in sorted(values.items()):
            wide = np.asarray(value, np.float64)
            started[name] = _start_allreduce(wide, f"metric.{name}", average)
        return {name: synchronize(handle)[()] for name, handle in started.items()}


def _start_allreduce(value: Any, name: str | None, reduction: Reduction) -> int:
    rows = [np.asarray(value)]
    return collectives.allreduce_async(ADAPTER, rows, None, name, reduction, grouped=False)
