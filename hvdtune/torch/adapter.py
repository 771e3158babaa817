"""PyTorch tensors as the core sees them: address, shape and dtype, without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import torch

from hvdtune.core.rank.adapter import Buffer, OnGpu, Ready
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import UnsupportedError, UsageError

DTYPES: Final = {
    torch.bool: "bool",
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.uint16: "uint16",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}
"""What can be reduced, and the core's names."""

_MOVED: Final = {
    torch.float8_e4m3fn: "float8_e4m3fn",
    torch.float8_e5m2: "float8_e5m2",
    torch.float8_e4m3fnuz: "float8_e4m3fnuz",
    torch.float8_e5m2fnuz: "float8_e5m2fnuz",
}
_SENT: Final = {**DTYPES, **_MOVED}


class TorchAdapter:
    """Implements hvdtune.core.rank.adapter.Adapter for dense tensors in host or CUDA memory.

    In a job with GPU operations the core carries tensors in CUDA memory where they are, else they
    travel through pinned host memory.
    """

    def __init__(self, *, stages: bool = False) -> None:
        """`stages`: tensors in CUDA memory travel through host memory in any job."""
        self._stages = stages

    def _is_staged(self, tensor: torch.Tensor) -> bool:
        if not tensor.is_cuda:
            return False
        return self._stages or not PROCESS.has_gpu_operations()

    def on_host(self) -> TorchAdapter:
        return _STAGING

    def copy_in(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Ready | None]:
        require_dense(tensor)
        if self._is_staged(tensor):
            host = self.staging_output(tensor)
            return host, copy_to_host(tensor.detach(), host)
        return tensor.detach().resolve_neg().contiguous(), None

    def staging_output(self, output: torch.Tensor) -> torch.Tensor:
        if self._is_staged(output):
            return torch.empty(output.shape, dtype=output.dtype, pin_memory=True)
        if output.is_cuda and not output.is_contiguous():
            return torch.empty(output.shape, dtype=output.dtype, device=output.device)
        return output

    def copy_out(self, staged: torch.Tensor, output: torch.Tensor) -> None:
        if output.is_cuda and staged.data_ptr() != output.data_ptr():
            output.detach().copy_(staged, non_blocking=True)

    def buffer(self, tensor: torch.Tensor) -> Buffer:
        if tensor.device.type != "cpu" and (not tensor.is_cuda or self._is_staged(tensor)):
            raise UsageError(
                f"cannot reduce a tensor on {tensor.device}, only in host memory or on a CUDA "
                "device: use tensor.cpu()"
            )
        require_dense(tensor)
        if tensor.dtype not in _SENT:
            names = ", ".join(_SENT.values())
            raise UsageError(f"{tensor.dtype} cannot be sent; supported are {names}")
        if not tensor.is_contiguous():
            raise UsageError("the tensor must be contiguous to be reduced in place")
        if tensor.is_neg():  # its memory holds the values with the other sign
            raise UsageError(
                "the tensor is a lazily negated view, such as x.conj().imag, and cannot be "
                "reduced in place: use tensor.resolve_neg()"
            )
        gpu = _gpu_of(tensor) if tensor.is_cuda else None
        return Buffer(tensor.data_ptr(), tuple(tensor.shape), _SENT[tensor.dtype], tensor, gpu)

    def address(self, tensor: torch.Tensor) -> int:
        return tensor.data_ptr()

    def empty(self, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        return torch.empty(tuple(shape), dtype=like.dtype, device=like.device)


def require_dense(tensor: torch.Tensor) -> None:
    """Raise UsageError unless it is a tensor, UnsupportedError unless that is dense."""
    if not isinstance(tensor, torch.Tensor):
        raise UsageError(f"a torch.Tensor is needed, not {type(tensor).__name__}")
    if tensor.layout is not torch.strided:
        raise UnsupportedError(
            f"Tensors of layout {tensor.layout} are not supported here. Use tensor.to_dense()."
        )


# The address of a GPU's current stream, for which torch.cuda.current_stream makes two objects.
_current_stream: Final = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def _gpu_of(tensor: torch.Tensor) -> OnGpu:
    device = tensor.device

    def current() -> int:
        if _current_stream is None:
            return int(torch.cuda.current_stream(device).cuda_stream)
        return int(_current_stream(device.index))

    return OnGpu(device.index, current(), current)


_side_streams: dict[torch.device, torch.cuda.Stream] = {}


def copy_to_host(tensor: torch.Tensor, host: torch.Tensor) -> Ready:
    """Copies a CUDA tensor into pinned host memory, while later work on its stream runs.

    Returns a function that waits for the copy. The copy begins when the current stream
    has made the tensor.
    """
    current = torch.cuda.current_stream(tensor.device)
    if tensor.device not in _side_streams:
        _side_streams[tensor.device] = cast(Any, torch.cuda.Stream)(tensor.device)
    side = _side_streams[tensor.device]
    side.wait_stream(current)
    with torch.cuda.stream(side):
        host.copy_(tensor, non_blocking=True)
    tensor.record_stream(side)  # its memory must not be used again before
    return cast(Ready, side.record_event().synchronize)


PROCESS.has_gpu_tensors = True
ADAPTER: Final = TorchAdapter()
_STAGING: Final = TorchAdapter(stages=True)
