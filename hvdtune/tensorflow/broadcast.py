"""Giving every rank the root's variables."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from hvdtune.core.gradients.keras_variables import state_on_rank
from hvdtune.core.rank import runtime
from hvdtune.core.rank.numpy_adapter import DTYPES
from hvdtune.core.rank.objects import broadcast_arrays
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.errors import UsageError
from hvdtune.tensorflow.collectives import broadcast_, public


@public
def broadcast_variables(
    variables: Sequence[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
    inplace: bool = False,
) -> Any:
    """Overwrites every rank's variables with the root's.

    Generators of random numbers, those of Keras's layers and tf.random.Generator, get a seed of
    this rank's own that follows from the root's.

    Args:
        variables: of TensorFlow or Keras, as many in the same order on all ranks.
        root_rank: a rank of the job that belongs to the process set.
        inplace: accepted for Horovod's users; variables are always overwritten.

    Returns:
        In a graph, the operation that does it; else None.

    Raises:
        UsageError: a variable has no values yet, or a dtype that cannot be sent.
    """
    rows = list(variables)
    if not rows:
        warnings.warn(
            "broadcast_variables got no variables; build the model first, or call it after the "
            "first step",
            RuntimeWarning,
            stacklevel=4,
        )
    if not tf.executing_eagerly():
        return tf.group(*broadcast_(rows, root_rank, None, process_set))
    arrays = [_array(variable) for variable in rows]  # all of them before any is sent
    rank = runtime.rank()
    for variable, value in zip(rows, broadcast_arrays(arrays, root_rank, process_set), strict=True):
        if rank != root_rank:
            shaped = value.reshape(variable.shape)
            variable.assign(state_on_rank(variable.name, shaped, rank))
    return None


def _array(variable: Any) -> Any:
    if not hasattr(variable, "assign"):
        raise UsageError(
            "broadcast_variables takes variables, such as model.variables, not "
            f"{type(variable).__name__}"
        )
    values = np.array(variable.numpy())  # never the variable's own memory
    if values.dtype.name not in DTYPES:
        raise UsageError(
            f"the variable {variable.name} is {values.dtype.name}, which cannot be sent; supported "
            f"are {', '.join(DTYPES)}"
        )
    return values


def broadcast_global_variables(root_rank: int) -> Any:
    """Return the operation of a TensorFlow 1 graph that gives all ranks the root's variables.

    Raises:
        UsageError: in TensorFlow 2, which has no global variables.
    """
    if tf.executing_eagerly():
        raise UsageError(
            "hvd.broadcast_global_variables() needs a graph of TensorFlow 1; use "
            "hvd.broadcast_variables(model.variables, root_rank) instead"
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """Gives all ranks the root's variables when a MonitoredSession of TensorFlow 1 starts.

    Args:
        root_rank: whose they are.
        device: does nothing.
    """

    def __init__(self, root_rank: int, device: str = "") -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.bcast_op: Any = None

    def begin(self) -> None:
        """Adds the operation to the graph."""
        graph = tf.compat.v1.get_default_graph()
        if self.bcast_op is None or self.bcast_op.graph is not graph:
            self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """Runs it."""
        session.run(self.bcast_op)
