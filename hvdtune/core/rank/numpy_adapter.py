"""Arrays of NumPy as the core sees them, for what no framework has tensors of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from hvdtune.core.rank.adapter import Buffer, Ready
from hvdtune.errors import UsageError

DTYPES: Final = (
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
)
"""What can be sent, by the names of NumPy and ml_dtypes. The core reduces all but float8."""

Array = np.ndarray[Any, Any]


class ArrayAdapter:
    """Implements hvdtune.core.rank.adapter.Adapter for arrays, which are in host memory."""

    def on_host(self) -> ArrayAdapter:
        return self

    def copy_in(self, tensor: Array) -> tuple[Array, Ready | None]:
        return np.ascontiguousarray(tensor).reshape(tensor.shape), None

    def staging_output(self, output: Array) -> Array:
        return output

    def copy_out(self, staged: Array, output: Array) -> None:
        pass

    def buffer(self, tensor: Array) -> Buffer:
        require_dtype(tensor.dtype.name)
        return Buffer(tensor.ctypes.data, tuple(tensor.shape), tensor.dtype.name, tensor)

    def address(self, tensor: Array) -> int:
        return tensor.ctypes.data

    def empty(self, shape: Sequence[int], like: Array) -> Array:
        return np.empty(tuple(shape), like.dtype)


def require_dtype(name: str) -> None:
    """Raises UsageError for what cannot be sent."""
    if name not in DTYPES:
        raise UsageError(f"{name} cannot be sent; supported are {', '.join(DTYPES)}")


ADAPTER: Final = ArrayAdapter()
