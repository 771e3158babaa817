"""The optimizer wrapper: gradients are averaged while the backward pass still runs."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, cast

import torch

from hvdtune.core import runtime
from hvdtune.core.collectives import ReduceOp, Reduction, allreduce_request
from hvdtune.core.gradients import Group, Outbox, PassBook, arrange, check_names, passes_of
from hvdtune.core.process_sets import ProcessSet, global_process_set
from hvdtune.errors import UsageError
from hvdtune.torch.adapter import DTYPES
from hvdtune.torch.collectives import Average
from hvdtune.torch.compression import Compression, Compressor
from hvdtune.torch.gradients import Alone, Packed, describe

Named = Iterable[tuple[str, torch.Tensor]]


class DistributedOptimizer(torch.optim.Optimizer):
    """Wraps an optimizer so that `step` applies gradients combined over all ranks.

    A parameter's gradient is sent as soon as the backward pass has accumulated it, so communication
    overlaps the rest of the pass; small ones travel together when the pass is over. The wrapper is
    also an instance of the wrapped optimizer's class and shares its state and parameter groups.

    Args:
        optimizer: any torch optimizer.
        named_parameters: `model.named_parameters()`; names must be the same on all ranks. Left out,
            parameters are named by their position.
        compression: what gradients travel as.
        backward_passes_per_step: passes whose gradients are accumulated locally before they are
            sent.
        op: Average, or Sum.
        gradient_predivide_factor: f divides gradients by f before they are combined and multiplies
            by f after; with op=Average only.
        process_set: the ranks whose gradients are combined; the others keep theirs.
        zero_copy: gradients that are kept from step to step (`zero_grad(set_to_none=False)`) move
            into memory that the ranks of a host share. The result has the same bits either way;
            HVDTUNE_ZERO_COPY=0 switches it off for all.

    Raises:
        UsageError: names are missing or not unique, or the operation is not one for gradients.
    """

    def __new__(cls, optimizer: torch.optim.Optimizer, *_: Any, **__: Any) -> Self:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise UsageError(f"a torch.optim.Optimizer is needed, not {type(optimizer).__name__}")
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
        gradient_predivide_factor: float = 1.0,
        *,
        process_set: ProcessSet = global_process_set,
        zero_copy: bool = True,
    ) -> None:
        # Not the base's __init__: the wrapped optimizer's state, groups and hooks are shared.
        self.__dict__.update(optimizer.__dict__)
        self._reduction = _reduction(op, gradient_predivide_factor)
        if not (isinstance(compression, type) and issubclass(compression, Compressor)):
            raise UsageError(f"compression is one of hvd.Compression, not {compression!r}")
        self._compression = compression
        self._process_set = process_set
        self._zero_copy = zero_copy
        self._book: PassBook[torch.Tensor] = PassBook(passes_of(backward_passes_per_step))
        self._outbox = Outbox()
        self._alone: dict[torch.Tensor, Alone] = {}
        self._packed: list[Packed] = []
        self._sent: set[torch.Tensor] = set()
        self._should_synchronize = True
        self._synchronized = False
        self._travels = process_set.included() and process_set.size() > 1
        self._travel_with(_names_of(_trained(self.param_groups), named_parameters))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As the wrapped optimizer's; the new parameters are combined, too.

        They are named by their position: every rank must add the same groups in the same order.
        """
        super().add_param_group(param_group)
        number = len(self.param_groups) - 1
        added = _trained(self.param_groups[number:])
        self._travel_with({p: f"group.{number}.{i}" for i, p in enumerate(added)})

    def _travel_with(self, names: dict[torch.Tensor, str]) -> None:
        if not self._travels:
            return
        rows = arrange(describe(p, name, self._compression) for p, name in names.items())
        for row in rows.alone:
            request = self._request(row.name, row.dtype, tuple(row.parameter.shape))
            self._alone[row.parameter] = Alone(
                row, request, self._compression, zero_copy=self._zero_copy
            )
            _hook(row.parameter, self._gradient_ready)
        for group in rows.groups:
            self._packed.append(self._pack(group))
            for row in group.watched():
                _hook(row.parameter, self._pass_seen)

    def _pack(self, group: Group[torch.Tensor]) -> Packed:
        dtype = group.members[0].dtype
        request = self._request(group.name, dtype, (group.count,))
        return Packed(group, request, _TORCH_DTYPES[dtype], zero_copy=self._zero_copy)

    def _request(self, name: str, dtype: str, shape: tuple[int, ...]) -> Any:
        return allreduce_request(name, [(dtype, shape)], self._reduction, self._process_set)

    def _gradient_ready(self, parameter: torch.Tensor) -> None:
        if self._book.is_due(parameter):
            self._send(parameter)

    def _pass_seen(self, parameter: torch.Tensor) -> None:
        self._book.is_due(parameter)

    def _send(self, parameter: torch.Tensor) -> None:
        self._sent.add(parameter)
        self._alone[parameter].send(self._outbox)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Changes how many backward passes are accumulated before gradients are sent."""
        self._book.passes_per_step = passes_of(passes)

    def synchronize(self) -> None:
        """Waits until every gradient holds the combined value; `step` does it by itself.

        A parameter without a gradient on this rank contributes zeros, so that ranks whose passes
        used different branches still agree.

        Raises:
            CollectiveError: see hvdtune.core.collectives.
        """
        for packed in self._packed:
            packed.send(self._outbox)
        for parameter in self._alone:
            if parameter not in self._sent and parameter.requires_grad:
                self._send(parameter)
        self._sent.clear()
        self._book.end_step()
        self._outbox.wait()
        for packed in self._packed:
            packed.receive()
        for alone in self._alone.values():
            alone.receive()
        self._synchronized = self._travels

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
                if self._synchronized and not self._book.passes:
                    warnings.warn(
                        "optimizer.step() after optimizer.synchronize() combines the gradients a "
                        "second time; call it inside optimizer.skip_synchronize()",
                        stacklevel=2,
                    )
                self.synchronize()
            result = super().step()
        else:
            result = super().step(self._combining(closure))
        self._synchronized = False
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
        if self._book.any_due():
            raise RuntimeError(
                "zero_grad() was called between loss.backward() and optimizer.step(): gradients "
                "are still being combined"
            )
        super().zero_grad(set_to_none=set_to_none)


def _trained(groups: list[dict[str, Any]]) -> list[torch.Tensor]:
    return [p for group in groups for p in group["params"] if p.requires_grad]


_TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}


def _reduction(op: ReduceOp | int, predivide: float) -> Reduction:
    op = ReduceOp(op)
    if op not in (ReduceOp.AVERAGE, ReduceOp.SUM):
        raise UsageError(f"gradients are combined by Average or Sum, not by {op.name.title()}")
    if not predivide > 0:
        raise UsageError(f"gradient_predivide_factor must be above 0, not {predivide}")
    if predivide != 1.0 and op is not ReduceOp.AVERAGE:
        raise UsageError("gradient_predivide_factor needs op=Average")
    return Reduction(op, 1.0 / predivide, predivide)


def _hook(parameter: torch.Tensor, call: Callable[[torch.Tensor], Any]) -> None:
    cast(Any, parameter).register_post_accumulate_grad_hook(call)


def _names_of(parameters: list[torch.Tensor], named: Named | None) -> dict[torch.Tensor, str]:
    if named is None:
        return {parameter: f"noname.{i}" for i, parameter in enumerate(parameters)}
    rows = [(name, parameter) for name, parameter in named if parameter.requires_grad]
    check_names(rows, len(parameters))
    names = {parameter: name for name, parameter in rows}
    if not names.keys() >= set(parameters):
        raise UsageError(
            "named_parameters lacks some of the optimizer's parameters; pass "
            "model.named_parameters() of the whole model"
        )
    return {parameter: names[parameter] for parameter in parameters}
