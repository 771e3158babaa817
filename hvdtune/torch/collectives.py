"""Collectives on PyTorch tensors, with Horovod's names and arguments.

`name` identifies an operation across ranks; `*_async` functions return a handle for `poll` and
`synchronize`; a trailing underscore means in place. See hvdtune.core.collectives for what can go
wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import torch

from hvdtune.core import collectives
from hvdtune.core.collectives import ReduceOp, Reduction, synchronize
from hvdtune.errors import UsageError
from hvdtune.torch.adapter import TorchAdapter
from hvdtune.torch.compression import Compression, Compressor

Average: Final = ReduceOp.AVERAGE
Sum: Final = ReduceOp.SUM
Adasum: Final = ReduceOp.ADASUM
Min: Final = ReduceOp.MIN
Max: Final = ReduceOp.MAX
Product: Final = ReduceOp.PRODUCT

ADAPTER: Final = TorchAdapter()


def _reduction(
    average: bool | None, op: ReduceOp | int | None, prescale: float, postscale: float
) -> Reduction:
    if average is not None and op is not None:
        raise UsageError("give either average= or op=, not both")
    if op is None:
        op = Sum if average is False else Average
    if op not in list(ReduceOp):
        raise UsageError(f"op={op} is none of hvd.Average, Sum, Min, Max, Product")
    return Reduction(ReduceOp(op), prescale, postscale)


def _fresh(tensor: torch.Tensor) -> torch.Tensor:
    tensor = ADAPTER.contiguous(tensor)
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def _member_names(name: str | None, count: int) -> list[str | None]:
    return [None if name is None else f"{name}.{index}" for index in range(count)]


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts combining the tensor over all ranks into a new one; `op` defaults to Average."""
    reduction = _reduction(average, op, prescale_factor, postscale_factor)
    return collectives.allreduce_async(ADAPTER, tensor, _fresh(tensor), name, reduction)


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Combines the tensor over all ranks; returns a new tensor of the same shape and dtype."""
    packed, context = compression.compress(tensor)
    handle = allreduce_async(packed, average, name, op, prescale_factor, postscale_factor)
    return compression.decompress(cast(torch.Tensor, synchronize(handle)), context)


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """As allreduce_async, into the tensor itself, which must be contiguous."""
    reduction = _reduction(average, op, prescale_factor, postscale_factor)
    return collectives.allreduce_async(ADAPTER, tensor, tensor, name, reduction)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """As allreduce, into the tensor itself, which must be contiguous."""
    handle = allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor)
    return cast(torch.Tensor, synchronize(handle))


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts combining each tensor into a new one; the handle's result is their list."""
    reduction = _reduction(average, op, prescale_factor, postscale_factor)
    outputs = [_fresh(tensor) for tensor in tensors]
    names = _member_names(name, len(tensors))
    return collectives.grouped_allreduce_async(ADAPTER, tensors, outputs, names, reduction)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Combines each tensor over all ranks; returns new tensors."""
    packed = [compression.compress(tensor) for tensor in tensors]
    handle = grouped_allreduce_async(
        [tensor for tensor, _ in packed], average, name, op, prescale_factor, postscale_factor
    )
    results = cast(list[torch.Tensor], synchronize(handle))
    return [
        compression.decompress(result, context)
        for result, (_, context) in zip(results, packed, strict=True)
    ]


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """As grouped_allreduce_async, into the tensors themselves."""
    reduction = _reduction(average, op, prescale_factor, postscale_factor)
    names = _member_names(name, len(tensors))
    return collectives.grouped_allreduce_async(ADAPTER, tensors, tensors, names, reduction)


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """As grouped_allreduce, into the tensors themselves."""
    handle = grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor)
    return cast(list[torch.Tensor], synchronize(handle))


def allgather_async(tensor: torch.Tensor, name: str | None = None) -> int:
    """Starts concatenating the ranks' tensors along the first dimension, which may differ."""
    return collectives.allgather_async(ADAPTER, tensor, name)


def allgather(tensor: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """The ranks' tensors, concatenated along the first dimension in rank order."""
    return cast(torch.Tensor, synchronize(allgather_async(tensor, name)))


def broadcast_async(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> int:
    """Starts copying the root's tensor into a new one on every rank."""
    return collectives.broadcast_async(ADAPTER, tensor, _fresh(tensor), root_rank, name)


def broadcast(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """The root's tensor, as a new tensor on every rank."""
    return cast(torch.Tensor, synchronize(broadcast_async(tensor, root_rank, name)))


def broadcast_async_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> int:
    """Starts overwriting the tensor with the root's; it must be contiguous."""
    return collectives.broadcast_async(ADAPTER, tensor, tensor, root_rank, name)


def broadcast_(tensor: torch.Tensor, root_rank: int, name: str | None = None) -> torch.Tensor:
    """Overwrites the tensor with the root's; it must be contiguous."""
    return cast(torch.Tensor, synchronize(broadcast_async_(tensor, root_rank, name)))
