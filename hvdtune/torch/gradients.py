"""Gradients of PyTorch parameters on their way: alone or packed into one tensor.

Zero-copy: a gradient that is kept from step to step (`zero_grad(set_to_none=False)`) moves into
memory that the ranks of a host share, where it is reduced without a copy. It stays the same tensor
with the same values; only its storage changes, once, and never where something else refers to it.
A gradient that every backward pass makes anew would have to be copied in, which costs more than it
saves, so it travels from where it is.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, cast

import torch

from hvdtune.core import runtime
from hvdtune.core.gradients import Gradient, Group, Outbox
from hvdtune.errors import UsageError
from hvdtune.torch.adapter import ADAPTER, DTYPES
from hvdtune.torch.compression import Compressor


def describe(parameter: torch.Tensor, name: str, compression: type[Compressor]) -> Gradient[Any]:
    """The gradient that this parameter will have, as it will travel."""
    dtype = parameter.dtype
    if compression.wire_dtype is not None and dtype.is_floating_point:
        dtype = compression.wire_dtype
    packable = parameter.device.type == "cpu" and dtype in DTYPES
    count = parameter.numel()
    nbytes = count * parameter.element_size()
    return Gradient(parameter, name, DTYPES.get(dtype, str(dtype)), count, nbytes, packable)


def _check_dtype(found: torch.dtype, expected: str, name: str) -> None:
    if DTYPES.get(found) != expected:
        raise UsageError(
            f"the gradient of {name} is {str(found).removeprefix('torch.')} now; it was {expected} "
            "when the optimizer was wrapped: convert the model first, then wrap"
        )


def _check_dense(gradient: torch.Tensor, name: str) -> None:
    if gradient.layout is not torch.strided:
        raise UsageError(
            f"the gradient of {name} is sparse, which is not supported in this version; use a "
            "dense one (nn.Embedding(sparse=False))"
        )


def _shared_tensor(count: int, dtype: torch.dtype) -> torch.Tensor | None:
    """A flat tensor in memory that the ranks of this host share, None where there is none."""
    buffer = runtime.zero_copy_buffer(count * dtype.itemsize) if count else None
    return None if buffer is None else torch.frombuffer(buffer, dtype=dtype, count=count)


def _move(gradient: torch.Tensor, place: torch.Tensor) -> None:
    """Gives the gradient the storage of `place`, which is flat and as large."""
    place = place.view(gradient.shape)
    place.copy_(gradient.detach())
    gradient.data = place


def _can_move(gradient: torch.Tensor) -> bool:
    """Whether nothing else sees its storage: no view of it, no array, no flat tensor around it."""
    if gradient._is_view() or not gradient.is_contiguous():
        return False
    storage = gradient.untyped_storage()
    if storage.nbytes() != gradient.numel() * gradient.element_size():
        return False
    count_uses = getattr(torch._C, "_storage_Use_Count", None)
    # The tensor and `storage` itself. A torch that cannot tell keeps its gradients where they are.
    return count_uses is not None and cast(int, count_uses(storage._cdata)) <= 2


class Kept:
    """Recognises a gradient that outlives its step."""

    def __init__(self) -> None:
        self._last: weakref.ref[torch.Tensor] | None = None

    def is_same(self, gradient: torch.Tensor) -> bool:
        """Whether it is the tensor that the last call was about."""
        last = self._last
        if last is not None and last() is gradient:
            return True
        self._last = weakref.ref(gradient)
        return False


class Alone:
    """A gradient that travels by itself, from where it is.

    It must not change between `send` and `receive`, which is called when the operation is done.
    """

    def __init__(
        self,
        gradient: Gradient[torch.Tensor],
        request: Any,
        compression: type[Compressor],
        *,
        zero_copy: bool,
    ) -> None:
        self.gradient = gradient
        self._request = request
        self._compression = compression
        self._packed: torch.Tensor | None = None
        self._context: torch.dtype | None = None
        # None once it has been moved, and where it shall not be.
        self._kept = Kept() if zero_copy and compression.wire_dtype is None else None

    def send(self, outbox: Outbox) -> None:
        parameter = self.gradient.parameter
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        _check_dense(parameter.grad, self.gradient.name)
        if self._kept is not None and self._kept.is_same(parameter.grad):
            self._kept = None
            self._move_into_shared(parameter.grad)
        whole = parameter.grad.detach().contiguous()
        self._packed, self._context = self._compression.compress(whole)
        _check_dtype(self._packed.dtype, self.gradient.dtype, self.gradient.name)
        outbox.add(self._request, ADAPTER.buffer(self._packed).address, self.gradient.nbytes)

    def _move_into_shared(self, gradient: torch.Tensor) -> None:
        if gradient.device.type == "cpu" and _can_move(gradient):
            place = _shared_tensor(gradient.numel(), gradient.dtype)
            if place is not None:
                _move(gradient, place)

    def receive(self) -> None:
        packed, self._packed = self._packed, None
        gradient = self.gradient.parameter.grad
        if packed is None or gradient is None:
            return
        result = self._compression.decompress(packed, self._context)
        if result.data_ptr() != gradient.data_ptr():
            gradient.copy_(result)


class Packed:
    """Small gradients that travel as one tensor, of which each has a view.

    A gradient that is its view needs no copy.
    """

    def __init__(
        self, group: Group[torch.Tensor], request: Any, dtype: torch.dtype, *, zero_copy: bool
    ) -> None:
        self.group = group
        self._request = request
        shared = _shared_tensor(group.count, dtype) if zero_copy else None
        self._memory = torch.empty(group.count, dtype=dtype) if shared is None else shared
        self._parameters = [member.parameter for member in group.members]
        self._views = _views(self._memory, self._parameters)
        self._places = [view.data_ptr() for view in self._views]
        # Gradients that are converted on their way may be of any dtype.
        self._converts = any(p.dtype is not dtype for p in self._parameters)
        self._sent = False
        # Of the first member, for all; None once they have been moved.
        self._kept = None if shared is None or self._converts else Kept()

    def send(self, outbox: Outbox) -> None:
        first = self._parameters[0].grad
        if self._kept is not None and first is not None and self._kept.is_same(first):
            self._kept = None
            self._move_into_views()
        absent, views, gradients = [], [], []
        own = self._memory.dtype
        for parameter, view, place in zip(self._parameters, self._views, self._places, strict=True):
            gradient = parameter.grad
            if gradient is None:
                absent.append(view)
                continue
            if gradient.layout is not torch.strided or (
                gradient.dtype is not own and not self._converts
            ):
                self._refuse()
            if gradient.data_ptr() != place:
                views.append(view)
                gradients.append(gradient)
        with torch.no_grad():
            if absent:
                torch._foreach_zero_(absent)
            if views:
                torch._foreach_copy_(views, gradients)
        memory = self._memory
        outbox.add(self._request, memory.data_ptr(), memory.numel() * memory.element_size())
        self._sent = True

    def receive(self) -> None:
        if not self._sent:
            return
        self._sent = False
        views, gradients = [], []
        for parameter, view, place in zip(self._parameters, self._views, self._places, strict=True):
            gradient = parameter.grad
            if gradient is None:
                if parameter.requires_grad:
                    parameter.grad = view.to(parameter.dtype, copy=True)
            elif gradient.data_ptr() != place:
                views.append(view)
                gradients.append(gradient)
        if gradients:
            with torch.no_grad():
                torch._foreach_copy_(gradients, views)

    def _move_into_views(self) -> None:
        for parameter, view in zip(self._parameters, self._views, strict=True):
            gradient = parameter.grad
            if gradient is None or gradient.layout is not torch.strided:
                continue
            if gradient.dtype == self._memory.dtype and _can_move(gradient):
                _move(gradient, view)

    def _refuse(self) -> None:
        for member in self.group.members:
            gradient = member.parameter.grad
            if gradient is not None:
                _check_dense(gradient, member.name)
                _check_dtype(gradient.dtype, member.dtype, member.name)


def _views(memory: torch.Tensor, parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    counts = [parameter.numel() for parameter in parameters]
    pieces = torch.split(memory, counts)
    return [piece.view(p.shape) for piece, p in zip(pieces, parameters, strict=True)]
