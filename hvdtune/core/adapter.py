"""What the core needs to know of a framework's tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Buffer:
    """Memory of one contiguous tensor in host memory, and who keeps it alive.

    `dtype` is a NumPy name or "bfloat16"; `shape` is in elements, () for a scalar.
    """

    address: int
    shape: tuple[int, ...]
    dtype: str
    owner: object


class Adapter(Protocol[T]):
    """A framework's tensors. One object per framework, without state."""

    def contiguous(self, tensor: T) -> T:
        """The tensor itself where its memory is contiguous, else a copy that is."""

    def buffer(self, tensor: T) -> Buffer:
        """Its memory. Raises UsageError for a dtype, layout or device the core cannot reduce."""

    def empty(self, shape: Sequence[int], like: T) -> T:
        """A new tensor with `like`'s dtype and device, not filled."""
