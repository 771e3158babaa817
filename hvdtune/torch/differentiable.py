"""Collectives on PyTorch tensors that return new tensors, through which gradients flow.

The gradient of a collective is a collective, by Horovod's rules:

    allreduce       the same allreduce of the gradients: op, factors and all
    allgather       the average of the gradients over the ranks, cut to this rank's rows
    broadcast       the average of the gradients over the ranks on the root, zero elsewhere
    alltoall        every rank gets the gradients of the rows back that it sent
    reducescatter   the ranks' gradients, gathered, times the factors, and times size() for Sum

The averages are Horovod's convention: the loss of the job is the mean of the ranks' losses, as
DistributedOptimizer takes it to be, and a gradient is that mean's. Only Average and Sum have a
rule: Min, Max, Product and Adasum combine tensors that require gradients, but refuse a backward
pass with a UsageError; `tensor.detach()` says that none is wanted.

Backward passes communicate, so all ranks of the process set must run them, through the same
collectives in the same order. Either every rank's tensor requires a gradient or none does: give a
placeholder `requires_grad=True` where its value comes from another rank. A rank whose loss does not
depend on the result adds `0 * result.sum()` to it. Otherwise the others wait and say for whom, see
docs/deadlines.md.

In an autograd graph, compression is part of the graph: gradients travel compressed as well. A
gradient is an operation named `<name>.gradient`. Second derivatives work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from hvdtune.core.rank import collectives, runtime
from hvdtune.core.rank.collectives import ReduceOp, Reduction, synchronize
from hvdtune.core.rank.compression import compressor_of
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.errors import UsageError
from hvdtune.torch.adapter import ADAPTER
from hvdtune.torch.collectives import (
    Average,
    Tensors,
    allgather_async,
    alltoall_async,
    broadcast_async,
    listed,
    reduction_of,
    start_allreduce,
)
from hvdtune.torch.compression import Compression, Compressor

_AVERAGE = Reduction(ReduceOp.AVERAGE)


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
    """Combines the tensor over all ranks; returns a new tensor of the same shape and dtype.

    Args:
        average: superseded by `op`: True is hvd.Average, False hvd.Sum; warns.
        op: hvd.Average (the default), Sum, Min, Max, Product or Adasum; a gradient flows through
            the first two.
        prescale_factor: multiplies the tensor before it is combined.
        postscale_factor: multiplies the result.
    """
    reduction = reduction_of(average, op, prescale_factor, postscale_factor)
    packed, context = compressor_of(compression).compress(tensor)
    (result,) = _allreduce([packed], name, reduction, process_set, grouped=False)
    return cast(torch.Tensor, compression.decompress(result, context))


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
    """As allreduce for several tensors, in one operation."""
    reduction = reduction_of(average, op, prescale_factor, postscale_factor)
    packed = [compressor_of(compression).compress(tensor) for tensor in listed(tensors)]
    given = [tensor for tensor, _ in packed]
    results = _allreduce(given, name, reduction, process_set, grouped=True)
    contexts = [context for _, context in packed]
    return [compression.decompress(*row) for row in zip(results, contexts, strict=True)]


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """The ranks' tensors, concatenated along the first dimension in rank order."""
    return _allgather([tensor], name, process_set, grouped=False)[0]


def grouped_allgather(
    tensors: Tensors, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """As allgather for several tensors, each concatenated by itself."""
    return _allgather(listed(tensors), name, process_set, grouped=True)


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The root's tensor, as a new tensor on every rank."""
    if _needs_gradient([tensor]):
        return cast(torch.Tensor, _carry_out(_Broadcast, tensor, root_rank, name, process_set))
    return cast(torch.Tensor, synchronize(broadcast_async(tensor, root_rank, name, process_set)))


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
    if not _needs_gradient([tensor]):
        handle = alltoall_async(tensor, splits, name, process_set)
        return cast("torch.Tensor | tuple[torch.Tensor, torch.Tensor]", synchronize(handle))
    output, received = _carry_out(_Alltoall, tensor, splits, name, process_set)
    return output if splits is None else (output, received)


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

    Rows are divided evenly; where they do not divide, the first ranks get one more. Arguments are
    allreduce's; there is no Adasum.
    """
    reduction = reduction_of(None, op, prescale_factor, postscale_factor)
    packed, context = compressor_of(compression).compress(tensor)
    (result,) = _reducescatter([packed], name, reduction, process_set, grouped=False)
    return cast(torch.Tensor, compression.decompress(result, context))


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
    reduction = reduction_of(None, op, prescale_factor, postscale_factor)
    packed = [compressor_of(compression).compress(tensor) for tensor in listed(tensors)]
    given = [tensor for tensor, _ in packed]
    results = _reducescatter(given, name, reduction, process_set, grouped=True)
    contexts = [context for _, context in packed]
    return [compression.decompress(*row) for row in zip(results, contexts, strict=True)]


def _needs_gradient(tensors: Tensors) -> bool:
    if torch.is_grad_enabled():
        for tensor in tensors:  # not any(): this is on the way of every collective
            if getattr(tensor, "requires_grad", False):
                return True
    return False


def _carry_out(function: Any, *arguments: Any) -> Any:
    return function.apply(*arguments)


def _of_gradient(name: str | None) -> str | None:
    return f"{name}.gradient" if name else None


def _check_rule(kind: str, name: str | None, reduction: Reduction) -> None:
    if reduction.op not in (ReduceOp.AVERAGE, ReduceOp.SUM):
        what = f"{kind} {name}" if name else kind
        raise UsageError(
            f"no gradient flows through {what} by {reduction.op.name.title()}, only by Average and "
            "Sum; use tensor.detach() where none is wanted"
        )


def _waited(handle: int, *, grouped: bool) -> list[torch.Tensor]:
    result = synchronize(handle)
    return cast(list[torch.Tensor], result if grouped else [result])


class _Grouped(torch.autograd.Function):
    """A function of several tensors, of which those of a floating point dtype have gradients."""

    @staticmethod
    def mark(ctx: Any, outputs: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        ctx.floating = [output.dtype.is_floating_point for output in outputs]
        ctx.mark_non_differentiable(*(o for o in outputs if not o.dtype.is_floating_point))
        return tuple(outputs)

    @staticmethod
    def select(ctx: Any, rows: Sequence[Any]) -> list[Any]:
        return [row for row, floating in zip(rows, ctx.floating, strict=True) if floating]

    @staticmethod
    def spread(ctx: Any, gradients: list[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
        rest = iter(gradients)
        return tuple(next(rest) if floating else None for floating in ctx.floating)


def _allreduce(
    tensors: Tensors,
    name: str | None,
    reduction: Reduction,
    process_set: ProcessSet,
    *,
    grouped: bool,
) -> list[torch.Tensor]:
    if _needs_gradient(tensors):
        return list(_carry_out(_Allreduce, name, reduction, process_set, grouped, *tensors))
    handle = start_allreduce(tensors, name, reduction, process_set, grouped=grouped)
    return _waited(handle, grouped=grouped)


class _Allreduce(_Grouped):
    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        reduction: Reduction,
        process_set: ProcessSet,
        grouped: bool,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.name, ctx.reduction, ctx.process_set, ctx.grouped = (
            name,
            reduction,
            process_set,
            grouped,
        )
        return _Grouped.mark(
            ctx, _allreduce(tensors, name, reduction, process_set, grouped=grouped)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        _check_rule("allreduce", ctx.name, ctx.reduction)
        given = _Grouped.select(ctx, gradients)
        name = _of_gradient(ctx.name)
        results = _allreduce(given, name, ctx.reduction, ctx.process_set, grouped=ctx.grouped)
        return None, None, None, None, *_Grouped.spread(ctx, results)


def _allgather(
    tensors: Tensors, name: str | None, process_set: ProcessSet, *, grouped: bool
) -> list[torch.Tensor]:
    if _needs_gradient(tensors):
        return list(_carry_out(_Allgather, name, process_set, grouped, *tensors))
    handle = collectives.allgather_async(ADAPTER, tensors, name, process_set, grouped=grouped)
    return _waited(handle, grouped=grouped)


class _Allgather(_Grouped):
    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        process_set: ProcessSet,
        grouped: bool,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.name, ctx.process_set, ctx.grouped = name, process_set, grouped
        outputs = _allgather(tensors, name, process_set, grouped=grouped)
        ctx.rows = [len(tensor) for tensor in tensors]
        return _Grouped.mark(ctx, outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        given, rows = _Grouped.select(ctx, gradients), _Grouped.select(ctx, ctx.rows)
        name = _of_gradient(ctx.name)
        begins = _rows_before(rows, f"{name}.rows" if name else None, ctx.process_set)
        means = _allreduce(given, name, _AVERAGE, ctx.process_set, grouped=ctx.grouped)
        # Copies, so that a gradient that is kept does not keep those of all ranks.
        own = [
            mean.narrow(0, begin, count).clone()
            for mean, begin, count in zip(means, begins, rows, strict=True)
        ]
        return None, None, None, *_Grouped.spread(ctx, own)


def _rows_before(rows: list[int], name: str | None, process_set: ProcessSet) -> list[int]:
    everyones = synchronize(allgather_async(torch.tensor([rows]), name, process_set))
    return cast(list[int], everyones[: process_set.rank()].sum(0).tolist())


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> torch.Tensor:
        ctx.root_rank, ctx.name, ctx.process_set = root_rank, name, process_set
        return broadcast(tensor, root_rank, name, process_set)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        name = _of_gradient(ctx.name)
        (mean,) = _allreduce([gradient], name, _AVERAGE, ctx.process_set, grouped=False)
        own = mean if runtime.rank() == ctx.root_rank else torch.zeros_like(mean)
        return own, None, None, None


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        splits: torch.Tensor | Sequence[int] | None,
        name: str | None,
        process_set: ProcessSet,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows = splits
        if rows is None:
            rows = collectives.even_splits(tuple(tensor.shape), process_set.size())
        output, received = alltoall(tensor, rows, name, process_set)
        ctx.received, ctx.name, ctx.process_set = received, name, process_set
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> Any:
        name = _of_gradient(ctx.name)
        own, _ = alltoall(gradient, ctx.received, name, ctx.process_set)
        return own, None, None, None


def _reducescatter(
    tensors: Tensors,
    name: str | None,
    reduction: Reduction,
    process_set: ProcessSet,
    *,
    grouped: bool,
) -> list[torch.Tensor]:
    if _needs_gradient(tensors):
        return list(_carry_out(_Reducescatter, name, reduction, process_set, grouped, *tensors))
    handle = collectives.reducescatter_async(
        ADAPTER, tensors, name, reduction, process_set, grouped=grouped
    )
    return _waited(handle, grouped=grouped)


class _Reducescatter(_Grouped):
    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        reduction: Reduction,
        process_set: ProcessSet,
        grouped: bool,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.name, ctx.reduction, ctx.process_set, ctx.grouped = (
            name,
            reduction,
            process_set,
            grouped,
        )
        return _Grouped.mark(
            ctx, _reducescatter(tensors, name, reduction, process_set, grouped=grouped)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        _check_rule("reducescatter", ctx.name, ctx.reduction)
        how: Reduction = ctx.reduction
        factor = how.prescale_factor * how.postscale_factor
        if how.op is ReduceOp.SUM:
            factor *= ctx.process_set.size()
        given = [gradient * factor for gradient in _Grouped.select(ctx, gradients)]
        name = _of_gradient(ctx.name)
        gathered = _allgather(given, name, ctx.process_set, grouped=ctx.grouped)
        return None, None, None, None, *_Grouped.spread(ctx, gathered)
