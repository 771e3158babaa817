"""Python objects between ranks, as pickles over connections that have proved the job's key.

`session=` is accepted for Horovod's users and does nothing: objects are sent at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hvdtune.core.rank import objects
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.tensorflow.errors import typed


@typed
def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's object on every rank; on the root it is `obj` itself.

    Raises:
        UsageError: there is no such root rank, or its object cannot be pickled.
    """
    return objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(
    root_rank: int = 0,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Callable[[Any], Any]:
    """A function that does what `broadcast_object` does, with these arguments."""

    def call(obj: Any) -> Any:
        return broadcast_object(obj, root_rank, session, name, process_set)

    return call


@typed
def allgather_object(
    obj: Any,
    session: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """The objects of all ranks of the process set, in rank order.

    Raises:
        UsageError: a rank's object cannot be pickled.
    """
    return objects.allgather_object(obj, name, process_set)
