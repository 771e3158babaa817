"""The collectives, the same for every framework.

Each `*_async` function returns a handle at once; `poll` reports whether it is done, `synchronize`
waits and returns the result. Operations with one name on all ranks of a process set belong
together, in whatever order the ranks call them. Operations without a name are numbered in call
order in each process set, so every rank must call them in the same order. A group of tensors is one
operation: ready when every rank has announced it, carried out as a whole or not at all.

Errors of a pending operation are raised by `poll` and `synchronize`: MismatchError when the ranks
disagree about shape, dtype or operation, RankLostError naming the rank that died, ShutdownError.
"""

from __future__ import annotations

import enum
import math
import numbers
import operator
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from hvdtune.core.rank import handles, runtime
from hvdtune.core.rank.adapter import Adapter, Buffer, OnGpu, Ready
from hvdtune.core.rank.handles import Scope, complete, poll, synchronize
from hvdtune.core.rank.process import PROCESS
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set, id_of
from hvdtune.errors import UsageError
from hvdtune.plural import counted

if TYPE_CHECKING:
    from hvdtune.core import _native

__all__ = [
    "ReduceOp",
    "Reduction",
    "Scope",
    "allgather_async",
    "allreduce_async",
    "allreduce_request",
    "alltoall_async",
    "barrier",
    "broadcast_async",
    "chosen_op",
    "complete",
    "factor_of",
    "handle_average_backwards_compatibility",
    "join",
    "native_reduction",
    "poll",
    "reducescatter_async",
    "root_of",
    "synchronize",
]

T = TypeVar("T")


class ReduceOp(enum.IntEnum):
    """How contributions are combined, numbered as Horovod's constants are."""

    AVERAGE = 0
    SUM = 1
    ADASUM = 2
    MIN = 3
    MAX = 4
    PRODUCT = 5


_NATIVE_NAMES: Final = {op: op.name.lower() for op in ReduceOp}


def native_reduction(operation: str, op: ReduceOp) -> str:
    """Return the core's name of `op`. Raises UsageError if the operation cannot use it."""
    from hvdtune.core import _native

    _native.check_reduction(operation, _NATIVE_NAMES[op])
    return _NATIVE_NAMES[op]


@dataclass(frozen=True)
class Reduction:
    """The operation, and the factors of contributions before and of the result after it."""

    op: ReduceOp = ReduceOp.AVERAGE
    prescale_factor: float = 1.0
    postscale_factor: float = 1.0


def handle_average_backwards_compatibility(
    op: ReduceOp | int | None, average: bool | None
) -> ReduceOp:
    """`chosen_op`, for a function that the framework's public function calls."""
    return chosen_op(op, average, stacklevel=5)


def chosen_op(op: ReduceOp | int | None, average: bool | None, *, stacklevel: int) -> ReduceOp:
    """Return the operation of `op`, or of `average`, its predecessor; Average by default.

    Args:
        stacklevel: of the call that passed `average`, for a warning.

    Raises:
        UsageError: both are given, or the operation is unknown.
    """
    if average is not None:
        if op is not None:
            raise UsageError("pass either average= or op=, not both; op= replaces average=")
        warnings.warn(
            "average= has been replaced by op=: use op=hvd.Average or op=hvd.Sum",
            DeprecationWarning,
            stacklevel=stacklevel,
        )
        return ReduceOp.AVERAGE if average else ReduceOp.SUM
    try:
        return ReduceOp.AVERAGE if op is None else ReduceOp(op)
    except ValueError:
        raise UsageError(
            f"op={op} is unknown: use hvd.Average, Sum, Adasum, Min, Max or Product"
        ) from None


_AS_IT_IS: Final = Reduction(ReduceOp.SUM)


def _request(
    operation: str,
    name: str | None,
    tensors: Sequence[tuple[str, Sequence[int]]],
    process_set: ProcessSet,
    *,
    reduction: Reduction = _AS_IT_IS,
    root: int = 0,
    splits: Sequence[int] = (),
    gpu: OnGpu | None = None,
) -> _native.Request:
    from hvdtune.core import _native

    number = id_of(process_set)
    return _native.Request(
        op=operation,
        name=handles.named(operation, name, number),
        tensors=list(tensors),
        reduce_op=_NATIVE_NAMES[reduction.op],
        root=root_of(root),
        prescale=factor_of("prescale_factor", reduction.prescale_factor),
        postscale=factor_of("postscale_factor", reduction.postscale_factor),
        process_set=number,
        splits=list(splits),
        on_gpu=gpu is not None,
    )


def root_of(rank: int) -> int:
    """Return the rank as a number. Raises UsageError if it cannot be the rank of a job."""
    try:
        number = operator.index(rank)
    except TypeError:
        raise UsageError(f"root_rank must be the number of a rank, not {rank!r}") from None
    if number.bit_length() > 31:
        raise UsageError(
            f"root rank {number} does not exist; the job has {counted(runtime.size(), 'rank')}"
        )
    return number


def factor_of(name: str, value: float) -> float:
    """Return the argument of this name. Raises UsageError unless it is a number."""
    if not isinstance(value, numbers.Real) or math.isnan(value):
        raise UsageError(f"{name} must be a number, not {value!r}")
    return float(value)


def gpu_of(buffers: Sequence[Buffer]) -> OnGpu | None:
    """Return the GPU that has the tensors of one operation; None for the host's memory.

    Raises UsageError if they are in several places.
    """
    places = {buffer.gpu for buffer in buffers}
    if len(places) > 1:
        raise UsageError(
            "all tensors of one operation must be in host memory, or on one GPU and made on one "
            "stream"
        )
    return next(iter(places), None)


def _specs(buffers: Sequence[Buffer]) -> list[tuple[str, Sequence[int]]]:
    return [(buffer.dtype, buffer.shape) for buffer in buffers]


def _addresses(buffers: Sequence[Buffer]) -> list[int]:
    return [buffer.address for buffer in buffers]


def allreduce_request(
    name: str | None,
    tensors: Sequence[tuple[str, Sequence[int]]],
    reduction: Reduction,
    process_set: ProcessSet = global_process_set,
    gpu: OnGpu | None = None,
) -> _native.Request:
    """Return the request that allreduce_async would submit for such tensors.

    The request can be submitted more than once.

    Args:
        tensors: a dtype and a shape for each.
        gpu: of the tensors, None for the host's memory.
    """
    return _request("allreduce", name, tensors, process_set, reduction=reduction, gpu=gpu)


@dataclass(frozen=True, eq=False)
class Prepared(Generic[T]):
    """An operation that is not submitted yet: the arguments of `Batch.add`.

    `finish` returns its outputs, once the operation is done. It can be called again.
    """

    request: _native.Request
    inputs: Sequence[int]
    outputs: Sequence[int]
    owners: Sequence[T]
    ready: Sequence[Ready]
    finish: Callable[[], list[T]]
    gpu: OnGpu | None = None

    def start(self, *, grouped: bool) -> int:
        """Submits the operation; `grouped` as for allreduce_async. Returns its handle."""

        def finish(_: object) -> Any:
            results = self.finish()
            return results if grouped else results[0]

        return handles.start(
            self.request, self.inputs, self.outputs, self.owners, finish, self.ready, self.gpu
        )


def _prepare(
    adapter: Adapter[T],
    operation: str,
    tensors: Sequence[T],
    outputs: Sequence[T] | None,
    name: str | None,
    process_set: ProcessSet,
    shape_of: Callable[[Sequence[int]], Sequence[int]] = lambda shape: shape,
    **options: Any,
) -> Prepared[T]:
    """Prepare an operation whose outputs have known shapes.

    Args:
        outputs: None makes new ones.
        shape_of: returns the shape of a new output from its input's.
        options: of `_request`.
    """
    sources, ready, read, gpu = _staged(adapter, tensors)
    if outputs is None:
        made = zip(read, tensors, strict=True)
        outputs = [adapter.empty(shape_of(buffer.shape), like) for buffer, like in made]
    staging = [adapter.staging_output(output) for output in outputs]
    written = [adapter.buffer(staged) for staged in staging]
    request = _request(operation, name, _specs(read), process_set, gpu=gpu, **options)

    def finish() -> list[T]:
        for staged, buffer, output in zip(staging, written, outputs, strict=True):
            if adapter.address(staged) != buffer.address:
                raise UsageError(
                    f'the memory of tensor "{request.name}" was replaced while it was in flight, '
                    "so the result is missing: call synchronize() before you replace the memory"
                )
            adapter.copy_out(staged, output)
        return list(outputs)

    # An output without rows has no memory. The core needs an address all the same.
    pairs = zip(written, read, strict=True)
    addresses = [output.address or source.address for output, source in pairs]
    owners = (*sources, *staging)
    return Prepared(request, _addresses(read), addresses, owners, ready, finish, gpu)


def prepare_allreduce(
    adapter: Adapter[T],
    tensors: Sequence[T],
    outputs: Sequence[T] | None,
    name: str | None,
    reduction: Reduction,
    process_set: ProcessSet = global_process_set,
) -> Prepared[T]:
    """Prepare what `allreduce_async` submits, for a batch of the caller's own.

    Raises UsageError as `allreduce_async` does.
    """
    if reduction.op is ReduceOp.ADASUM:
        adapter = adapter.on_host()
    return _prepare(adapter, "allreduce", tensors, outputs, name, process_set, reduction=reduction)


def allreduce_async(
    adapter: Adapter[T],
    tensors: Sequence[T],
    outputs: Sequence[T] | None,
    name: str | None,
    reduction: Reduction,
    process_set: ProcessSet = global_process_set,
    *,
    grouped: bool = True,
) -> int:
    """Combines each tensor over all ranks of the process set into its output of the same form.

    Sums are taken in rank order (within hosts, then across), float16 and bfloat16 in float32 with
    one rounding, so every setting gives the same bits. Adasum combines tensor by tensor.

    Args:
        outputs: may be the tensors themselves; must be contiguous. None makes new ones.
        grouped: False for a single tensor: the handle's result is then the tensor, not a list.

    Returns:
        A handle whose result is the list of outputs.

    Raises:
        UsageError: a dtype, device or operation that cannot be reduced, or this process is not in
            the process set.
        DuplicateNameError: an operation of that name is in flight on this rank.
    """
    with handles.Numbered(name, id_of(process_set)) as name:
        own = prepare_allreduce(adapter, tensors, outputs, name, reduction, process_set)
        return own.start(grouped=grouped)


def broadcast_async(
    adapter: Adapter[T],
    tensor: T,
    output: T | None,
    root_rank: int,
    name: str | None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Copies the root's tensor to every rank, into `output`; None makes a new one.

    Args:
        root_rank: a rank of the job that belongs to the process set.

    Raises:
        UsageError: there is no such root rank, or the dtype or device is not supported.
    """
    outputs = None if output is None else [output]
    with handles.Numbered(name, id_of(process_set)) as name:
        own = _prepare(adapter, "broadcast", [tensor], outputs, name, process_set, root=root_rank)
        return own.start(grouped=False)


def _start_gathering(
    adapter: Adapter[T],
    operation: str,
    tensors: Sequence[T],
    name: str | None,
    process_set: ProcessSet,
    present: Callable[[list[T], _native.Operation], Any],
    splits: Sequence[int] = (),
) -> int:
    """Starts an operation whose results have shapes that the core learns from the other ranks."""
    sources, ready, read, gpu = _staged(adapter, tensors)
    request = _request(operation, name, _specs(read), process_set, splits=splits, gpu=gpu)

    def finish(done: _native.Operation) -> Any:
        return present([_taken(adapter, done, i, like) for i, like in enumerate(tensors)], done)

    nothing = [0] * len(read)
    return handles.start(
        request, _addresses(read), nothing, sources, finish, ready, gpu, has_results=True
    )


def allgather_async(
    adapter: Adapter[T],
    tensors: Sequence[T],
    name: str | None,
    process_set: ProcessSet = global_process_set,
    *,
    grouped: bool = True,
    present: Callable[[list[T]], Any] = lambda results: results,
) -> int:
    """Concatenates the ranks' tensors along the first dimension, in rank order, one by one.

    First dimensions may differ between ranks, the others may not.

    Args:
        grouped: as for allreduce_async.
        present: makes the result of the list of new tensors.

    Returns:
        A handle whose result is a list of new tensors, or what `present` makes of it.

    Raises:
        UsageError: a tensor is a scalar, or its dtype or device is not supported.
    """

    def made(results: list[T], _: object) -> Any:
        return present(results) if grouped else results[0]

    with handles.Numbered(name, id_of(process_set)) as name:
        return _start_gathering(adapter, "allgather", tensors, name, process_set, made)


def alltoall_async(
    adapter: Adapter[T],
    tensor: T,
    splits: Sequence[int] | None,
    name: str | None,
    process_set: ProcessSet = global_process_set,
    present: Callable[[T, list[int]], Any] = lambda output, received: (output, received),
) -> int:
    """Sends the first `splits[0]` rows to the set's first rank, the next to its second, and so on.

    Args:
        splits: rows for each rank of the set; None divides evenly.
        present: makes the result of a new tensor of the received rows, in rank order, and of their
            number from each rank.

    Returns:
        A handle whose result is the tensor and the rows, or what `present` makes of them.

    Raises:
        UsageError: the splits do not fit the tensor or the process set, the tensor is a scalar, or
            its dtype or device is not supported.
    """

    def made(results: list[T], done: _native.Operation) -> Any:
        return present(results[0], list(done.numbers))

    with handles.Numbered(name, id_of(process_set)) as name:
        rows = _row_counts(splits)
        return _start_gathering(adapter, "alltoall", [tensor], name, process_set, made, rows)


def _row_counts(splits: Sequence[int] | None) -> list[int]:
    """Return the splits as the core takes them; [] divides evenly."""
    try:
        return [] if splits is None else [operator.index(count) for count in splits]
    except TypeError:
        raise UsageError(f"splits must be integers, one for each rank, not {splits}") from None


def reducescatter_async(
    adapter: Adapter[T],
    tensors: Sequence[T],
    name: str | None,
    reduction: Reduction,
    process_set: ProcessSet = global_process_set,
    *,
    grouped: bool = True,
) -> int:
    """Combines each tensor over the ranks and leaves every rank one part of its rows.

    Rows are divided evenly; if they do not divide, the first ranks get one more.

    Args:
        grouped: as for allreduce_async.

    Returns:
        A handle whose result is a list of new tensors.

    Raises:
        UsageError: a tensor is a scalar, or a dtype, device or operation that cannot be reduced.
    """
    with handles.Numbered(name, id_of(process_set)) as name:
        part = partial(_own_part, process_set)
        own = _prepare(
            adapter, "reducescatter", tensors, None, name, process_set, part, reduction=reduction
        )
        return own.start(grouped=grouped)


def _own_part(process_set: ProcessSet, shape: Sequence[int]) -> tuple[int, ...]:
    if not shape:
        return ()  # which the core refuses
    each, more = divmod(shape[0], process_set.size())
    return (each + (process_set.rank() < more), *shape[1:])


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Returns when every rank of the process set has called it."""
    request = _request("barrier", "noname", [], process_set)
    complete(handles.start(request, [], [], [], lambda _: None))


def join(process_set: ProcessSet = global_process_set) -> int:
    """Announces that this rank has no more data; returns when every rank of the set has joined.

    Meanwhile it contributes neutral values to the set's operations: zeros to sums, no rows to
    allgather. An average still divides by the number of all ranks. A barrier works, and so does a
    broadcast until its root has joined. The other ranks get an error from operations that need this
    rank's data: alltoall, reducescatter, Adasum, a broadcast from it.

    Returns:
        The rank that joined last.
    """
    request = _request("join", "noname", [], process_set)
    last = complete(handles.start(request, [], [], [], lambda done: done.numbers[0]))
    # Ranks that joined late have numbered more names.
    handles.note_join(id_of(process_set))
    return int(last)


def _taken(adapter: Adapter[T], operation: _native.Operation, index: int, like: T) -> T:
    result = adapter.empty(operation.result_shape(index), like)
    staged = adapter.staging_output(result)
    place = adapter.buffer(staged)
    if place.gpu is not None:
        PROCESS.native().copy_gpu_result(operation, index, place.address, place.gpu.stream)
    else:
        operation.copy_result(index, place.address, operation.result_bytes(index))
    adapter.copy_out(staged, result)
    return result


def _staged(
    adapter: Adapter[T], tensors: Sequence[T]
) -> tuple[list[T], list[Ready], list[Buffer], OnGpu | None]:
    """Return what the core reads, when it can be read, its memory, and its GPU."""
    staged = [adapter.copy_in(tensor) for tensor in tensors]
    sources = [source for source, _ in staged]
    read = [adapter.buffer(source) for source in sources]
    return sources, [ready for _, ready in staged if ready is not None], read, gpu_of(read)
