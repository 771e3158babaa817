"""The names of Horovod's elastic training, which hvdtune does not have for TensorFlow yet."""

from __future__ import annotations

from hvdtune.core.rank.elastic import ObjectState, State
from hvdtune.keras.elastic import Absent, run

__all__ = ["ObjectState", "State", "TensorFlowKerasState", "TensorFlowState", "run"]


class TensorFlowKerasState(Absent):
    """A State of a model of Keras. Making one raises NotImplementedError."""


class TensorFlowState(Absent):
    """A State of variables. Making one raises NotImplementedError."""
