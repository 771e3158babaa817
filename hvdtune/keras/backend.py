"""How gradients and variables of Keras travel, on the backend that Keras computes with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from hvdtune.core.rank import collectives, runtime
from hvdtune.core.rank.collectives import ReduceOp, Reduction, synchronize
from hvdtune.core.rank.numpy_adapter import ADAPTER
from hvdtune.core.rank.objects import broadcast_arrays
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.errors import UsageError


class Combiner(Protocol):
    """Combines the gradients of one optimizer, in the framework that computes them."""

    def register_local(self, variable: Any) -> None:
        """Keeps the gradient of this variable on this rank."""

    def apply(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        step: Callable[[list[Any]], None],
        skip: Callable[[], None],
    ) -> None:
        """Calls `step` with combined gradients, or `skip` where they are not due yet."""


def name_of(keras: Any) -> str:
    """The backend of this module, which is Keras 3 or Keras 2.

    Raises:
        UsageError: gradients of this backend cannot be combined.
    """
    name = str(keras.backend.backend())
    if name not in ("tensorflow", "torch"):
        raise UsageError(
            f"Keras computes with {name}; hvdtune combines gradients of the tensorflow and torch "
            "backends (KERAS_BACKEND)"
        )
    return name


def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Overwrites variables of Keras with the root's, as many in the same order on all ranks."""
    arrays = [np.array(_values(variable)) for variable in variables]
    for variable, value in zip(
        variables, broadcast_arrays(arrays, root_rank, process_set), strict=True
    ):
        if runtime.rank() != root_rank:
            variable.assign(value)


def _values(variable: Any) -> Any:
    value = getattr(variable, "value", variable)
    value = variable if callable(value) else value
    if hasattr(value, "detach"):  # one of torch that requires a gradient gives no array
        return value.detach().cpu().numpy()
    return value.numpy() if hasattr(value, "numpy") else value


def start_allreduce(value: Any, name: str | None, reduction: Reduction) -> int:
    """Of a number or an array; a handle for `synchronize`."""
    array = np.asarray(value)
    return collectives.allreduce_async(
        ADAPTER, [array], [np.empty_like(array)], name, reduction, grouped=False
    )


def least_of(values: Sequence[int], name: str) -> list[int]:
    """Of each of the numbers the least that a rank has."""
    handle = start_allreduce(np.array(values, np.int64), name, Reduction(ReduceOp.MIN))
    return [int(value) for value in synchronize(handle)]


def mean_of(values: dict[str, Any]) -> dict[str, Any]:
    """Each number's mean over all ranks, which must have the same names."""
    average = Reduction(ReduceOp.AVERAGE)
    started = {}
    for name, value in sorted(values.items()):
        wide = np.asarray(value, np.float64)
        started[name] = start_allreduce(wide, f"metric.{name}", average)
    return {name: synchronize(handle)[()] for name, handle in started.items()}
