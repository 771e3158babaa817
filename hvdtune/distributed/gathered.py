"""Reductions that the core does not have: every rank gathers all contributions and folds them.

So a rank holds as many times the tensor as there are ranks for a while, and the time grows with
their number. The contributions are folded in rank order.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.distributed import ReduceOp

from hvdtune.errors import UsageError

if TYPE_CHECKING:
    from hvdtune.core import _native

_FOLDS: Final = {
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}
_COUNTS: Final = (
    1 << 32
)  # number of elements that a rank may contribute; its form is in the higher bits


def is_bitwise(kind: Any) -> bool:
    """Return whether it is one of torch's bitwise reductions."""
    return kind in _FOLDS


def require_bits(tensor: torch.Tensor, kind: Any) -> None:
    """Raises UsageError unless a bitwise reduction of the tensor has a meaning."""
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        raise UsageError(
            f"{kind} of {tensor.dtype} is not supported; use a tensor of integers or bool"
        )


def folded(rows: torch.Tensor, kind: Any) -> torch.Tensor:
    """Return the bitwise reduction of the rows, one from each rank."""
    return reduce(_FOLDS[kind], rows.unbind(0))


class SparseSum:
    """A sparse tensor (torch.sparse_coo) as three flat ones to gather, and the sum over all ranks.

    Args:
        tensor: this rank's contribution; the same shape and number of sparse dimensions on all
            ranks. The number of elements may differ.
        kind: of the reduction, SUM or AVG.

    Raises:
        UsageError: the reduction is another one.
    """

    def __init__(self, tensor: torch.Tensor, kind: Any) -> None:
        if kind not in (ReduceOp.SUM, ReduceOp.AVG):
            raise UsageError(
                f"{kind} of sparse tensors is not supported; use SUM, AVG, or to_dense()"
            )
        self._tensor = tensor
        self._is_average = kind == ReduceOp.AVG
        own = tensor.detach().coalesce()
        form = zlib.crc32(repr((tuple(own.shape), own.sparse_dim())).encode()) >> 1
        count = own.indices().shape[1]
        self.parts = [
            torch.tensor([form * _COUNTS + count]),
            own.indices().contiguous(),
            own.values().contiguous(),
        ]

    def sum_of(self, operation: _native.Operation, first: int, size: int) -> torch.Tensor:
        """Return the sum of the ranks' contributions, in rank order.

        Args:
            first: where the three parts are among the tensors of the operation.

        Raises:
            UsageError: the ranks' tensors differ in shape.
        """
        forms = _result(operation, first, torch.int64)
        own = int(self.parts[0]) // _COUNTS
        if forms.numel() != size or any(int(form) // _COUNTS != own for form in forms):
            raise UsageError("the ranks' sparse tensors differ in shape or in sparse dimensions")
        counts = [int(form) % _COUNTS for form in forms]
        dims, shape = self._tensor.sparse_dim(), self._tensor.shape
        indices = _result(operation, first + 1, torch.int64)
        values = _result(operation, first + 2, self._tensor.dtype)
        parts = [
            torch.sparse_coo_tensor(its.view(dims, -1), of_it, shape, check_invariants=False)
            for its, of_it in zip(
                _split(indices, [dims * count for count in counts]),
                _split(values.view(sum(counts), *shape[dims:]), counts),
                strict=True,
            )
        ]
        total = reduce(torch.add, parts).coalesce()
        return total / size if self._is_average else total


def _split(whole: torch.Tensor, sizes: Sequence[int]) -> tuple[torch.Tensor, ...]:
    return torch.split_with_sizes(whole, list(sizes))


def _result(operation: _native.Operation, index: int, dtype: torch.dtype) -> torch.Tensor:
    size = operation.result_bytes(index)
    made = torch.empty(size // dtype.itemsize, dtype=dtype)
    operation.copy_result(index, made.data_ptr(), size)
    return made
