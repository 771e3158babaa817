"""Gradients in fewer bits on the way, with Horovod's names."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hvdtune.core.rank.compression import Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class _Cast(Compressor):
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


class Compression:
    """The choices for `compression=`; a class of your own goes as well, see Compressor."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
