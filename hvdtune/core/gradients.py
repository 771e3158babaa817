"""Which gradients of an optimizer are ready, in flight or still to come, without a framework."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from hvdtune.errors import UsageError

P = TypeVar("P", bound=Hashable)


def check_names(named: Sequence[tuple[str, object]], expected: int) -> None:
    """Raises UsageError unless there are `expected` names, all different."""
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"parameter names must be unique; these are not: {', '.join(twice)}")
    if len(names) < expected:
        raise UsageError(
            f"named_parameters has {len(names)} names for {expected} parameters; pass "
            "model.named_parameters() of the whole model"
        )


@dataclass
class GradientBook(Generic[P]):
    """Counts backward passes per parameter and keeps the handles of gradients in flight.

    A gradient is sent after `passes_per_step` backward passes. Owned by the optimizer, used by
    whichever thread runs its backward pass, one at a time.
    """

    passes_per_step: int
    passes: dict[P, int] = field(default_factory=dict)
    handles: dict[P, int] = field(default_factory=dict)

    def is_due(self, parameter: P) -> bool:
        """Counts a backward pass; True when the gradient is to be sent now.

        Raises:
            UsageError: the gradient was sent already and `step` has not been called since.
        """
        if parameter in self.handles:
            raise UsageError(
                "a gradient was computed more than backward_passes_per_step "
                f"({self.passes_per_step}) times before optimizer.step(); increase "
                "backward_passes_per_step to accumulate gradients locally"
            )
        self.passes[parameter] = self.passes.get(parameter, 0) + 1
        return self.passes[parameter] >= self.passes_per_step

    def sent(self, parameter: P, handle: int) -> None:
        """The gradient travels under this handle."""
        self.handles[parameter] = handle

    def missing(self, parameters: Iterable[P]) -> list[P]:
        """Those whose gradient has not been sent in this step, in the given order."""
        return [parameter for parameter in parameters if parameter not in self.handles]

    def take(self) -> dict[P, int]:
        """Ends the step: hands out the handles and starts counting anew."""
        handles, self.handles, self.passes = self.handles, {}, {}
        return handles
