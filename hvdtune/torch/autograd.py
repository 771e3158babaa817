"""Collectives that wait for their results, through which gradients flow.

hvdtune.core.rank.collective_spec defines the gradient of each. Either every rank's tensor
requires a gradient or none does: give a placeholder `requires_grad=True` where its value comes from
another rank. A rank whose loss does not depend on the result adds `0 * result.sum()` to it.
Otherwise the others wait and report the rank, see docs/deadlines.md.

In an autograd graph, compression is part of the graph: gradients travel compressed as well. Second
derivatives work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from hvdtune.core.rank import runtime
from hvdtune.core.rank.collective_spec import (
    ALLGATHER,
    ALLREDUCE,
    CollectiveSpec,
    GradientRule,
    check_has_gradient,
)
from hvdtune.core.rank.collectives import ReduceOp, Reduction, complete
from hvdtune.core.rank.compression import NoneCompressor, compressor_of
from hvdtune.core.rank.process_sets import ProcessSet
from hvdtune.torch.adapter import ADAPTER

_AVERAGE: Final = Reduction(ReduceOp.AVERAGE)


def waited(
    spec: CollectiveSpec,
    tensors: Sequence[torch.Tensor],
    how: Any,
    name: str | None,
    process_set: ProcessSet,
    grouped: bool = False,
    compression: Any = None,
) -> Any:
    """The result of a collective on tensors: one, or a list for a group; see CollectiveSpec."""
    if compression is None or compression is NoneCompressor:
        results = run(spec, tensors, how, name, process_set, grouped)
    else:
        packed = [compressor_of(compression).compress(tensor) for tensor in tensors]
        given = [tensor for tensor, _ in packed]
        combined = run(spec, given, how, name, process_set, grouped)
        contexts = (context for _, context in packed)
        results = [compression.decompress(*row) for row in zip(combined, contexts, strict=True)]
    return results if grouped else results[0]


def run(
    spec: CollectiveSpec,
    tensors: Sequence[torch.Tensor],
    how: Any,
    name: str | None,
    process_set: ProcessSet,
    grouped: bool = False,
) -> list[torch.Tensor]:
    """The results of the collective, recorded by autograd where a tensor requires a gradient."""
    if _needs_gradient(tensors):
        recorded: Any = _Recorded.apply
        return list(recorded(spec, how, name, process_set, grouped, *tensors))
    result = complete(spec.start(ADAPTER, tensors, how, name, process_set, grouped))
    if isinstance(result, torch.Tensor):
        return [result]
    # An alltoall gives numbers of rows, too.
    return [row if isinstance(row, torch.Tensor) else _rows_tensor(row) for row in result]


def _needs_gradient(tensors: Sequence[torch.Tensor]) -> bool:
    if torch.is_grad_enabled():
        for tensor in tensors:  # not any(): this is on the way of every collective
            if getattr(tensor, "requires_grad", False):
                return True
    return False


def _rows_tensor(rows: list[int]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.int32)


class _Recorded(torch.autograd.Function):
    """A collective of tensors. Those with a floating point dtype have gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        spec: CollectiveSpec,
        how: Any,
        name: str | None,
        process_set: ProcessSet,
        grouped: bool,
        *tensors: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        ctx.spec, ctx.how, ctx.name = spec, how, name
        ctx.process_set, ctx.grouped = process_set, grouped
        outputs = run(spec, tensors, how, name, process_set, grouped)
        ctx.mark_non_differentiable(*(o for o in outputs if not o.dtype.is_floating_point))
        ctx.floating = [tensor.dtype.is_floating_point for tensor in tensors]
        ctx.rows = [tensor.shape[:1].numel() for tensor in tensors if tensor.is_floating_point()]
        ctx.received = outputs[len(tensors) :]  # an alltoall's numbers of rows
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        check_has_gradient(ctx.spec, ctx.how, ctx.name, "tensor.detach()")
        ctx.label = f"{ctx.name}.gradient" if ctx.name else None
        given = [g for g, floating in zip(gradients, ctx.floating, strict=False) if floating]
        results = iter(_RULES[ctx.spec.gradient](ctx, given))
        spread = (next(results) if floating else None for floating in ctx.floating)
        return None, None, None, None, None, *spread


def _same(ctx: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    return run(ctx.spec, gradients, ctx.how, ctx.label, ctx.process_set, ctx.grouped)


def _mean(ctx: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    return run(ALLREDUCE, gradients, _AVERAGE, ctx.label, ctx.process_set, ctx.grouped)


def _own_rows_of_mean(ctx: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    counts = torch.tensor([ctx.rows])
    label = ctx.label and f"{ctx.label}.rows"
    (everyones,) = run(ALLGATHER, [counts], None, label, ctx.process_set)
    begins = everyones[: ctx.process_set.rank()].sum(0).tolist()
    # Copies, so that a gradient that is kept does not keep those of all ranks.
    return [
        mean.narrow(0, begin, count).clone()
        for mean, begin, count in zip(_mean(ctx, gradients), begins, ctx.rows, strict=True)
    ]


def _mean_on_root(ctx: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    means = _mean(ctx, gradients)
    return means if runtime.rank() == ctx.how else [torch.zeros_like(mean) for mean in means]


def _sent_back(ctx: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    rows = ctx.received[0].tolist()
    return run(ctx.spec, gradients, rows, ctx.label, ctx.process_set)[:1]


def _gathered(ctx: Any, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    how: Reduction = ctx.how
    factor = how.prescale_factor * how.postscale_factor
    if how.op is ReduceOp.SUM:
        factor *= ctx.process_set.size()
    given = [gradient * factor for gradient in gradients]
    return run(ALLGATHER, given, None, ctx.label, ctx.process_set, ctx.grouped)


_RULES: Final[dict[GradientRule, Callable[[Any, list[torch.Tensor]], list[torch.Tensor]]]] = {
    GradientRule.SAME: _same,
    GradientRule.OWN_ROWS_OF_MEAN: _own_rows_of_mean,
    GradientRule.MEAN_ON_ROOT: _mean_on_root,
    GradientRule.SENT_BACK: _sent_back,
    GradientRule.GATHERED: _gathered,
}
