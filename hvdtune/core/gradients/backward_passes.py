"""Counts the backward passes after which gradients are due."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from hvdtune.errors import StepOrderError

P = TypeVar("P", bound=Hashable)


@dataclass
class BackwardPassCounter(Generic[P]):
    """Counts backward passes per parameter since the last step.

    A gradient is due after `passes_per_step` backward passes.

    Thread rule: one thread at a time; the optimizer that owns it has a lock for its hooks.
    """

    passes_per_step: int
    passes: dict[P, int] = field(default_factory=dict)

    def is_due(self, parameter: P) -> bool:
        """Counts a backward pass; True when the gradient is to be sent now.

        Raises:
            StepOrderError: it was due already and `step` has not been called since.
        """
        count = self.passes.get(parameter, 0) + 1
        if count > self.passes_per_step:
            raise StepOrderError(
                "a gradient was computed more than backward_passes_per_step "
                f"({self.passes_per_step}) times before optimizer.step(); increase "
                "backward_passes_per_step to accumulate gradients locally"
            )
        self.passes[parameter] = count
        return count == self.passes_per_step

    def any_due(self) -> bool:
        """Whether a gradient has become due since the last step."""
        return any(count >= self.passes_per_step for count in self.passes.values())

    def end_step(self) -> None:
        """Starts counting anew."""
        self.passes = {}
