"""The names of Horovod's elastic training, which this version of hvdtune does not have."""

from __future__ import annotations

from hvdtune.core.rank.elastic import Absent, ObjectState, run

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]


class KerasState(ObjectState):
    """A State of a model of Keras. Making one raises NotImplementedError."""


class CommitStateCallback(Absent):
    """Keeps a State from time to time. Making one raises NotImplementedError."""


class UpdateBatchStateCallback(Absent):
    """Notes batches in a State. Making one raises NotImplementedError."""


class UpdateEpochStateCallback(Absent):
    """Notes epochs in a State. Making one raises NotImplementedError."""
