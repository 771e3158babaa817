"""Gradients in fewer bits on the way, with Horovod's names."""

from __future__ import annotations

from typing import Any

import torch

from hvdtune.errors import UsageError


class Compressor:
    """What `compression=` takes: a class with these two methods, static or of the class.

    Tensors are compressed before they are sent and decompressed after; what is combined is what
    `compress` returned, of any shape and dtype, the same on all ranks. Where the collective is part
    of an autograd graph, so are both methods.

    Attributes:
        wire_dtype: only of a compressor that keeps the shape and changes at most the dtype: what
            floating point tensors become, None for as they are. Only gradients of such a compressor
            can be packed together.
    """

    wire_dtype: torch.dtype | None

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """The tensor to send, and what `decompress` needs to undo it."""
        raise NotImplementedError("a compressor needs a method compress(tensor)")

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The received tensor in its original form."""
        raise NotImplementedError("a compressor needs a method decompress(tensor, ctx)")


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    wire_dtype = None

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _Cast(Compressor):
    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        if not tensor.dtype.is_floating_point:
            return tensor, None
        return tensor.to(cls.wire_dtype), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor if ctx is None else tensor.to(ctx)


class FP16Compressor(_Cast):
    """Sends floating point tensors as float16."""

    wire_dtype = torch.float16


class BF16Compressor(_Cast):
    """Sends floating point tensors as bfloat16: less precision, float32's range."""

    wire_dtype = torch.bfloat16


def compressor_of(compression: Any) -> Any:
    """What was given for `compression=`. Raises UsageError when it has not both methods."""
    methods = [getattr(compression, name, None) for name in ("compress", "decompress")]
    if not all(callable(method) for method in methods):
        raise UsageError(
            "compression is one of hvd.Compression, or a class with compress and decompress, not "
            f"{compression!r}"
        )
    return compression


class Compression:
    """The choices for `compression=`; a class of your own goes as well, see Compressor."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
