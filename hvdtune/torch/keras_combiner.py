"""Gradients of Keras on PyTorch, which are there when Keras applies them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from hvdtune.core.gradients.groups import grouped
from hvdtune.core.gradients.keras_variables import distinct, layer_and_own
from hvdtune.core.gradients.plan import Gradient, arrange, joint_name
from hvdtune.core.gradients.variable_options import GradientOptions
from hvdtune.core.rank import runtime
from hvdtune.core.rank.collective_spec import ALLREDUCE
from hvdtune.core.rank.collectives import Scope, synchronize
from hvdtune.torch.adapter import ADAPTER


class KerasCombiner:
    """Implements hvdtune.keras.backend.Combiner."""

    def __init__(self, options: GradientOptions) -> None:
        self._options = options
        self._count = 0
        self._sums: list[torch.Tensor | None] = []

    def register_local(self, variable: Any) -> None:
        self._options.local.add(id(variable))

    def apply(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        step: Callable[[list[Any]], None],
        skip: Callable[[], None],
    ) -> None:
        if self._options.passes > 1:
            gradients = self._added(gradients)
            self._count += 1
            if self._count % self._options.passes:
                skip()
                return
            self._sums = []
            if self._options.average:
                gradients = [g if g is None else g / self._options.passes for g in gradients]
        step(self._combined(gradients, variables))
        runtime.mark_step()

    def _added(self, gradients: Sequence[Any]) -> list[torch.Tensor | None]:
        if not self._sums:
            self._sums = [None if g is None else g.clone() for g in gradients]
        else:
            for total, gradient in zip(self._sums, gradients, strict=True):
                if total is not None and gradient is not None:
                    total += gradient
        return self._sums

    def _combined(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        options = self._options
        if not options.travels():
            return list(gradients)
        results: dict[int, Any] = {}
        rows, given, contexts = [], {}, {}
        names = distinct([layer_and_own(variable.path) for variable in variables])
        for number, (gradient, variable) in enumerate(zip(gradients, variables, strict=True)):
            if gradient is None:
                continue
            if id(variable) in options.local:
                results[number] = options.scaled(gradient)
                continue
            given[number], contexts[number] = options.compression.compress(gradient.detach())
            rows.append(_described(number, names[number], given[number]))
        plan = self._arranged(rows, variables)
        with Scope():
            started = [self._start(members, given) for members in plan]
            for members, handle in zip(plan, started, strict=True):
                for row, reduced in zip(members, synchronize(handle), strict=True):
                    context = contexts[row.parameter]
                    results[row.parameter] = options.compression.decompress(reduced, context)
        return [results.get(number) for number in range(len(gradients))]

    def _start(self, members: Sequence[Gradient[int]], given: dict[int, torch.Tensor]) -> int:
        tensors = [given[row.parameter] for row in members]
        reduction, process_set = self._options.reduction, self._options.process_set
        name = joint_name(members)
        return ALLREDUCE.start(ADAPTER, tensors, reduction, name, process_set, True)

    def _arranged(
        self, rows: list[Gradient[int]], variables: Sequence[Any]
    ) -> list[Sequence[Gradient[int]]]:
        keys = [id(variables[row.parameter]) for row in rows]
        plan = arrange(rows, grouped(rows, keys, self._options.groups, id))
        return [*plan.groups, *(pack.members for pack in plan.flat_buffers)]


def _described(number: int, name: str, tensor: torch.Tensor) -> Gradient[int]:
    nbytes = tensor.numel() * tensor.element_size()
    return Gradient(number, name, str(tensor.dtype), tensor.numel(), nbytes)
