"""Counts the backward passes after which gradients are due."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)


@dataclass
class BackwardPassCounter(Generic[P]):
    """Counts backward passes per parameter since the last step.

    A gradient is due after `passes_per_step` backward passes.

    Thread rule: one thread at a time; the optimizer that owns it has a lock for its hooks.
    """

    passes_per_step: int
    passes: dict[P, int] = field(default_factory=dict)

    def add(self, parameter: P) -> int:
        """Counts a backward pass of one parameter; returns the passes since the last step."""
        count = self.passes[parameter] = self.passes.get(parameter, 0) + 1
        return count

    def add_all(self, parameters: Sequence[P]) -> P | None:
        """Counts a backward pass of each parameter; returns one that has had too many, or None."""
        once = dict.fromkeys(parameters, 1)
        if len(once) == len(parameters) and self.passes.keys().isdisjoint(once):
            self.passes.update(once)
            return None
        counts = [(self.add(parameter), parameter) for parameter in parameters]
        return next((p for count, p in counts if count > self.passes_per_step), None)

    def is_due(self, parameter: P) -> bool:
        """Whether the gradient has been computed in all passes of this step."""
        return self.passes.get(parameter, 0) >= self.passes_per_step

    def all_due(self) -> bool:
        """Whether this is true of every parameter that has a gradient in this step."""
        return self.passes_per_step == 1 or all(map(self.is_due, self.passes))

    def end_step(self) -> None:
        """Starts to count again."""
        self.passes = {}
