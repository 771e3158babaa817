"""Batch normalization whose statistics are of the batches of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from hvdtune.core.rank.collective_spec import ALLGATHER, ALLREDUCE
from hvdtune.core.rank.collectives import ReduceOp, Reduction, complete
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.errors import UsageError
from hvdtune.torch.adapter import ADAPTER

_SUM = Reduction(ReduceOp.SUM)


class SyncBatchNorm(_BatchNorm):
    """Batch normalization over the joined batch of all ranks of a process set.

    In training, ranks whose batches have different sizes, or no rows at all, get what
    torch.nn.BatchNorm would give on the batch of all: outputs, gradients of the input, running
    statistics. Gradients of weight and bias are of this rank's rows; DistributedOptimizer combines
    them like all others. Every rank must call it as often, forward and backward; each costs one
    collective. In evaluation nothing is communicated: it is torch.nn.BatchNorm, as it is in a set
    of one rank.

    Inputs of any floating point dtype on any device; sums over float16 and bfloat16 are taken in
    float32, and exchanged as float64.

    Args:
        num_features: C of an input of shape (N, C, ...).
        eps: added to the variance.
        momentum: weight of this batch in the running statistics; None for the mean of all batches.
        affine: with a learnable weight and bias.
        track_running_stats: with running statistics; without, evaluation uses its own batch's.
        process_set: the ranks whose batches belong together.

    Raises:
        UsageError: the input has no dimension of num_features channels, or the joined batch has
            less than two values per channel.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if not input.is_floating_point():
            raise UsageError(f"SyncBatchNorm takes floating point numbers, not {input.dtype}")
        if input.dim() < 2 or input.shape[1] != self.num_features:
            raise UsageError(
                f"SyncBatchNorm({self.num_features}) takes an input of shape (N, "
                f"{self.num_features}, ...), not {tuple(input.shape)}"
            )

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The input, normalized."""
        if not self.training or self.process_set.size() == 1:
            return super().forward(input)
        self._check_input_dim(input)
        name = f"sync_batch_norm.{self.num_features}"
        output, mean, variance, count = _Normalize.apply(  # type: ignore[no-untyped-call]
            input, self.weight, self.bias, self.eps, name, self.process_set
        )
        self._update_running(mean, variance, count)
        return output  # type: ignore[no-any-return]

    def _update_running(self, mean: torch.Tensor, variance: torch.Tensor, count: int) -> None:
        if self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = self.momentum
        if share is None:
            share = 1.0 / float(self.num_batches_tracked)
        unbiased = variance * (count / (count - 1))
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), share)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _others(tensor: torch.Tensor) -> list[int]:
    return [dim for dim in range(tensor.dim()) if dim != 1]


def _along_channels(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    shape = [1] * like.dim()
    shape[1] = -1
    return values.to(like.dtype).view(shape)


def _gather_statistics(
    input: torch.Tensor, name: str, process_set: ProcessSet
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Mean and variance by channel over all ranks, in float64, and how many values they are of."""
    channels = input.shape[1]
    mine = torch.zeros(1, 2 * channels + 1, dtype=torch.float64, device=input.device)
    count = input.numel() // channels
    if count:
        variance, mean = torch.var_mean(_wide(input), _others(input), correction=0)
        mine[0, :channels], mine[0, channels:-1], mine[0, -1] = mean, variance, count
    label = f"{name}.statistics"
    rows = complete(ALLGATHER.start(ADAPTER, [mine], None, label, process_set))
    means, variances, counts = rows[:, :channels], rows[:, channels:-1], rows[:, -1:]
    total = int(counts.sum())
    if total < 2:
        raise UsageError(
            "SyncBatchNorm needs at least two values per channel in training; all ranks "
            f"together have {total}, with an input of shape {tuple(input.shape)}"
        )
    mean = (counts * means).sum(0) / total
    spread = variances + (means - mean).square()
    return mean, (counts * spread).sum(0) / total, total


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        name: str,
        process_set: ProcessSet,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
        mean, variance, count = _gather_statistics(input, name, process_set)
        inverse = (variance + eps).rsqrt()
        ctx.save_for_backward(input, weight, mean, inverse)
        ctx.count, ctx.name, ctx.process_set = count, name, process_set
        scale = inverse if weight is None else inverse * weight
        shift = -mean * scale if bias is None else bias - mean * scale
        x = _wide(input)
        output = torch.addcmul(_along_channels(shift, x), x, _along_channels(scale, x))
        ctx.mark_non_differentiable(mean, variance)
        return output.to(input.dtype), mean, variance, count

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> Any:
        input, weight, mean, inverse = ctx.saved_tensors
        incoming, centered = _wide(gradient), _wide(input)
        centered = centered - _along_channels(mean, centered)
        dims = _others(input)
        sums = torch.stack([incoming.sum(dims), (incoming * centered).sum(dims)]).double()
        for_input = for_weight = for_bias = None
        if ctx.needs_input_grad[1]:
            for_weight = (sums[1] * inverse).to(weight.dtype)
        if ctx.needs_input_grad[2]:
            for_bias = sums[0].to(weight.dtype)
        if ctx.needs_input_grad[0]:
            name = f"{ctx.name}.gradient"
            handle = ALLREDUCE.start(ADAPTER, [sums], _SUM, name, ctx.process_set)
            means = complete(handle) / ctx.count
            scale = inverse if weight is None else inverse * weight
            slope = -scale * inverse.square() * means[1]
            shift = _along_channels(-scale * means[0], incoming)
            along = torch.addcmul(shift, incoming, _along_channels(scale, incoming))
            for_input = along.addcmul_(centered, _along_channels(slope, centered)).to(input.dtype)
        return for_input, for_weight, for_bias, None, None, None
