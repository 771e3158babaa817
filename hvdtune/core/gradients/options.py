"""Checks and meaning of the options that every distributed optimizer takes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hvdtune.core.rank.collectives import ReduceOp, Reduction
from hvdtune.errors import UsageError
from hvdtune.plural import counted


def check_names(named: Sequence[tuple[str, object]], expected: int) -> None:
    """Raises UsageError unless there are `expected` names, all different."""
    names = [name for name, _ in named]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise UsageError(f"parameter names must be unique; used more than once: {', '.join(twice)}")
    if len(names) < expected:
        raise UsageError(
            f"named_parameters has {counted(len(names), 'name')} for "
            f"{counted(expected, 'parameter')}; pass model.named_parameters() of the whole model"
        )


def passes_of(backward_passes_per_step: int) -> int:
    """Raises UsageError unless it is a whole number of at least 1."""
    if not isinstance(backward_passes_per_step, int) or backward_passes_per_step < 1:
        raise UsageError(
            "backward_passes_per_step must be a whole number of at least 1, not "
            f"{backward_passes_per_step!r}"
        )
    return backward_passes_per_step


def reduction_of_gradients(op: ReduceOp | int, predivide: float) -> Reduction:
    """How gradients are combined; `predivide` is Horovod's gradient_predivide_factor.

    Raises:
        UsageError: by none of Average, Sum and Adasum, or the factor is not above 0 or not for
            Average.
    """
    if op not in (ReduceOp.AVERAGE, ReduceOp.SUM, ReduceOp.ADASUM):
        raise UsageError(f"op={op!r} cannot combine gradients; use hvd.Average, Sum or Adasum")
    if not predivide > 0:
        raise UsageError(f"gradient_predivide_factor must be above 0, not {predivide}")
    if predivide != 1.0 and op != ReduceOp.AVERAGE:
        raise UsageError("gradient_predivide_factor needs op=Average")
    return Reduction(ReduceOp(op), 1.0 / predivide, predivide)
