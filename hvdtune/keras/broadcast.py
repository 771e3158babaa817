"""Giving every rank the root's variables, whatever Keras computes with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hvdtune.core.gradients.keras_variables import state_on_rank
from hvdtune.core.rank import runtime
from hvdtune.core.rank.objects import broadcast_arrays
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.errors import UsageError


def broadcast_variables(
    variables: Sequence[Any], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Overwrites variables of Keras with the root's, as many in the same order on all ranks.

    Generators of random numbers get a seed of this rank's own, see
    hvdtune.core.gradients.keras_variables.
    """
    arrays, rank = [array_of(variable) for variable in variables], runtime.rank()
    for variable, value in zip(
        variables, broadcast_arrays(arrays, root_rank, process_set), strict=True
    ):
        if rank != root_rank:
            variable.assign(state_on_rank(variable.name, value, rank))


def training_variables(model: Any, optimizer: Any = None) -> list[Any]:
    """Return the variables that a training changes: the model's and its optimizer's, each once."""
    rows = list(model.variables)
    if optimizer is None:
        return rows
    own = optimizer.variables
    own = list(own() if callable(own) else own)
    rate = getattr(optimizer, "learning_rate", None)
    if hasattr(rate, "assign"):  # Keras 2 does not count it among the variables
        own.append(rate)
    return list({id(variable): variable for variable in [*rows, *own]}.values())


def array_of(variable: Any) -> Any:
    """A copy of a variable's values as an array of NumPy."""
    return np.array(_values(variable))


def _values(variable: Any) -> Any:
    value = getattr(variable, "value", variable)
    value = variable if callable(value) else value
    if hasattr(value, "detach"):  # one of torch that requires a gradient gives no array
        return value.detach().cpu().numpy()
    return value.numpy() if hasattr(value, "numpy") else value


def broadcast_global_variables(root_rank: int) -> None:
    """Horovod's function for a session of TensorFlow 1, which had all variables.

    Raises:
        UsageError: always: Keras no longer has such variables.
    """
    raise UsageError(
        "hvd.broadcast_global_variables() needs a session of TensorFlow 1; use "
        "hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank) in fit(), or "
        "hvd.broadcast_variables(model.variables, root_rank)"
    )
