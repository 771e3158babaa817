"""Tensors of torch as the core's requests need them: flat, contiguous, of a supported dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import torch
from torch.distributed import ReduceOp

from hvdtune.core.rank import collectives
from hvdtune.core.rank.collectives import Reduction
from hvdtune.errors import UsageError
from hvdtune.torch.adapter import DTYPES, require_dense

_PARTS: Final = {
    torch.complex32: "float16",
    torch.complex64: "float32",
    torch.complex128: "float64",
}
# Reductions that combine the real and the imaginary parts separately.
_OF_PARTS: Final = (ReduceOp.SUM, ReduceOp.AVG)
_REDUCTIONS: Final = {
    ReduceOp.SUM: collectives.ReduceOp.SUM,
    ReduceOp.AVG: collectives.ReduceOp.AVERAGE,
    ReduceOp.MIN: collectives.ReduceOp.MIN,
    ReduceOp.MAX: collectives.ReduceOp.MAX,
    ReduceOp.PRODUCT: collectives.ReduceOp.PRODUCT,
    ReduceOp.PREMUL_SUM: collectives.ReduceOp.SUM,
}
_PLAIN: Final = {kind: Reduction(op) for kind, op in _REDUCTIONS.items()}


class Memory(NamedTuple):
    """A flat tensor: `owner` keeps its memory, `elements` of the core's `dtype`."""

    address: int
    dtype: str
    elements: int
    bytes: int
    owner: torch.UntypedStorage


def reduction_of(kind: Any, factor: Any) -> Reduction:
    """Return the core's reduction. Raises UsageError if it has none."""
    found = _PLAIN.get(kind)
    if found is None:
        raise UsageError(
            f"{kind} is not supported. Use SUM, AVG, MIN, MAX, PRODUCT, BAND, BOR or BXOR"
        )
    return found if factor is None else Reduction(found.op, float(factor))


def kind_and_factor(op: Any) -> tuple[Any, Any]:
    """Return the kind of a reduction, one of ReduceOp's constants, and the factor, or tensor of one
    element, of PREMUL_SUM."""
    whole: Any = op if isinstance(op, ReduceOp) else ReduceOp(op)
    kind, factor = whole.__getstate__()
    return kind, factor


def moved(tensor: torch.Tensor) -> Memory:
    """Return the memory of a contiguous tensor whose elements are only moved."""
    name, count, size = DTYPES.get(tensor.dtype), tensor.numel(), tensor.nbytes
    if name is None:
        name, count = "uint8", size
    return Memory(tensor.data_ptr(), name, count, size, tensor.untyped_storage())


def moved_per_element(dtype: torch.dtype) -> int:
    """Return the number of elements of `moved` for each of the tensor."""
    return 1 if dtype in DTYPES else dtype.itemsize


def reduced(tensor: torch.Tensor, kind: Any) -> Memory:
    """Return the memory of a contiguous tensor to reduce. Raises UsageError if it cannot be."""
    name = DTYPES.get(tensor.dtype)
    count, size = tensor.numel(), tensor.nbytes
    if name is not None:
        return Memory(tensor.data_ptr(), name, count, size, tensor.untyped_storage())
    parts = _PARTS.get(tensor.dtype)
    if parts is None or kind not in _OF_PARTS:
        raise UsageError(f"{kind} of {tensor.dtype} is not supported")
    return Memory(tensor.data_ptr(), parts, 2 * count, size, tensor.untyped_storage())


def is_ready(tensor: torch.Tensor) -> bool:
    """Return whether the core can use its memory, so that `as_input` would not copy it."""
    return tensor.is_cpu and tensor.layout is torch.strided and _is_plain(tensor)


def as_input(tensor: torch.Tensor) -> torch.Tensor:
    """Return its elements, contiguous. Raises UsageError unless it is dense and on the CPU."""
    require_cpu(tensor)
    if _is_plain(tensor):
        return tensor.detach()
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def as_output(tensor: torch.Tensor) -> torch.Tensor:
    """Return itself if it is contiguous, else one to copy to it. Raises as `as_input` does."""
    require_cpu(tensor)
    if _is_plain(tensor):
        return tensor.detach()
    return torch.empty_like(tensor, memory_format=_ROW_MAJOR)


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


_ROW_MAJOR: Final = torch.contiguous_format


def copy_back(staged: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> None:
    """Copies what `as_output` has made back to its tensor."""
    for source, tensor in zip(staged, tensors, strict=True):
        if source.data_ptr() != tensor.data_ptr() or not tensor.is_contiguous():
            tensor.detach().copy_(source.view(tensor.shape))


def require_same_memory(tensors: Sequence[torch.Tensor], memories: Sequence[Memory]) -> None:
    """Raises UsageError if a tensor was given other memory (`data`, `set_`) than it had."""
    for tensor, memory in zip(tensors, memories, strict=True):
        if tensor.data_ptr() != memory.address:
            raise UsageError(
                "The memory of a tensor was replaced while it was in flight, so the result is "
                "missing"
            )


def require_cpu(tensor: torch.Tensor) -> None:
    """Raises UsageError unless it is a dense tensor on the CPU."""
    require_dense(tensor)
    if not tensor.is_cpu:
        raise UsageError(
            f"The backend hvdtune takes tensors on the CPU, not on {tensor.device}. Use "
            "tensor.cpu()"
        )
