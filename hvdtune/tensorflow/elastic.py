"""The names of Horovod's elastic training, which this version of hvdtune does not have."""

from __future__ import annotations

from hvdtune.core.rank.elastic import ObjectState, State, run

__all__ = ["ObjectState", "State", "TensorFlowKerasState", "TensorFlowState", "run"]


class TensorFlowKerasState(ObjectState):
    """A State of a model of Keras. Making one raises NotImplementedError."""


class TensorFlowState(ObjectState):
    """A State of variables. Making one raises NotImplementedError."""
