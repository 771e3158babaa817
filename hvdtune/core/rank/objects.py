"""Python objects and arrays between ranks.

Objects are pickles, over connections that have proved the job's key.

cloudpickle makes them, so that functions, lambdas and classes of the main script travel, too. What
fails to be pickled on one rank raises on all.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from hvdtune.core.rank import collectives, runtime
from hvdtune.core.rank.collectives import Scope, complete, synchronize
from hvdtune.core.rank.numpy_adapter import ADAPTER, Array
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.errors import UsageError

_FAILED = -1  # instead of a length


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's object on every rank; on the root it is `obj` itself.

    Args:
        obj: of no meaning on the other ranks.
        root_rank: a rank of the job that belongs to the process set.

    Raises:
        UsageError: there is no such root rank, or its object cannot be pickled.
    """
    label = name or "object"
    is_root = runtime.rank() == root_rank
    payload, failure = _pickled(obj) if is_root else (_room(0), None)
    length = np.array([_FAILED if failure else len(payload)])
    count = int(_broadcast(length, root_rank, f"{label}.length", process_set)[0])
    if count == _FAILED:
        _refuse([root_rank], failure)
    if not is_root:
        payload = _room(count)
    _broadcast(payload, root_rank, f"{label}.data", process_set)
    return obj if is_root else _loaded(payload)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """The objects of all ranks of the process set, in rank order.

    Raises:
        UsageError: a rank's object cannot be pickled.
    """
    payload, failure = _pickled(obj)
    length = np.array([_FAILED if failure else len(payload)])
    handle = collectives.allgather_async(ADAPTER, [length, payload], name or "object", process_set)
    lengths, payloads = complete(handle)
    counts = cast(list[int], lengths.tolist())
    if _FAILED in counts:
        members = process_set.ranks or []
        _refuse([r for r, count in zip(members, counts, strict=True) if count < 0], failure)
    return [_loaded(part) for part in np.split(payloads, np.cumsum(counts)[:-1])]


def broadcast_arrays(
    arrays: Sequence[Array], root_rank: int, process_set: ProcessSet = global_process_set
) -> list[Array]:
    """The root's values of variables, in these arrays, as many in the same order on all ranks."""
    with Scope():
        handles = [
            collectives.broadcast_async(
                ADAPTER, array, array, root_rank, f"variables.{number}", process_set
            )
            for number, array in enumerate(arrays)
        ]
        return [cast(Array, synchronize(handle)) for handle in handles]


def _broadcast(array: Array, root_rank: int, name: str, process_set: ProcessSet) -> Array:
    handle = collectives.broadcast_async(ADAPTER, array, array, root_rank, name, process_set)
    return cast(Array, complete(handle))


def _room(count: int) -> Array:
    return np.empty(count, np.uint8)


def _pickled(obj: Any) -> tuple[Array, Exception | None]:
    import cloudpickle  # which most trainings never need

    try:
        content = bytearray(cloudpickle.dumps(obj))
    except Exception as error:  # an object's own methods may raise anything; _refuse tells it
        return _room(0), error
    return np.frombuffer(content, np.uint8), None


def _loaded(payload: Array) -> Any:
    return pickle.loads(payload.data)


def _refuse(ranks: list[int], failure: Exception | None) -> None:
    where = ", ".join(map(str, ranks))
    why = f": {failure}" if failure else "; see what is said there"
    raise UsageError(f"the object of rank {where} cannot be pickled{why}") from failure
