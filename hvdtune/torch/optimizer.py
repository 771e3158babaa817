"""The optimizer wrapper: gradients are averaged while the backward pass still runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, cast

import torch

from hvdtune.core import runtime
from hvdtune.core.collectives import ReduceOp, synchronize
from hvdtune.core.gradients import GradientBook, check_names
from hvdtune.errors import UsageError
from hvdtune.torch.collectives import Average, allreduce_async_
from hvdtune.torch.compression import Compression, Compressor

Named = Iterable[tuple[str, torch.Tensor]]


class DistributedOptimizer(torch.optim.Optimizer):
    """Wraps an optimizer so that `step` applies gradients combined over all ranks.

    Every parameter's gradient is sent as soon as the backward pass has accumulated it, so
    communication overlaps the rest of the pass. The wrapper is also an instance of the wrapped
    optimizer's class and shares its state and parameter groups.

    Args:
        optimizer: any torch optimizer.
        named_parameters: `model.named_parameters()`; names must be the same on all ranks. Left out,
            parameters are named by their position.
        compression: what gradients travel as.
        backward_passes_per_step: passes whose gradients are accumulated locally before they are
            sent.
        op: Average, or Sum.

    Raises:
        UsageError: names are missing or not unique.
    """

    def __new__(cls, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> Self:
        if isinstance(optimizer, DistributedOptimizer):
            raise UsageError("the optimizer is a DistributedOptimizer already; wrap it once")
        wrapped = type(optimizer)
        kind = type(wrapped.__name__, (cls, wrapped), {})
        return cast(Self, object.__new__(kind))

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Named | None = None,
        compression: type[Compressor] = Compression.none,
        backward_passes_per_step: int = 1,
        op: ReduceOp | int = Average,
    ) -> None:
        # Not the base's __init__: the wrapped optimizer's state, groups and hooks are shared.
        self.__dict__.update(optimizer.__dict__)
        self._names = _names_of(self._trained(), named_parameters)
        self._compression = compression
        self._op = ReduceOp(op)
        self._book: GradientBook[torch.Tensor] = GradientBook(backward_passes_per_step)
        self._contexts: dict[torch.Tensor, tuple[torch.Tensor, torch.dtype | None]] = {}
        self._should_synchronize = True
        if runtime.size() > 1:
            for parameter in self._trained():
                hook = cast(Any, parameter).register_post_accumulate_grad_hook
                hook(self._gradient_ready)

    def _trained(self) -> list[torch.Tensor]:
        return [p for group in self.param_groups for p in group["params"] if p.requires_grad]

    def _gradient_ready(self, parameter: torch.Tensor) -> None:
        if self._book.is_due(parameter):
            self._send(parameter)

    def _send(self, parameter: torch.Tensor) -> None:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        if parameter.grad.layout is not torch.strided:
            raise UsageError(
                f"the gradient of {self._names[parameter]} is sparse, which is not supported in "
                "this version; use a dense one (nn.Embedding(sparse=False))"
            )
        packed, context = self._compression.compress(parameter.grad.contiguous())
        self._contexts[parameter] = (packed, context)
        handle = allreduce_async_(packed, name=self._names[parameter], op=self._op)
        self._book.sent(parameter, handle)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes how many backward passes are accumulated before gradients are sent."""
        self._book.passes_per_step = passes

    def synchronize(self) -> None:
        """Waits until every gradient holds the combined value; `step` does it by itself.

        A parameter without a gradient on this rank contributes zeros, so that ranks whose passes
        used different branches still agree.

        Raises:
            CollectiveError: see hvdtune.core.collectives.
        """
        if runtime.size() > 1:
            for parameter in self._book.missing(self._trained()):
                self._send(parameter)
            for parameter, handle in self._book.take().items():
                synchronize(handle)
                packed, context = self._contexts.pop(parameter)
                result = self._compression.decompress(packed, context)
                if parameter.grad is not result:
                    cast(torch.Tensor, parameter.grad).copy_(result)

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """For `step` after an explicit `synchronize`, as gradient clipping needs it."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Waits for the combined gradients, then takes the wrapped optimizer's step.

        With a closure, the gradients of each of its evaluations are combined. It must compute as
        often on every rank.
        """
        if closure is None:
            if self._should_synchronize:
                self.synchronize()
            result = super().step()
        else:
            result = super().step(self._combining(closure))
        runtime.mark_step()
        return result

    def _combining(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def evaluate() -> Any:
            loss = closure()
            self.synchronize()
            return loss

        return evaluate

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the wrapped optimizer's. Raises RuntimeError while gradients are in flight."""
        if self._book.handles:
            raise RuntimeError(
                "zero_grad() was called between loss.backward() and optimizer.step(): gradients "
                "are still being combined"
            )
        super().zero_grad(set_to_none=set_to_none)


def _names_of(parameters: list[torch.Tensor], named: Named | None) -> dict[torch.Tensor, str]:
    if named is None:
        return {parameter: f"noname.{i}" for i, parameter in enumerate(parameters)}
    rows = [(name, parameter) for name, parameter in named if parameter.requires_grad]
    check_names(rows, len(parameters))
    return {parameter: name for name, parameter in rows}
