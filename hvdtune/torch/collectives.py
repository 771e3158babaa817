"""Collectives on PyTorch tensors that work in place or in the background, by Horovod's names.

Those that return a new tensor at once are in hvdtune.torch.differentiable; no gradient flows
through those here. Working in place is allowed on a parameter, too, as broadcast_ needs it:
autograd takes note of the change and refuses a backward pass that needs the former values.

`name` identifies an operation across ranks; `*_async` functions return a handle for `poll` and
`synchronize`; a trailing underscore means in place; grouped functions carry out a list of tensors
as one operation; `process_set` says which ranks take part. See hvdtune.core.rank.collectives for
what can go wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import torch

from hvdtune.core.rank import collectives
from hvdtune.core.rank.collectives import (
    ReduceOp,
    Reduction,
    handle_average_backwards_compatibility,
    synchronize,
)
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.errors import UsageError
from hvdtune.torch.adapter import ADAPTER, require_dense

Average: Final = ReduceOp.AVERAGE
Sum: Final = ReduceOp.SUM
Adasum: Final = ReduceOp.ADASUM
Min: Final = ReduceOp.MIN
Max: Final = ReduceOp.MAX
Product: Final = ReduceOp.PRODUCT

Tensors = Sequence[torch.Tensor]


def reduction_of(
    average: bool | None, op: ReduceOp | int | None, prescale: float, postscale: float
) -> Reduction:
    """What a function that is called with these arguments combines by; for public functions only,
    as a warning about `average` points at their caller."""
    return Reduction(handle_average_backwards_compatibility(op, average), prescale, postscale)


def listed(tensors: Tensors) -> list[torch.Tensor]:
    """The tensors of a grouped function. Raises UsageError when they are no list of tensors."""
    if isinstance(tensors, torch.Tensor) or not isinstance(tensors, Sequence) or not tensors:
        raise UsageError("grouped functions take a list of at least one tensor")
    return list(tensors)


def start_allreduce(
    tensors: Tensors,
    name: str | None,
    reduction: Reduction,
    process_set: ProcessSet,
    *,
    grouped: bool,
) -> int:
    """Starts combining each tensor into a new one."""
    outputs = [_fresh(tensor) for tensor in tensors]
    return collectives.allreduce_async(
        ADAPTER, tensors, outputs, name, reduction, process_set, grouped=grouped
    )


def _start_allreduce_in_place(
    tensors: Tensors,
    name: str | None,
    reduction: Reduction,
    process_set: ProcessSet,
    *,
    grouped: bool,
) -> int:
    handle = collectives.allreduce_async(
        ADAPTER, tensors, tensors, name, reduction, process_set, grouped=grouped
    )
    for tensor in tensors:
        _note_change(tensor)
    return handle


def _fresh(tensor: torch.Tensor) -> torch.Tensor:
    require_dense(tensor)
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _note_change(tensor: torch.Tensor) -> None:
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts combining the tensor over all ranks into a new one; `op` defaults to Average."""
    reduction = reduction_of(average, op, prescale_factor, postscale_factor)
    return start_allreduce([tensor], name, reduction, process_set, grouped=False)


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """As allreduce_async, into the tensor itself, which must be contiguous."""
    reduction = reduction_of(average, op, prescale_factor, postscale_factor)
    return _start_allreduce_in_place([tensor], name, reduction, process_set, grouped=False)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """As allreduce, into the tensor itself, which must be contiguous."""
    reduction = reduction_of(average, op, prescale_factor, postscale_factor)
    handle = _start_allreduce_in_place([tensor], name, reduction, process_set, grouped=False)
    return cast(torch.Tensor, synchronize(handle))


def grouped_allreduce_async(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts combining each tensor into a new one; the handle's result is their list."""
    reduction = reduction_of(average, op, prescale_factor, postscale_factor)
    return start_allreduce(listed(tensors), name, reduction, process_set, grouped=True)


def grouped_allreduce_async_(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """As grouped_allreduce_async, into the tensors themselves."""
    reduction = reduction_of(average, op, prescale_factor, postscale_factor)
    given = listed(tensors)
    return _start_allreduce_in_place(given, name, reduction, process_set, grouped=True)


def grouped_allreduce_(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """As grouped_allreduce, into the tensors themselves."""
    reduction = reduction_of(average, op, prescale_factor, postscale_factor)
    given = listed(tensors)
    handle = _start_allreduce_in_place(given, name, reduction, process_set, grouped=True)
    return cast(list[torch.Tensor], synchronize(handle))


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts concatenating the ranks' tensors along the first dimension, which may differ."""
    return collectives.allgather_async(ADAPTER, [tensor], name, process_set, grouped=False)


def grouped_allgather_async(
    tensors: Tensors, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """As allgather_async for several tensors; the handle's result is a list."""
    return collectives.allgather_async(ADAPTER, listed(tensors), name, process_set)


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts copying the root's tensor into a new one; `root_rank` is a rank of the job."""
    output = _fresh(tensor)
    return collectives.broadcast_async(ADAPTER, tensor, output, root_rank, name, process_set)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts overwriting the tensor with the root's; it must be contiguous."""
    handle = collectives.broadcast_async(ADAPTER, tensor, tensor, root_rank, name, process_set)
    _note_change(tensor)
    return handle


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Overwrites the tensor with the root's; it must be contiguous."""
    return cast(torch.Tensor, synchronize(broadcast_async_(tensor, root_rank, name, process_set)))


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts sending rows of the tensor to every rank; the handle's result is as alltoall's."""
    rows = splits.tolist() if isinstance(splits, torch.Tensor) else splits

    def present(output: torch.Tensor, received: list[int]) -> object:
        return output if splits is None else (output, torch.tensor(received, dtype=torch.int32))

    return collectives.alltoall_async(ADAPTER, tensor, rows, name, process_set, present)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: ReduceOp | int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts combining the tensor over all ranks; the handle's result is this rank's rows of it."""
    reduction = reduction_of(None, op, prescale_factor, postscale_factor)
    return collectives.reducescatter_async(
        ADAPTER, [tensor], name, reduction, process_set, grouped=False
    )


def grouped_reducescatter_async(
    tensors: Tensors,
    name: str | None = None,
    op: ReduceOp | int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """As reducescatter_async for several tensors; the handle's result is a list."""
    reduction = reduction_of(None, op, prescale_factor, postscale_factor)
    return collectives.reducescatter_async(ADAPTER, listed(tensors), name, reduction, process_set)


def join(device: int = -1, process_set: ProcessSet = global_process_set) -> int:
    """Says that this rank has no more data, returns when all have said so: the last rank to do so.

    Meanwhile it takes part in the others' operations with what changes nothing; see
    hvdtune.core.rank.collectives.join.

    Args:
        device: of no meaning for tensors in host memory.
    """
    return collectives.join(process_set)
