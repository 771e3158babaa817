"""The collectives, once for every framework.

Each `*_async` function returns a handle at once; `poll` asks whether it is done and `synchronize`
waits and returns the result. Operations of one name on all ranks belong together, in whatever order
the ranks call them. Names left out are numbered in call order, so every rank must then call in the
same order.

Errors of a pending operation are raised by `poll` and `synchronize`: MismatchError when the ranks
disagree about shape, dtype or operation, RankLostError naming the rank that died, ShutdownError.
"""

from __future__ import annotations

import enum
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from hvdtune.core import runtime
from hvdtune.core.adapter import Adapter, Buffer
from hvdtune.errors import CollectiveError, UsageError

T = TypeVar("T")

WAIT_SLICE_S: Final = 0.2  # how often a waiting thread looks for Ctrl-C


class ReduceOp(enum.IntEnum):
    """How contributions are combined, numbered as Horovod's constants are."""

    AVERAGE = 0
    SUM = 1
    ADASUM = 2
    MIN = 3
    MAX = 4
    PRODUCT = 5


_ALLREDUCE, _BROADCAST, _ALLGATHER, _BARRIER = range(4)
_NATIVE_OP = {
    ReduceOp.SUM: 0,
    ReduceOp.AVERAGE: 1,
    ReduceOp.MIN: 2,
    ReduceOp.MAX: 3,
    ReduceOp.PRODUCT: 4,
}


@dataclass(frozen=True)
class Reduction:
    """The operation, and what contributions are multiplied by before and the result after."""

    op: ReduceOp = ReduceOp.AVERAGE
    prescale_factor: float = 1.0
    postscale_factor: float = 1.0


@dataclass(frozen=True)
class _Pending:
    native: Any  # the runtime it was submitted to
    handles: tuple[int, ...]
    keep_alive: tuple[object, ...]
    finish: Callable[[list[Any]], Any]


_lock = threading.Lock()  # guards _pending
_pending: dict[int, _Pending] = {}
_next_handle = itertools.count(1)
_next_name = itertools.count(1)


def _named(kind: str, name: str | None) -> str:
    return f"{kind}.{name or f'noname.{next(_next_name)}'}"


def _submit(
    rows: list[tuple[Any, ...]],
    keep_alive: Iterable[object],
    finish: Callable[[list[Any]], Any],
) -> int:
    native = runtime.native()
    handles = tuple(native.submit(rows))
    handle = next(_next_handle)
    with _lock:
        _pending[handle] = _Pending(native, handles, tuple(keep_alive), finish)
    return handle


def _row(
    kind: int,
    name: str,
    source: Buffer,
    to: int,
    *,
    root: int = 0,
    reduction: Reduction | None = None,
) -> tuple[Any, ...]:
    how = reduction or Reduction(ReduceOp.SUM)
    scaling = (float(how.prescale_factor), float(how.postscale_factor))
    op = _NATIVE_OP[how.op]
    return (kind, name, source.address, to, list(source.shape), source.dtype, op, root, *scaling)


def allreduce_async(
    adapter: Adapter[T], tensor: T, output: T, name: str | None, reduction: Reduction
) -> int:
    """Combines the tensor over all ranks into `output`, of the same shape and dtype.

    Sums are taken in rank order (within hosts, then across), float16 and bfloat16 in float32 with
    one rounding, so every setting gives the same bits.

    Args:
        output: may be the tensor itself; must be contiguous.

    Returns:
        A handle whose result is `output`.

    Raises:
        UsageError: a dtype, device or operation that cannot be reduced.
        DuplicateNameError: an operation of that name is in flight on this rank.
    """
    row, keep = _allreduce_row(adapter, tensor, output, name, reduction)
    return _submit([row], keep, lambda _: output)


def grouped_allreduce_async(
    adapter: Adapter[T],
    tensors: Sequence[T],
    outputs: Sequence[T],
    names: Sequence[str | None],
    reduction: Reduction,
) -> int:
    """As allreduce_async for several tensors, which are announced together.

    Returns:
        A handle whose result is the list of outputs.
    """
    rows = []
    keep: list[object] = []
    for tensor, output, name in zip(tensors, outputs, names, strict=True):
        row, alive = _allreduce_row(adapter, tensor, output, name, reduction)
        rows.append(row)
        keep += alive
    return _submit(rows, keep, lambda _: list(outputs))


def _allreduce_row(
    adapter: Adapter[T], tensor: T, output: T, name: str | None, reduction: Reduction
) -> tuple[tuple[Any, ...], list[object]]:
    if reduction.op is ReduceOp.ADASUM:
        raise UsageError("op=Adasum is not supported in this version; use Average or Sum")
    source = adapter.contiguous(tensor)
    target = adapter.buffer(output).address
    label = _named("allreduce", name)
    row = _row(_ALLREDUCE, label, adapter.buffer(source), target, reduction=reduction)
    return row, [source, output]


def broadcast_async(
    adapter: Adapter[T], tensor: T, output: T, root_rank: int, name: str | None
) -> int:
    """Gives every rank the root's tensor, in `output` (the tensor itself, or one like it).

    Raises:
        UsageError: there is no such root rank, or the dtype or device is not supported.
    """
    source = adapter.contiguous(tensor)
    row = _row(
        _BROADCAST,
        _named("broadcast", name),
        adapter.buffer(source),
        adapter.buffer(output).address,
        root=root_rank,
    )
    return _submit([row], [source, output], lambda _: output)


def allgather_async(adapter: Adapter[T], tensor: T, name: str | None) -> int:
    """Concatenates the ranks' tensors along the first dimension, in rank order.

    First dimensions may differ between ranks, the others may not.

    Returns:
        A handle whose result is a new tensor.

    Raises:
        UsageError: the tensor is a scalar, or its dtype or device is not supported.
    """
    source = adapter.contiguous(tensor)

    def finish(operations: list[Any]) -> T:
        gathered = operations[0]
        result = adapter.empty(gathered.gathered_shape(), source)
        target = adapter.buffer(result)
        gathered.copy_gathered(target.address, gathered.gathered_bytes())
        return result

    row = _row(_ALLGATHER, _named("allgather", name), adapter.buffer(source), 0)
    return _submit([row], [source], finish)


def barrier() -> None:
    """Returns when every rank has called it."""
    nothing = Buffer(0, (), "uint8", None)
    synchronize(_submit([_row(_BARRIER, _named("barrier", None), nothing, 0)], [], lambda _: None))


def poll(handle: int) -> bool:
    """Whether `synchronize(handle)` would return, or raise, at once."""
    pending = _find(handle)
    try:
        return all(pending.native.poll(each) for each in pending.handles)
    except CollectiveError:
        return True


def synchronize(handle: int) -> Any:
    """Waits until the operation is done and returns its result; the handle ends.

    Raises:
        UsageError: the handle is unknown or was synchronized before.
        CollectiveError: the operation failed, see this module's description.
    """
    pending = _find(handle)
    failure: CollectiveError | None = None
    operations = []
    for each in pending.handles:
        try:
            while not pending.native.wait(each, WAIT_SLICE_S):
                pass
        except CollectiveError as error:
            failure = failure or error
        operations.append(pending.native.release(each))
    with _lock:
        _pending.pop(handle, None)
    if failure is not None:
        raise failure
    return pending.finish(operations)


def _find(handle: int) -> _Pending:
    with _lock:
        pending = _pending.get(handle)
    if pending is None:
        raise UsageError(f"handle {handle} is unknown, or was synchronized before")
    return pending
