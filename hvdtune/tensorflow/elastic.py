"""Elastic training with TensorFlow: Horovod's `hvd.elastic`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hvdtune.core.elastic.parts import PerRank
from hvdtune.core.elastic.samples import SampleLedger, read_audit
from hvdtune.core.elastic.state import ObjectState, State
from hvdtune.core.gradients.keras_variables import state_on_rank
from hvdtune.core.rank import runtime
from hvdtune.core.rank.objects import broadcast_arrays
from hvdtune.errors import UsageError
from hvdtune.keras.elastic_parts import KerasState, VariablesState, run

__all__ = [
    "ElasticSampler",
    "ObjectState",
    "PerRank",
    "State",
    "TensorFlowKerasState",
    "TensorFlowState",
    "read_audit",
    "run",
]


class ElasticSampler(SampleLedger):
    """A SampleLedger for pipelines of tf.data; a part of a State, which keeps how far it is."""

    def batches(self, batch_size: int) -> tf.data.Dataset:
        """Return this rank's share of the rest of the epoch: batches of the samples' numbers, int64
        tensors of the shape (batch_size,); the last one may be smaller."""
        share = tf.constant(list(self), dtype=tf.int64)
        return tf.data.Dataset.from_tensor_slices(share).batch(batch_size)


class TensorFlowKerasState(KerasState):
    """A State of a model of Keras, as hvdtune.keras.elastic.KerasState.

    Args:
        backend: does nothing.
    """

    def __init__(
        self, model: Any, optimizer: Any = None, backend: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(model, optimizer, **kwargs)


class TensorFlowState(VariablesState):
    """A State of variables of TensorFlow and whatever else is given by name.

    After a change of ranks the generators of random numbers (Python's, NumPy's, TensorFlow's global
    seed and its global generator) are seeded as KerasState has it. Operations with a seed of their
    own in a tf.function keep their state.

    Args:
        variables: those to keep; None: all global ones of a TensorFlow 1 graph.
        session: of TensorFlow 1, in which they have their values.
        kwargs: plain objects with their first values.

    Raises:
        UsageError: no variables are given, in TensorFlow 2.
    """

    def __init__(
        self, variables: Sequence[Any] | None = None, session: Any = None, **kwargs: Any
    ) -> None:
        if variables is None and session is None and tf.executing_eagerly():
            raise UsageError(
                "TensorFlowState needs variables=[...]: TensorFlow 2 has no list of all variables"
            )
        self.variables = list(tf.compat.v1.global_variables() if variables is None else variables)
        self.session = session
        super().__init__(**kwargs)

    def kept_variables(self) -> list[Any]:
        return self.variables

    def read(self, variables: list[Any]) -> list[Any]:
        if self._session() is not None:
            return list(self._session().run(variables))
        return super().read(variables)

    def write(self, variable: Any, value: Any) -> None:
        if self._session() is not None:
            variable.load(value, self._session())
        else:
            variable.assign(value)

    def send(self) -> None:
        if self._session() is None:
            super().send()
            return
        rows, rank = self.kept_variables(), runtime.rank()
        for variable, value in zip(rows, broadcast_arrays(self.read(rows), 0), strict=True):
            if rank != 0:
                self.write(variable, state_on_rank(variable.name, value, rank))

    def seed_framework(self, number: int) -> None:
        tf.random.set_seed(number)
        tf.random.get_global_generator().reset_from_seed(number)

    def _session(self) -> Any:
        """The session that has the values, None where variables have them themselves."""
        if self.session is not None or tf.executing_eagerly():
            return self.session
        found = tf.compat.v1.get_default_session()
        if found is None:
            raise UsageError("TensorFlowState needs session=..., or a default session")
        return found
