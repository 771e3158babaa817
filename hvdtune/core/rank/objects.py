"""Python objects and arrays between ranks.

Objects are pickles, over connections that have proved the job's key.

cloudpickle makes them, so that functions, lambdas and classes of the main script travel, too. What
fails to be pickled on one rank raises on all.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from types import CellType, FunctionType
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
    except Exception as error:  # an object's own methods may raise anything; _refuse reports it
        return _room(0), unpicklable(obj, "", error)
    return np.frombuffer(content, np.uint8), None


def _loaded(payload: Array) -> Any:
    return pickle.loads(payload.data)


def _refuse(ranks: list[int], failure: Exception | None) -> None:
    where = ", ".join(map(str, ranks))
    why = f": {failure}" if failure else ". See the error on that rank"
    raise UsageError(f"the object of rank {where} cannot be pickled{why}") from failure


def unpicklable(value: Any, name: str, error: Exception) -> UsageError:
    """Return the error for a value that cannot be pickled, which names the part at fault."""
    import cloudpickle

    return UsageError(
        f"{part_at_fault(value, name, error, cloudpickle.dumps, 'pickled')}. Leave it out and "
        "create it on each rank, or give its class a __getstate__ without it"
    )


def part_at_fault(
    value: Any, name: str, error: Exception, attempt: Callable[[Any], object], done: str
) -> str:
    """Name the innermost attribute or element of a value with which `attempt` alone fails.

    Args:
        name: of the value, "" for none.
        error: with which it has failed for the value.
        done: what `attempt` does, as in "cannot be pickled".
    """
    seen = {id(value)}
    while True:
        for inner_name, inner in _parts_of(value, name):
            if id(inner) in seen:
                continue
            try:
                attempt(inner)
            except Exception as inner_error:  # an object's own methods may raise anything
                name, value, error = inner_name, inner, inner_error
                seen.add(id(inner))
                break
        else:
            break
    kind = type(value)
    what = f"{name or 'it'} is a {kind.__module__}.{kind.__qualname__}".replace("builtins.", "")
    return f"{what}, which cannot be {done} ({error})"


def _parts_of(value: Any, name: str) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(inside(name, key), each) for key, each in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"{name}[{index}]", each) for index, each in enumerate(value)]
    if isinstance(value, FunctionType):
        code, outer = value.__code__, value.__globals__
        used = {key: outer[key] for key in code.co_names if key in outer}
        cells = zip(code.co_freevars, value.__closure__ or (), strict=True)
        used |= {key: cell.cell_contents for key, cell in cells if cell != CellType()}
        return [(f"{key} (used by {name})", each) for key, each in used.items()]
    if isinstance(value, type) or callable(value):
        return []
    attributes = getattr(value, "__dict__", {})
    return [(f"{name}.{key}".lstrip("."), each) for key, each in dict(attributes).items()]


def inside(name: str, key: Any) -> str:
    """Return the name of a value in the dict `name`, "" for the outermost one."""
    return f"{name}[{key!r}]" if name else (key if isinstance(key, str) else f"[{key!r}]")
