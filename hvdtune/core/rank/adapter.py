"""The core's interface to a framework's tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class OnGpu:
    """A GPU, by its number in this process, and the stream that has made a tensor on it.

    `stream` is the address of the CUDA driver's handle, 0 for the GPU's default. `current_stream`
    returns the caller's stream, which has to wait for a result.
    """

    number: int
    stream: int
    current_stream: Callable[[], int] = field(compare=False)


@dataclass(frozen=True, eq=False)
class Buffer:
    """Memory of one contiguous tensor, and the object that keeps it alive.

    `dtype` is a name of NumPy or ml_dtypes; `shape` is in elements, () for a scalar. `gpu` is None
    for host memory.
    """

    address: int
    shape: tuple[int, ...]
    dtype: str
    owner: object
    gpu: OnGpu | None = None


Ready = Callable[[], object]  # returns when pending values have arrived


class Adapter(Protocol[T]):
    """A framework's tensors. One object per framework, without state.

    The core reads and writes host memory, and that of a GPU where the job has GPU operations. A
    tensor on another device travels through a host tensor each way.
    """

    def on_host(self) -> Adapter[T]:
        """Return the adapter that moves every tensor through host memory."""

    def copy_in(self, tensor: T) -> tuple[T, Ready | None]:
        """Return the values, contiguous where the core can read them, and when they are there.

        The tensor itself if possible, and None if the values are there at once. Raises UsageError
        unless it is a tensor.
        """

    def staging_output(self, output: T) -> T:
        """Return the tensor that the core fills for `output`: itself if possible."""

    def copy_out(self, staged: T, output: T) -> None:
        """Copies `staged` to `output`, in the order of the device's work."""

    def buffer(self, tensor: T) -> Buffer:
        """Describes its memory.

        Raises UsageError for a dtype, layout or device that the core cannot reduce.
        """

    def address(self, tensor: T) -> int:
        """Return the current address of its memory, which the script may have replaced."""

    def empty(self, shape: Sequence[int], like: T) -> T:
        """A new tensor with `like`'s dtype and device, not filled."""
