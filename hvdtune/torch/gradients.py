"""Gradients of PyTorch parameters on their way: in place, or packed into one tensor.

Zero-copy: a gradient that is kept from step to step (`zero_grad(set_to_none=False)`) moves into
memory that the ranks of a host share, where it is reduced without a copy. It stays the same tensor
with the same values; only its storage changes, once, and never where something else refers to it.
A gradient that every backward pass allocates again would have to be copied in, which costs more
than it saves, so it is reduced where it is.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import torch

from hvdtune.core.gradients.plan import FlatBuffer, Gradient, joint_name
from hvdtune.core.gradients.request_batcher import RequestBatcher
from hvdtune.core.rank import runtime
from hvdtune.core.rank.adapter import Buffer, OnGpu, Ready
from hvdtune.core.rank.collectives import gpu_of
from hvdtune.errors import StepOrderError, UsageError
from hvdtune.torch.adapter import ADAPTER, DTYPES
from hvdtune.torch.compression import Compression

# Makes the request for an operation of this name on tensors of these dtypes and shapes.
MakeRequest = Callable[[str, Sequence[tuple[str, Sequence[int]]], OnGpu | None], Any]

# For the compressors that keep the shape. What others send is known when they have made it.
_WIRE_DTYPES: Final = {
    Compression.none: None,
    Compression.fp16: torch.float16,
    Compression.bf16: torch.bfloat16,
}


def describe(parameter: torch.Tensor, name: str, compression: Any) -> Gradient[torch.Tensor]:
    """The gradient that this parameter will have, as it will travel.

    Raises:
        UsageError: gradients of its dtype cannot be combined.
    """
    dtype, known = parameter.dtype, compression in _WIRE_DTYPES
    if known and dtype.is_floating_point:
        dtype = _WIRE_DTYPES[compression] or dtype
    if known and dtype not in DTYPES:
        raise UsageError(
            f"parameter {name} has dtype {_plain(dtype)}, whose gradients cannot be combined"
            + ("; make its torch.view_as_real() the parameter" if dtype.is_complex else "")
        )
    packable = known and parameter.device.type == "cpu"
    count = parameter.numel()
    nbytes = count * parameter.element_size()
    return Gradient(parameter, name, DTYPES.get(dtype, _plain(dtype)), count, nbytes, packable)


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _check_dtype(found: torch.dtype, expected: str, name: str) -> None:
    if DTYPES.get(found) != expected:
        raise UsageError(
            f"the gradient of {name} is {_plain(found)}, but was {expected} when the optimizer "
            "was wrapped: convert the model first, then wrap"
        )


def dense(parameter: torch.Tensor) -> torch.Tensor:
    """Return the parameter's gradient, made dense if necessary; zeros if it is missing."""
    gradient = parameter.grad
    if gradient is None:
        gradient = parameter.grad = torch.zeros_like(parameter)
    elif gradient.layout is not torch.strided:
        gradient = parameter.grad = gradient.to_dense()
    return gradient


def _address_of_values(sparse: torch.Tensor) -> int:
    return sparse._values().data_ptr() if sparse.layout is torch.sparse_coo else 0


def changed_error(name: str) -> StepOrderError:
    """The error for a gradient that a script changed after `backward` and before `synchronize`."""
    return StepOrderError(
        f"The gradient of {name} was changed before it was combined. After loss.backward(), call "
        "optimizer.synchronize(), then change gradients, then call step() inside "
        "optimizer.skip_synchronize(). (backward() starts combining only when all gradients of a "
        "step are computed. Here some were missing.) If backward() of another model filled it, "
        "call this optimizer's zero_grad()."
    )


class InFlightGradient:
    """A gradient while it is combined, during which nothing else may change it.

    `check` finds other values, other memory and another tensor. It cannot find memory that was
    freed and then allocated again in the same place, as by `untyped_storage().resize_`.
    """

    __slots__ = ("_address", "_gradient", "_version", "row")

    def __init__(self, row: Gradient[torch.Tensor], gradient: torch.Tensor) -> None:
        self.row = row
        self._gradient = gradient
        is_dense = gradient.layout is torch.strided
        self._address = gradient.data_ptr() if is_dense else _address_of_values(gradient)
        # Views of one tensor count changes together.
        self._version = None if gradient._is_view() else gradient._version

    def check(self) -> torch.Tensor:
        """The gradient, when its operation is done.

        Raises:
            StepOrderError: something has changed it in between.
        """
        gradient = self._gradient
        is_dense = gradient.layout is torch.strided
        address = gradient.data_ptr() if is_dense else _address_of_values(gradient)
        is_same = self.row.parameter.grad is gradient and address == self._address
        if not is_same or self._version not in (None, gradient._version):
            raise changed_error(self.row.name)
        return gradient


def _shared_tensor(count: int, dtype: torch.dtype) -> torch.Tensor | None:
    """Return a flat tensor in memory that the ranks of this host share, or None."""
    buffer = runtime.zero_copy_buffer(count * dtype.itemsize) if count else None
    return None if buffer is None else torch.frombuffer(buffer, dtype=dtype, count=count)


def _move(gradient: torch.Tensor, place: torch.Tensor) -> None:
    """Gives the gradient the storage of `place`, which is flat and as large."""
    place = place.view(gradient.shape)
    place.copy_(gradient.detach())
    gradient.data = place


def _can_move(gradient: torch.Tensor) -> bool:
    """Return whether nothing shares its storage: no view, no array, no flat tensor around it."""
    if gradient._is_view() or not gradient.is_contiguous() or gradient.is_neg():
        return False
    storage = gradient.untyped_storage()
    if storage.nbytes() != gradient.numel() * gradient.element_size():
        return False
    count_uses = getattr(torch._C, "_storage_Use_Count", None)
    # The tensor and `storage` itself. Without this function gradients stay where they are.
    return count_uses is not None and cast(int, count_uses(storage._cdata)) <= 2


class PersistentGradientDetector:
    """Recognises a gradient that outlives its step."""

    def __init__(self) -> None:
        self._last: weakref.ref[torch.Tensor] | None = None

    def is_same(self, gradient: torch.Tensor) -> bool:
        """Return whether it is the tensor that the last call was about."""
        last = self._last
        if last is not None and last() is gradient:
            return True
        self._last = weakref.ref(gradient)
        return False


class _Member:
    """One gradient of an operation in place."""

    def __init__(self, row: Gradient[torch.Tensor], compression: Any, *, zero_copy: bool) -> None:
        self._row = row
        self._compression = compression
        self._is_checked = compression in _WIRE_DTYPES
        # Of a gradient that travels as it is, where it is.
        self._plain_dtype = row.parameter.dtype if compression is Compression.none else None
        self._packed: torch.Tensor | None = None
        self._host: torch.Tensor | None = None
        self._context: Any = None
        self._in_flight: InFlightGradient | None = None
        self._checked: torch.Tensor | None = None
        # None once it has been moved, and where it shall not be.
        self._kept = (
            PersistentGradientDetector() if zero_copy and compression is Compression.none else None
        )

    def whole(self) -> torch.Tensor | None:
        """Takes a gradient that can travel as it is; None for others, which `take` can."""
        parameter = self._row.parameter
        gradient = parameter.grad
        if (
            gradient is None
            or gradient.dtype is not self._plain_dtype
            or not (parameter.requires_grad and gradient.is_cpu)
            or gradient.layout is not torch.strided
        ):
            return None
        self._move_when_kept(gradient)
        if not gradient.is_contiguous() or gradient.is_neg():
            return None
        self._in_flight = InFlightGradient(self._row, gradient)
        return gradient

    def take(self) -> tuple[Buffer, Ready | None]:
        """Returns what travels, which must not change before `receive`, and a function that
        returns when it can be read."""
        parameter = self._row.parameter
        if parameter.requires_grad:
            gradient = dense(parameter)
            self._move_when_kept(gradient)
            self._in_flight = InFlightGradient(self._row, gradient)
        else:  # frozen, in a group with others
            gradient = torch.zeros_like(parameter)
            self._in_flight = None
        packed: torch.Tensor
        packed, self._context = self._compression.compress(gradient.detach())
        if self._is_checked:
            _check_dtype(packed.dtype, self._row.dtype, self._row.name)
        self._packed = packed
        self._host, ready = ADAPTER.copy_in(packed)
        return ADAPTER.buffer(self._host), ready

    def _move_when_kept(self, gradient: torch.Tensor) -> None:
        if self._kept is None or not self._kept.is_same(gradient):
            return
        self._kept = None
        if gradient.device.type == "cpu" and _can_move(gradient):
            place = _shared_tensor(gradient.numel(), gradient.dtype)
            if place is not None:
                _move(gradient, place)

    def forget(self) -> None:
        self._packed = self._host = self._in_flight = self._checked = None

    def receive(self) -> None:
        """Gives the gradient its combined value; a second call does nothing.

        When a signal handler raises meanwhile, call it again.

        Raises:
            StepOrderError: something has changed the gradient in between.
        """
        if self._in_flight is not None:
            # Once: what changes it from here on is this.
            self._checked, self._in_flight = self._in_flight.check(), None
        if self._checked is not None and self._packed is not None and self._host is not None:
            self._unpack(self._packed, self._host, self._checked.detach())
        self.forget()

    def _unpack(self, packed: torch.Tensor, host: torch.Tensor, gradient: torch.Tensor) -> None:
        ADAPTER.copy_out(host, packed)
        combined = packed if packed.is_cuda else host
        result = self._compression.decompress(combined, self._context)
        if result.data_ptr() != gradient.data_ptr():
            gradient.copy_(result)


class InPlace:
    """One operation on gradients where they are: on one, or on all of a group.

    They must not change between `send` and `receive`, which is called when the operation is done.
    """

    def __init__(
        self,
        rows: Sequence[Gradient[torch.Tensor]],
        make_request: MakeRequest,
        compression: Any,
        *,
        zero_copy: bool,
    ) -> None:
        self.members = list(rows)
        self.sent = False
        self._make_request = make_request
        self._parts = [_Member(row, compression, zero_copy=zero_copy) for row in rows]
        self._nbytes = sum(row.nbytes for row in rows)
        self._is_fixed = compression in _WIRE_DTYPES
        self._request: Any = None
        self._is_on_gpu = False  # as in the request
        self._ready: set[torch.Tensor] = set()

    def is_complete(self, parameter: torch.Tensor) -> bool:
        """Notes that this gradient is ready; True when all are."""
        if len(self.members) == 1:
            return True
        self._ready.add(parameter)
        return len(self._ready) == len(self.members)

    def is_trained(self) -> bool:
        return any(row.parameter.requires_grad for row in self.members)

    def send(self, batcher: RequestBatcher) -> None:
        if self._request is not None and len(self._parts) == 1 and not self._is_on_gpu:
            gradient = self._parts[0].whole()
            if gradient is not None:
                # Which keeps the memory when the gradient is given another.
                memory = gradient.untyped_storage()
                address = gradient.data_ptr()
                batcher.add(self._request, [address], self._nbytes, [memory])
                self.sent = True
                batcher.flush_when_due()
                return
        taken = [part.take() for part in self._parts]
        buffers = [buffer for buffer, _ in taken]
        gpu = gpu_of(buffers)
        is_on_gpu = gpu is not None
        if self._request is None or not self._is_fixed or is_on_gpu != self._is_on_gpu:
            self._is_on_gpu = is_on_gpu
            specs = [(buffer.dtype, buffer.shape) for buffer in buffers]
            self._request = self._make_request(joint_name(self.members), specs, gpu)
        ready = [each for _, each in taken if each is not None]
        addresses = [buffer.address for buffer in buffers]
        owners = [buffer.owner for buffer in buffers]
        batcher.add(self._request, addresses, self._nbytes, owners, ready, gpu)
        self.sent = True
        batcher.flush_when_due()

    def receive(self) -> None:
        for part in self._parts:
            part.receive()

    def end_step(self) -> None:
        self.sent = False
        self._ready.clear()

    def forget(self) -> None:
        """Ends the step without `receive`, when the operation is done: gradients stay as they
        are."""
        self.end_step()
        for part in self._parts:
            part.forget()


class Packed:
    """Small gradients that travel as one tensor; each has a view of it.

    A gradient that is its view needs no copy.
    """

    def __init__(
        self,
        pack: FlatBuffer[torch.Tensor],
        dtype: torch.dtype,
        make_request: MakeRequest,
        *,
        zero_copy: bool,
    ) -> None:
        self.members = list(pack.members)
        self._request = make_request(pack.name, [(pack.members[0].dtype, (pack.count,))], None)
        shared = _shared_tensor(pack.count, dtype) if zero_copy else None
        self._memory = torch.empty(pack.count, dtype=dtype) if shared is None else shared
        self._parameters = [member.parameter for member in pack.members]
        self._views = _views(self._memory, self._parameters)
        self._places = [view.data_ptr() for view in self._views]
        # Gradients that are converted on their way may be of any dtype.
        self._converts = any(p.dtype is not dtype for p in self._parameters)
        self._sent = False
        # Of the first member, for all; None once they have been moved.
        self._kept = None if shared is None or self._converts else PersistentGradientDetector()

    def send(self, batcher: RequestBatcher) -> None:
        """Starts the operation; when it has been started in this step, does nothing."""
        if self._sent:
            return
        first = self._parameters[0].grad
        if self._kept is not None and first is not None and self._kept.is_same(first):
            self._kept = None
            self._move_into_views()
        absent, views, gradients = [], [], []
        own = self._memory.dtype
        for parameter, view, place in zip(self._parameters, self._views, self._places, strict=True):
            gradient = parameter.grad
            if gradient is None or not parameter.requires_grad:
                if gradient is not None and gradient.data_ptr() == place:
                    gradient.data = gradient.detach().clone()
                absent.append(view)
                continue
            if gradient.layout is not torch.strided:
                gradient = dense(parameter)
            if gradient.dtype is not own and not self._converts:
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
        nbytes = memory.numel() * memory.element_size()
        address = memory.data_ptr()
        batcher.add(self._request, [address], nbytes, [memory])
        self._sent = True
        batcher.flush_when_due()

    def end_step(self) -> None:
        self._sent = False

    def receive(self) -> None:
        views, gradients = [], []
        for parameter, view, place in zip(self._parameters, self._views, self._places, strict=True):
            if not parameter.requires_grad:
                continue
            gradient = parameter.grad
            if gradient is None:
                gradient = parameter.grad = torch.empty_like(parameter)
            if gradient.layout is not torch.strided:
                continue  # received before an interruption, and sparse again
            if gradient.data_ptr() != place:
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
        for member in self.members:
            gradient = member.parameter.grad
            if gradient is not None:
                _check_dtype(gradient.dtype, member.dtype, member.name)


def _views(memory: torch.Tensor, parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    counts = [parameter.numel() for parameter in parameters]
    pieces = torch.split(memory, counts)
    return [piece.view(p.shape) for piece, p in zip(pieces, parameters, strict=True)]
