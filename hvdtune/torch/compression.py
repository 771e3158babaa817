"""Gradients in fewer bits on the way, with Horovod's names."""

from __future__ import annotations

import torch


class Compressor:
    """Sends tensors as they are; the base of the others."""

    wire_dtype: torch.dtype | None = None

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.dtype | None]:
        """The tensor to send, and what `decompress` needs to undo it."""
        if cls.wire_dtype is None or not tensor.dtype.is_floating_point:
            return tensor, None
        return tensor.to(cls.wire_dtype), tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, context: torch.dtype | None) -> torch.Tensor:
        """The received tensor in its original dtype."""
        return tensor if context is None else tensor.to(context)


class FP16Compressor(Compressor):
    """Sends floating point tensors as float16."""

    wire_dtype = torch.float16


class BF16Compressor(Compressor):
    """Sends floating point tensors as bfloat16: less precision, float32's range."""

    wire_dtype = torch.bfloat16


class Compression:
    """The choices for `compression=`."""

    none = Compressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
