"""Gradients in fewer bits on the way, with Horovod's names."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hvdtune.errors import UsageError


class Compressor:
    """What `compression=` takes: a class with these two methods, static or of the class.

    Tensors are compressed before they are sent and decompressed after; what is combined is what
    `compress` returned, of any shape and dtype, the same on all ranks.
    """

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """The tensor to send, and what `decompress` needs to undo it."""
        raise NotImplementedError("a compressor needs a method compress(tensor)")

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """The received tensor in its original form."""
        raise NotImplementedError("a compressor needs a method decompress(tensor, ctx)")


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class _Cast(Compressor):
    wire_dtype: Any

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        if not tensor.dtype.is_floating:
            return tensor, None
        return tf.cast(tensor, cls.wire_dtype), tensor.dtype

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tf.cast(tensor, ctx)


class FP16Compressor(_Cast):
    """Sends floating point tensors as float16."""

    wire_dtype = tf.float16


class BF16Compressor(_Cast):
    """Sends floating point tensors as bfloat16: less precision, float32's range."""

    wire_dtype = tf.bfloat16


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
