"""The names of Horovod's elastic training, which hvdtune does not have for Keras yet."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from hvdtune import __version__

__all__ = [
    "CommitStateCallback",
    "KerasState",
    "UpdateBatchStateCallback",
    "UpdateEpochStateCallback",
    "run",
]

_INSTEAD: Final = (
    "Save checkpoints and start the job again from the last one when a host is lost: a lost rank "
    "raises hvd.HorovodInternalError on all others."
)


def refuse(name: str) -> NoReturn:
    """Raises NotImplementedError: there is no `name`, and what to do instead."""
    raise NotImplementedError(
        f"hvd.elastic.{name}: hvdtune {__version__} has no elastic training with TensorFlow and "
        f"Keras. {_INSTEAD}"
    )


class Absent:
    """A class of Horovod's that cannot be made."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refuse(type(self).__name__)


class KerasState(Absent):
    """A State of a model of Keras. Making one raises NotImplementedError."""


class CommitStateCallback(Absent):
    """Keeps a State from time to time. Making one raises NotImplementedError."""


class UpdateBatchStateCallback(Absent):
    """Notes batches in a State. Making one raises NotImplementedError."""


class UpdateEpochStateCallback(Absent):
    """Notes epochs in a State. Making one raises NotImplementedError."""


def run(func: Any) -> Any:
    """Horovod's decorator of a training that survives changes. Raises NotImplementedError."""
    refuse("run")
