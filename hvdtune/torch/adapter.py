"""PyTorch tensors as the core sees them: address, shape and dtype, without a copy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch

from hvdtune.core.adapter import Buffer
from hvdtune.errors import UsageError

DTYPES: Final = {
    torch.bool: "bool",
    torch.uint8: "uint8",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
    torch.float64: "float64",
}


class TorchAdapter:
    """Implements hvdtune.core.adapter.Adapter for dense tensors in host memory."""

    def contiguous(self, tensor: torch.Tensor) -> torch.Tensor:
        if not isinstance(tensor, torch.Tensor):
            raise UsageError(f"a torch.Tensor is needed, not {type(tensor).__name__}")
        if tensor.layout is not torch.strided:
            raise UsageError(f"a tensor of layout {tensor.layout} cannot be reduced; make it dense")
        return tensor.detach().contiguous()

    def buffer(self, tensor: torch.Tensor) -> Buffer:
        if tensor.device.type != "cpu":
            raise UsageError(
                f"the tensor is on {tensor.device}; this version reduces tensors in host memory: "
                "use tensor.cpu()"
            )
        if tensor.layout is not torch.strided:
            raise UsageError(f"a tensor of layout {tensor.layout} cannot be reduced; make it dense")
        if tensor.dtype not in DTYPES:
            raise UsageError(f"{tensor.dtype} cannot be reduced; supported are {_supported()}")
        if not tensor.is_contiguous():
            raise UsageError("the tensor must be contiguous to be reduced in place")
        return Buffer(tensor.data_ptr(), tuple(tensor.shape), DTYPES[tensor.dtype], tensor)

    def empty(self, shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
        return torch.empty(tuple(shape), dtype=like.dtype, device=like.device)


def _supported() -> str:
    return ", ".join(DTYPES.values())


ADAPTER: Final = TorchAdapter()
