"""Backward passes as an optimizer sees them: hooks, the end of a pass, the gradients it left."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

import torch

from hvdtune.errors import CollectiveError


class PassObserver(Protocol):
    """An optimizer whose gradients backward passes compute."""

    pass_watch: PassWatch

    def gradient_ready(self, parameter: torch.Tensor) -> None:
        """Called in the pass, when the gradient of a large parameter has been accumulated."""

    def begin_pass(self, parameter: torch.Tensor) -> None:
        """Called once per pass, when its first gradient has been accumulated."""

    def end_pass(self) -> None:
        """Called when the pass has computed its gradients."""


class PassWatch:
    """Calls an optimizer when a backward pass begins and ends, and notes its small gradients.

    A pass that fails has no end. `computed` then keeps its gradients until the next pass ends.

    Attributes:
        computed: ids of the small parameters whose gradients were computed since `take_computed`.
        lock: held by hooks, which run on one thread per device. Reentrant: a signal handler may run
            a backward pass inside a hook.
    """

    __slots__ = ("_end", "_optimizer", "computed", "lock")

    def __init__(self, optimizer: PassObserver) -> None:
        self._optimizer: Callable[[], PassObserver | None] = weakref.ref(optimizer)
        self._end: Callable[[], object | None] = _no_end
        self.computed: list[int] = []
        self.lock = threading.RLock()

    def take_computed(self) -> list[int]:
        """Returns `computed` and empties it."""
        computed, self.computed = self.computed, []
        return computed

    def hook_large(self, parameter: torch.Tensor) -> None:
        """Calls `gradient_ready` when the gradient of this parameter has been accumulated."""
        reference = self._optimizer

        def ready(parameter: torch.Tensor) -> None:
            alive = reference()
            if alive is not None:
                watch = alive.pass_watch
                if watch._end() is None:
                    watch.begin(parameter)
                # The optimizer raises it when it waits: until then it still sends gradients.
                with watch.lock, contextlib.suppress(CollectiveError):
                    alive.gradient_ready(parameter)

        cast(Any, parameter).register_post_accumulate_grad_hook(ready)

    def hook_small(self, parameter: torch.Tensor) -> None:
        """Notes when the gradient of this parameter has been accumulated, which takes 0.5 us."""
        reference = self._optimizer

        def ready(parameter: torch.Tensor) -> None:
            alive = reference()
            if alive is not None:
                watch = alive.pass_watch
                if watch._end() is None:
                    watch.begin(parameter)
                watch.computed.append(id(parameter))

        cast(Any, parameter).register_post_accumulate_grad_hook(ready)

    def begin(self, parameter: torch.Tensor) -> None:
        """Notes that a pass runs which has computed this gradient first."""
        optimizer = self._optimizer()
        with self.lock:
            if optimizer is None or self._end() is not None:
                return
            optimizer.begin_pass(parameter)
            # torch drops the callback of a pass that fails, and the reference is dead again.
            end = _End(self)
            at_end_of_pass(end)
            self._end = weakref.ref(end)

    def end(self) -> None:
        """Notes that the pass has computed its gradients."""
        optimizer = self._optimizer()
        with self.lock:
            self._end = _no_end
            if optimizer is not None:
                optimizer.end_pass()


class _End:
    """The callback at the end of one pass."""

    __slots__ = ("__weakref__", "_watch")

    def __init__(self, watch: PassWatch) -> None:
        self._watch = watch

    def __call__(self) -> None:
        self._watch.end()


def _no_end() -> None:
    """A dead reference to an _End."""


def at_end_of_pass(callback: Callable[[], None]) -> None:
    """Calls this when the backward pass that is running on this thread has computed everything.

    A callback may add another one, which runs after all that were added before.
    """
    torch.autograd.Variable._execution_engine.queue_callback(callback)


class LeftGradients:
    """Gradients as a backward pass left them, to find out whether a script changes them.

    A change through `p.grad.data` or a NumPy array is not found, because it makes no new version.
    """

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: list[tuple[torch.Tensor, torch.Tensor, int]] = []

    def note(self, parameters: Iterable[torch.Tensor]) -> None:
        """Remembers the gradients of these parameters."""
        self._rows = [(p, g, g._version) for p in parameters if (g := p.grad) is not None]

    def clear(self) -> None:
        """Forgets them."""
        self._rows = []

    def changed(self) -> torch.Tensor | None:
        """Returns the first parameter whose gradient has changed, or None."""
        for parameter, gradient, version in self._rows:
            if parameter.grad is not gradient or gradient._version != version:
                return parameter
        return None

    def changed_besides(self, computed: torch.Tensor) -> torch.Tensor | None:
        """Returns the same when a new pass has just added to the gradient of one parameter.

        Gradients on other devices are left out: another thread computes them meanwhile.
        """
        for parameter, gradient, version in self._rows:
            if parameter.device != computed.device:
                continue
            is_same = parameter.grad is gradient
            if parameter is not computed:
                if not is_same or gradient._version != version:
                    return parameter
            elif is_same and gradient.layout is torch.strided and gradient._version > version + 1:
                return parameter
        return None
