"""Collectives on PyTorch tensors, with Horovod's names and arguments.

`name` identifies an operation across ranks; `*_async` functions return a handle for `poll` and
`synchronize`; a trailing underscore means in place; grouped functions carry out a list of tensors
as one operation; `process_set` says which ranks take part. See hvdtune.core.collectives for what
can go wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import torch

from hvdtune.core import collectives
from hvdtune.core.collectives import ReduceOp, Reduction, synchronize
from hvdtune.core.process_sets import ProcessSet, global_process_set
from hvdtune.errors import UsageError
from hvdtune.torch.adapter import ADAPTER, require_dense
from hvdtune.torch.compression import Compression, Compressor

Average: Final = ReduceOp.AVERAGE
Sum: Final = ReduceOp.SUM
Adasum: Final = ReduceOp.ADASUM
Min: Final = ReduceOp.MIN
Max: Final = ReduceOp.MAX
Product: Final = ReduceOp.PRODUCT

Tensors = Sequence[torch.Tensor]


def _reduction(
    average: bool | None, op: ReduceOp | int | None, prescale: float, postscale: float
) -> Reduction:
    if average is not None and op is not None:
        raise UsageError("give either average= or op=, not both")
    if op is None:
        op = Sum if average is False else Average
    if op not in list(ReduceOp):
        raise UsageError(f"op={op} is none of hvd.Average, Sum, Adasum, Min, Max, Product")
    return Reduction(ReduceOp(op), prescale, postscale)


def _fresh(tensor: torch.Tensor) -> torch.Tensor:
    require_dense(tensor)
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _listed(tensors: Tensors) -> list[torch.Tensor]:
    if isinstance(tensors, torch.Tensor) or not isinstance(tensors, Sequence) or not tensors:
        raise UsageError("grouped functions take a list of at least one tensor")
    return list(tensors)


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
    reduction = _reduction(average, op, prescale_factor, postscale_factor)
    outputs = [_fresh(tensor)]
    return collectives.allreduce_async(
        ADAPTER, [tensor], outputs, name, reduction, process_set, grouped=False
    )


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Combines the tensor over all ranks; returns a new tensor of the same shape and dtype."""
    packed, context = compression.compress(tensor)
    handle = allreduce_async(
        packed, average, name, op, prescale_factor, postscale_factor, process_set
    )
    return compression.decompress(cast(torch.Tensor, synchronize(handle)), context)


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
    reduction = _reduction(average, op, prescale_factor, postscale_factor)
    return collectives.allreduce_async(
        ADAPTER, [tensor], [tensor], name, reduction, process_set, grouped=False
    )


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
    handle = allreduce_async_(
        tensor, average, name, op, prescale_factor, postscale_factor, process_set
    )
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
    reduction = _reduction(average, op, prescale_factor, postscale_factor)
    given = _listed(tensors)
    outputs = [_fresh(tensor) for tensor in given]
    return collectives.allreduce_async(ADAPTER, given, outputs, name, reduction, process_set)


def grouped_allreduce(
    tensors: Tensors,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Combines each tensor over all ranks; returns new tensors."""
    packed = [compression.compress(tensor) for tensor in _listed(tensors)]
    given = [tensor for tensor, _ in packed]
    handle = grouped_allreduce_async(
        given, average, name, op, prescale_factor, postscale_factor, process_set
    )
    results = cast(list[torch.Tensor], synchronize(handle))
    return [
        compression.decompress(result, context)
        for result, (_, context) in zip(results, packed, strict=True)
    ]


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
    reduction = _reduction(average, op, prescale_factor, postscale_factor)
    given = _listed(tensors)
    return collectives.allreduce_async(ADAPTER, given, given, name, reduction, process_set)


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
    handle = grouped_allreduce_async_(
        tensors, average, name, op, prescale_factor, postscale_factor, process_set
    )
    return cast(list[torch.Tensor], synchronize(handle))


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts concatenating the ranks' tensors along the first dimension, which may differ."""
    return collectives.allgather_async(ADAPTER, [tensor], name, process_set, grouped=False)


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """The ranks' tensors, concatenated along the first dimension in rank order."""
    return cast(torch.Tensor, synchronize(allgather_async(tensor, name, process_set)))


def grouped_allgather_async(
    tensors: Tensors, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """As allgather_async for several tensors; the handle's result is a list."""
    return collectives.allgather_async(ADAPTER, _listed(tensors), name, process_set)


def grouped_allgather(
    tensors: Tensors, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """As allgather for several tensors, each concatenated by itself."""
    handle = grouped_allgather_async(tensors, name, process_set)
    return cast(list[torch.Tensor], synchronize(handle))


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts copying the root's tensor into a new one; `root_rank` is a rank of the job."""
    output = _fresh(tensor)
    return collectives.broadcast_async(ADAPTER, tensor, output, root_rank, name, process_set)


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The root's tensor, as a new tensor on every rank."""
    return cast(torch.Tensor, synchronize(broadcast_async(tensor, root_rank, name, process_set)))


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts overwriting the tensor with the root's; it must be contiguous."""
    return collectives.broadcast_async(ADAPTER, tensor, tensor, root_rank, name, process_set)


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


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Sends the first `splits[0]` rows to the first rank, the next `splits[1]` to the second ...

    Args:
        splits: rows for each rank of the process set, integers; None divides evenly.

    Returns:
        What the ranks sent here, in rank order; with `splits` also how many rows came from each, an
        int32 tensor.
    """
    handle = alltoall_async(tensor, splits, name, process_set)
    return cast("torch.Tensor | tuple[torch.Tensor, torch.Tensor]", synchronize(handle))


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: ReduceOp | int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts combining the tensor over all ranks; the handle's result is this rank's rows of it."""
    reduction = _reduction(None, op, prescale_factor, postscale_factor)
    return collectives.reducescatter_async(
        ADAPTER, [tensor], name, reduction, process_set, grouped=False
    )


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Combines the tensor over all ranks and returns this rank's part of its rows.

    Rows are divided evenly; where they do not divide, the first ranks get one more.
    """
    packed, context = compression.compress(tensor)
    handle = reducescatter_async(packed, name, op, process_set, prescale_factor, postscale_factor)
    return compression.decompress(cast(torch.Tensor, synchronize(handle)), context)


def grouped_reducescatter_async(
    tensors: Tensors,
    name: str | None = None,
    op: ReduceOp | int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """As reducescatter_async for several tensors; the handle's result is a list."""
    reduction = _reduction(None, op, prescale_factor, postscale_factor)
    return collectives.reducescatter_async(ADAPTER, _listed(tensors), name, reduction, process_set)


def grouped_reducescatter(
    tensors: Tensors,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """As reducescatter for several tensors, each divided by itself."""
    packed = [compression.compress(tensor) for tensor in _listed(tensors)]
    given = [tensor for tensor, _ in packed]
    handle = grouped_reducescatter_async(
        given, name, op, process_set, prescale_factor, postscale_factor
    )
    results = cast(list[torch.Tensor], synchronize(handle))
    return [
        compression.decompress(result, context)
        for result, (_, context) in zip(results, packed, strict=True)
    ]


def join(device: int = -1, process_set: ProcessSet = global_process_set) -> int:
    """Says that this rank has no more data, returns when all have said so: the last rank to do so.

    Meanwhile it takes part in the others' operations with what changes nothing; see
    hvdtune.core.collectives.join.

    Args:
        device: of no meaning for tensors in host memory.
    """
    return collectives.join(process_set)
