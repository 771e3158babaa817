"""Marks the training steps of scripts that only use torch: a step ends with optimizer.step()."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch.optim import optimizer as optimizers


class StepMarker:
    """Calls `mark` after every step of the first optimizer that steps, until it is closed.

    Of several optimizers that one steps once per iteration. Where an optimizer wraps another, the
    step of the outermost counts.

    Thread rule: the thread that trains.
    """

    def __init__(self, mark: Callable[[], None]) -> None:
        self._mark = mark
        self._optimizer: weakref.ref[Any] | None = None
        self._depth = 0
        self._hooks = [
            optimizers.register_optimizer_step_pre_hook(self._before),
            optimizers.register_optimizer_step_post_hook(self._after),
        ]

    def close(self) -> None:
        """Ends the marking. Can be called again."""
        for hook in self._hooks:
            hook.remove()

    def _before(self, optimizer: Any, _: object, __: object) -> None:
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer, self._depth = weakref.ref(optimizer), 0
        if self._optimizer() is optimizer:
            self._depth += 1

    def _after(self, optimizer: Any, _: object, __: object) -> None:
        if self._optimizer is not None and self._optimizer() is optimizer:
            self._depth -= 1
            if self._depth == 0:
                self._mark()
