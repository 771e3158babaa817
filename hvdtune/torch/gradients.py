"""Gradients of PyTorch parameters on their way: alone or packed into one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

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


def _check_dense(gradient: torch.Tensor, name: str) -> None:
    if gradient.layout is not torch.strided:
        raise UsageError(
            f"the gradient of {name} is sparse, which is not supported in this version; use a "
            "dense one (nn.Embedding(sparse=False))"
        )


class Alone:
    """A gradient that travels by itself, from where it is.

    It must not change between `send` and `receive`, which is called when the operation is done.
    """

    def __init__(
        self, gradient: Gradient[torch.Tensor], request: Any, compression: type[Compressor]
    ) -> None:
        self.gradient = gradient
        self._request = request
        self._compression = compression
        self._packed: torch.Tensor | None = None
        self._context: torch.dtype | None = None

    def send(self, outbox: Outbox) -> None:
        parameter = self.gradient.parameter
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        _check_dense(parameter.grad, self.gradient.name)
        whole = parameter.grad.detach().contiguous()
        self._packed, self._context = self._compression.compress(whole)
        outbox.add(self._request, ADAPTER.buffer(self._packed).address, self.gradient.nbytes)

    def receive(self) -> None:
        packed, self._packed = self._packed, None
        gradient = self.gradient.parameter.grad
        if packed is None or gradient is None:
            return
        result = self._compression.decompress(packed, self._context)
        if result.data_ptr() != gradient.data_ptr():
            gradient.copy_(result)


class Packed:
    """Small gradients that travel as one tensor, of which each has a view."""

    def __init__(self, group: Group[torch.Tensor], request: Any, memory: torch.Tensor) -> None:
        self.group = group
        self._request = request
        self._memory = memory
        self._parameters = [member.parameter for member in group.members]
        self._views = _views(memory, self._parameters)
        self._sent = False

    def send(self, outbox: Outbox) -> None:
        absent, views, gradients = [], [], []
        for parameter, view in zip(self._parameters, self._views, strict=True):
            gradient = parameter.grad
            if gradient is None:
                absent.append(view)
            elif gradient is not view:
                if gradient.layout is not torch.strided:
                    self._refuse_sparse()
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
        for parameter, view in zip(self._parameters, self._views, strict=True):
            gradient = parameter.grad
            if gradient is None:
                if parameter.requires_grad:
                    parameter.grad = view.to(parameter.dtype, copy=True)
            elif gradient is not view:
                views.append(view)
                gradients.append(gradient)
        if gradients:
            with torch.no_grad():
                torch._foreach_copy_(gradients, views)

    def _refuse_sparse(self) -> None:
        for member in self.group.members:
            if member.parameter.grad is not None:
                _check_dense(member.parameter.grad, member.name)


def _views(memory: torch.Tensor, parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    counts = [parameter.numel() for parameter in parameters]
    pieces = torch.split(memory, counts)
    return [piece.view(p.shape) for piece, p in zip(pieces, parameters, strict=True)]
