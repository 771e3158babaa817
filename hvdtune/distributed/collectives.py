"""The collectives of `torch.distributed` as operations of the core.

Each function has the arguments of torch's method of a ProcessGroup, after the group's place, and
returns the operation to submit. It raises UsageError for tensors that it cannot take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.distributed import ReduceOp

from hvdtune.core.rank import collectives
from hvdtune.core.rank.collectives import Reduction
from hvdtune.distributed import gathered, tensors
from hvdtune.distributed.store_board import GroupPlace
from hvdtune.distributed.tensors import Memory
from hvdtune.errors import UsageError
from hvdtune.plural import counted

if TYPE_CHECKING:
    from hvdtune.core import _native

Tensors = Sequence[torch.Tensor]
Finish = Callable[["_native.Operation"], list[torch.Tensor]]

_AS_IT_IS: Final = Reduction(collectives.ReduceOp.SUM)
_SUM: Final = ReduceOp(ReduceOp.SUM)  # in the form that the options have


class Collective(NamedTuple):
    """An operation of the core on the tensors of one call.

    Attributes:
        finish: makes the result. Raises UsageError if the ranks' sizes do not fit.
        opts: the options that torch has passed, which may contain a timeout.
        expected: the sizes of `writes`, if the core learns the sizes only from the other ranks.
    """

    kind: str
    reads: Sequence[Memory]
    writes: Sequence[Memory]
    finish: Finish
    opts: Any
    reduction: Reduction = _AS_IT_IS
    root: int = 0
    splits: Sequence[int] = ()
    expected: Sequence[int] = ()


def allreduce(place: GroupPlace, given: Tensors, opts: Any = None) -> Collective:
    return _reduce(place, "allreduce", given, given, opts)


def allreduce_coalesced(place: GroupPlace, given: Tensors, opts: Any = None) -> Collective:
    return allreduce(place, given, opts)


def reduce(place: GroupPlace, given: Tensors, opts: Any) -> Collective:
    is_root = opts.rootRank == place.rank
    outputs = given if is_root else [torch.empty_like(tensor) for tensor in given]
    return _reduce(place, "allreduce", given, outputs, opts)


def reduce_scatter(
    place: GroupPlace, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None
) -> Collective:
    for output, parts in zip(outputs, inputs, strict=True):
        if any(part.numel() != output.numel() for part in parts):
            raise UsageError(
                "each input tensor of reduce_scatter must have the size of the output tensor"
            )
    return _reduce(place, "reducescatter", [_joined(parts) for parts in inputs], outputs, opts)


def reduce_scatter_single_coalesced(
    place: GroupPlace, outputs: Tensors, inputs: Tensors, opts: Any = None
) -> Collective:
    for output, given in zip(outputs, inputs, strict=True):
        _check_shares(place, output, given, "reduce_scatter")
    return _reduce(place, "reducescatter", inputs, outputs, opts)


def reduce_scatter_single(
    place: GroupPlace, output: torch.Tensor, given: torch.Tensor, opts: Any = None
) -> Collective:
    return reduce_scatter_single_coalesced(place, [output], [given], opts)


def broadcast(place: GroupPlace, given: Tensors, opts: Any = None) -> Collective:
    root = opts.rootRank if opts is not None else 0
    outputs = [tensors.as_output(tensor) for tensor in given]
    is_root = root == place.rank
    inputs = [tensors.as_input(tensor) for tensor in given] if is_root else outputs

    def finish(_: object) -> list[torch.Tensor]:
        if not is_root:
            tensors.copy_back(outputs, given)
        return list(given)

    reads, writes = _all_moved(inputs), _all_moved(inputs if is_root else outputs)
    return Collective("broadcast", reads, writes, finish, opts, root=root)


def allgather(
    place: GroupPlace, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None
) -> Collective:
    flat = [_room_for(parts) for parts in outputs]

    def finish(_: object) -> list[torch.Tensor]:
        for whole, parts in zip(flat, outputs, strict=True):
            _divide(whole, parts)
        return [part for parts in outputs for part in parts]

    return _gather(flat, inputs, finish, opts)


def allgather_coalesced(
    place: GroupPlace, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None
) -> Collective:
    # torch has a list of tensors for each rank here, and of ranks for each tensor in allgather.
    return allgather(place, list(zip(*outputs, strict=True)), inputs, opts)


def all_gather_single_coalesced(
    place: GroupPlace, outputs: Tensors, inputs: Tensors, opts: Any = None
) -> Collective:
    for output, given in zip(outputs, inputs, strict=True):
        _check_shares(place, given, output, "all_gather")
    flat = [tensors.as_output(output) for output in outputs]

    def finish(_: object) -> list[torch.Tensor]:
        tensors.copy_back(flat, outputs)
        return list(outputs)

    return _gather(flat, inputs, finish, opts)


def all_gather_single(
    place: GroupPlace, output: torch.Tensor, given: torch.Tensor, opts: Any = None
) -> Collective:
    return all_gather_single_coalesced(place, [output], [given], opts)


def gather(place: GroupPlace, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Collective:
    (given,) = inputs
    parts = outputs[0] if opts.rootRank == place.rank else []
    received = [part.numel() for part in parts] or [0] * place.size
    return _exchange(given, _only(place, opts.rootRank, given.numel()), parts, received, opts)


def scatter(
    place: GroupPlace, outputs: Tensors, inputs: Sequence[Tensors], opts: Any
) -> Collective:
    (output,) = outputs
    is_root = opts.rootRank == place.rank
    parts = inputs[0] if is_root else []
    if is_root and len(parts) != place.size:
        raise UsageError(f"scatter needs a tensor for each of {place.size} ranks, not {len(parts)}")
    if any(part.numel() != output.numel() for part in parts):
        raise UsageError("each input tensor of scatter must have the size of the output tensor")
    given = _joined(parts) if parts else output.new_empty(0)
    splits = [part.numel() for part in parts] or [0] * place.size
    received = _only(place, opts.rootRank, output.numel())
    return _exchange(given, splits, [output], received, opts)


def alltoall(place: GroupPlace, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Collective:
    splits = [tensor.numel() for tensor in inputs]
    received = [tensor.numel() for tensor in outputs]
    return _exchange(_joined(inputs), splits, outputs, received, opts)


def all_to_all_single(
    place: GroupPlace,
    output: torch.Tensor,
    given: torch.Tensor,
    output_splits: Sequence[int],
    input_splits: Sequence[int],
    opts: Any = None,
) -> Collective:
    sent = _splits_of(place, given, input_splits)
    return _exchange(given, sent, [output], _splits_of(place, output, output_splits), opts)


def barrier(place: GroupPlace, opts: Any = None) -> Collective:
    return Collective("barrier", [], [], lambda _: [], opts)


def _only(place: GroupPlace, rank: int, count: int) -> list[int]:
    return [count if each == rank else 0 for each in range(place.size)]


def _check_shares(place: GroupPlace, share: torch.Tensor, whole: torch.Tensor, what: str) -> None:
    if share.numel() * place.size != whole.numel() or share.dtype != whole.dtype:
        raise UsageError(
            f"{what} of {place.size} ranks needs two tensors of one dtype, one with {place.size} "
            f"times the elements of the other, not {share.dtype} {list(share.shape)} and "
            f"{whole.dtype} {list(whole.shape)}"
        )


def _splits_of(place: GroupPlace, tensor: torch.Tensor, rows: Sequence[int]) -> list[int]:
    """Return the number of the tensor's elements for each rank; no `rows` divides evenly."""
    size = place.size
    length = tensor.shape[0] if tensor.dim() else 1
    if not rows:
        if length % size:
            raise UsageError(f"{length} rows cannot be divided evenly among {size} ranks")
        rows = [length // size] * size
    if len(rows) != size or sum(rows) != length:
        raise UsageError(
            f"a tensor of {counted(length, 'row')} needs one split size for each of {size} ranks, "
            f"which add up to {length}, not {list(rows)}"
        )
    width = tensor.numel() // length if length else 0
    return [count * width for count in rows]


def _reduce(place: GroupPlace, kind: str, given: Tensors, into: Tensors, opts: Any) -> Collective:
    way, factor = tensors.kind_and_factor(_SUM if opts is None else opts.reduceOp)
    if gathered.is_bitwise(way):
        return _fold(place, kind, given, into, way, opts)
    if kind == "allreduce" and _are_sparse(given):
        return _sum_sparse(place, given, into, way, opts)
    how = tensors.reduction_of(way, factor)
    inputs = [t if tensors.is_ready(t) else tensors.as_input(t) for t in given]
    outputs = inputs
    if into is not given:
        outputs = [t if tensors.is_ready(t) else tensors.as_output(t) for t in into]

    def finish(_: object) -> list[torch.Tensor]:
        tensors.require_same_memory(outputs, writes)
        tensors.copy_back(outputs, into)
        return list(into)

    reads = [tensors.reduced(tensor, way) for tensor in inputs]
    writes = reads if into is given else [tensors.reduced(tensor, way) for tensor in outputs]
    return Collective(kind, reads, writes, finish, opts, how)


def _fold(
    place: GroupPlace, kind: str, given: Tensors, into: Tensors, way: Any, opts: Any
) -> Collective:
    """A bitwise reduction. In a reducescatter a rank folds only its own part."""
    for tensor in given:
        gathered.require_bits(tensor, way)
    rooms = [tensor.new_empty(place.size * tensor.numel()) for tensor in given]

    def finish(_: object) -> list[torch.Tensor]:
        for room, target in zip(rooms, into, strict=True):
            rows = room.view(place.size, -1)
            if kind == "reducescatter":
                rows = rows[:, place.rank * target.numel() :][:, : target.numel()]
            target.detach().copy_(gathered.folded(rows, way).view(target.shape))
        return list(into)

    return _gather(rooms, given, finish, opts)


def _sum_sparse(
    place: GroupPlace, given: Tensors, into: Tensors, way: Any, opts: Any
) -> Collective:
    sums = [gathered.SparseSum(tensor, way) for tensor in given]
    reads = _all_moved([part for each in sums for part in each.parts])

    def finish(operation: _native.Operation) -> list[torch.Tensor]:
        for number, (each, target) in enumerate(zip(sums, into, strict=True)):
            first = number * len(each.parts)
            with torch.no_grad():  # of a detached tensor, only its own indices would change
                target.copy_(each.sum_of(operation, first, place.size))
        return list(into)

    return Collective("allgather", reads, [], finish, opts)


def _gather(flat: Tensors, inputs: Tensors, finish: Finish, opts: Any) -> Collective:
    reads = _all_moved([t if tensors.is_ready(t) else tensors.as_input(t) for t in inputs])
    writes = _all_moved(flat)
    expected = [memory.bytes for memory in writes]

    def checked(operation: _native.Operation) -> list[torch.Tensor]:
        for index, room in enumerate(expected):
            came = operation.result_bytes(index)
            if came != room:
                raise UsageError(
                    f"the ranks send {counted(came, 'byte')} in total, but the output tensors "
                    f"have room for {room}"
                )
        return finish(operation)

    return Collective("allgather", reads, writes, checked, opts, expected=expected)


def _exchange(
    given: torch.Tensor, splits: Sequence[int], into: Tensors, received: Sequence[int], opts: Any
) -> Collective:
    """Sends each rank its share of the elements; fills `into` with what comes, in rank order.

    Args:
        splits: the number of elements for each rank.
        received: the number of elements from each rank.
    """
    source = tensors.moved(tensors.as_input(given))
    scale = tensors.moved_per_element(given.dtype)
    whole = tensors.as_output(into[0]) if len(into) == 1 else _room_for(into, like=given)

    def finish(operation: _native.Operation) -> list[torch.Tensor]:
        for rank, (came, room) in enumerate(zip(operation.numbers, received, strict=True)):
            if came != room * scale:
                raise UsageError(
                    f"rank {rank} of the group sends {counted(came // scale, 'element')}, but "
                    f"there is room for {room}"
                )
        _divide(whole, into)
        return list(into)

    target = tensors.moved(whole)
    sent = [count * scale for count in splits]
    return Collective(
        "alltoall", [source], [target], finish, opts, splits=sent, expected=[target.bytes]
    )


def _are_sparse(given: Tensors) -> bool:
    # all() of a generator takes four times as long, in every operation.
    for tensor in given:  # noqa: SIM110
        if not tensor.is_sparse:
            return False
    return True


def _all_moved(given: Tensors) -> list[Memory]:
    return [tensors.moved(tensor) for tensor in given]


def _joined(parts: Tensors) -> torch.Tensor:
    """Return the elements of all parts in one tensor; of a single part its own memory."""
    flat = [tensors.as_input(part).reshape(-1) for part in parts]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def _room_for(parts: Tensors, like: torch.Tensor | None = None) -> torch.Tensor:
    """Return new memory for the elements of all parts."""
    for part in parts:
        tensors.require_cpu(part)
    count = sum(part.numel() for part in parts)
    kind = parts[0] if parts else like
    assert kind is not None
    return torch.empty(count, dtype=kind.dtype)


def _divide(whole: torch.Tensor, parts: Tensors) -> None:
    """Copies its elements to each part."""
    if len(parts) == 1:
        return tensors.copy_back([whole], parts)
    at = 0
    for part in parts:
        part.detach().copy_(whole[at : at + part.numel()].view(part.shape))
        at += part.numel()
