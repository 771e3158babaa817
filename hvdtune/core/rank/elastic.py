"""The names of Horovod's elastic training, which this version of hvdtune does not have.

They exist so that a script which uses them fails where it does, with a sentence, and not with an
AttributeError somewhere.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from hvdtune import __version__

KEEP_CHECKPOINTS: Final = (
    "Save checkpoints and start the job again from the last one when a host is lost: a lost rank "
    "raises hvd.HorovodInternalError on all others."
)


def refuse(name: str, instead: str = KEEP_CHECKPOINTS) -> NoReturn:
    """Raises NotImplementedError: there is no `name`, and what to do `instead`."""
    raise NotImplementedError(
        f"hvd.elastic.{name}: hvdtune {__version__} has no elastic training. {instead}"
    )


class Absent:
    """A class of Horovod's that cannot be made."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refuse(type(self).__name__)


class State(Absent):
    """What Horovod keeps in memory of a training. Making one raises NotImplementedError."""


class ObjectState(State):
    """A State of plain objects. Making one raises NotImplementedError."""


def run(func: Any) -> Any:
    """Horovod's decorator of a training that survives changes. Raises NotImplementedError."""
    refuse("run")
