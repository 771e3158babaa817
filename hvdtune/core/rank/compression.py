"""Compression of gradients in transit: the base of every framework's `hvd.Compression`."""

from __future__ import annotations

from typing import Any

from hvdtune.errors import UsageError


class Compressor:
    """A value of `compression=`: a class with these two methods, static or of the class.

    Tensors are compressed before they are sent and decompressed after. The collective combines the
    results of `compress`, of any shape and dtype, the same on all ranks. If the collective is part
    of an autograd graph, so are both methods.

    Attributes:
        wire_dtype: only of a compressor that keeps the shape and changes at most the dtype: what
            floating point tensors become, None for as they are. Only gradients of such a compressor
            can be packed together.
    """

    wire_dtype: Any

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

    wire_dtype = None

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


def compressor_of(compression: Any) -> Any:
    """Returns `compression`. Raises UsageError when one of the two methods is missing."""
    methods = [getattr(compression, name, None) for name in ("compress", "decompress")]
    if not all(callable(method) for method in methods):
        raise UsageError(
            "compression must be one of hvd.Compression, or a class with compress and decompress, "
            f"not {compression!r}"
        )
    return compression
