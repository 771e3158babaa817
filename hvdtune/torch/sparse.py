"""Sparse tensors: their rows and where these belong are gathered from all ranks."""

from __future__ import annotations

import contextlib
from typing import cast

import torch

from hvdtune.core.gradients.plan import Gradient
from hvdtune.core.gradients.request_batcher import RequestBatcher
from hvdtune.core.gradients.sparsity import DENSE, UNKNOWN
from hvdtune.core.rank import collectives, handles
from hvdtune.core.rank.collectives import ReduceOp, synchronize
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.errors import HvdtuneError, UnsupportedError, UsageError
from hvdtune.torch.adapter import ADAPTER
from hvdtune.torch.gradients import InFlightGradient


class SparseHandle(int):
    """A handle for `poll` and `synchronize` which can also be called, as Horovod's."""

    def __call__(self) -> torch.Tensor:
        """Waits and returns the combined tensor; the handle ends."""
        return cast(torch.Tensor, synchronize(self))


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str | None,
    op: ReduceOp | int,
    process_set: ProcessSet = global_process_set,
) -> SparseHandle:
    """Starts combining a sparse tensor over all ranks into a new one, which is not coalesced.

    Args:
        tensor: of layout torch.sparse_coo, of the same shape and number of sparse dimensions on all
            ranks; the number of elements may differ.
        op: Average, or Sum.

    Returns:
        A handle: `synchronize(handle)` or `handle()` returns the tensor.

    Raises:
        UnsupportedError: another operation.
        UsageError: the tensor is not sparse.
    """
    if op not in (ReduceOp.AVERAGE, ReduceOp.SUM):
        raise UnsupportedError(
            f"op={getattr(op, 'name', op)} does not support sparse tensors. Use hvd.Average or "
            "hvd.Sum, or tensor.to_dense()."
        )
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.sparse_coo:
        raise UsageError("sparse_allreduce_async takes a tensor of layout torch.sparse_coo")
    return SparseHandle(_start(tensor, name, op, process_set))


def _start(
    tensor: torch.Tensor, name: str | None, op: ReduceOp | int, process_set: ProcessSet
) -> int:
    # Repeated rows are added up here: each would be sent, and added up on every rank.
    own = tensor.detach().coalesce()
    shape, ranks = own.shape, process_set.size()

    def joined(parts: list[torch.Tensor]) -> torch.Tensor:
        indices, values = parts
        if op == ReduceOp.AVERAGE:
            values = values / ranks
        return torch.sparse_coo_tensor(indices.t(), values, shape, check_invariants=False)

    # One row of indices for each of values, because gathering joins rows.
    parts = [own.indices().t(), own.values()]
    return collectives.allgather_async(ADAPTER, parts, name, process_set, present=joined)


def layout_of(parameter: torch.Tensor) -> int:
    """The layout of the parameter's gradient, by the codes of SparsityTable."""
    gradient = parameter.grad
    if gradient is None:
        return UNKNOWN
    if gradient.layout is torch.strided:
        return DENSE
    return _as_coo(gradient).sparse_dim()


def _as_coo(gradient: torch.Tensor) -> torch.Tensor:
    return gradient if gradient.layout is torch.sparse_coo else gradient.to_sparse()


def _without_rows(parameter: torch.Tensor, dims: int) -> torch.Tensor:
    indices = torch.empty((dims, 0), dtype=torch.int64, device=parameter.device)
    values = torch.empty((0, *parameter.shape[dims:]), dtype=parameter.dtype, device=indices.device)
    return torch.sparse_coo_tensor(indices, values, parameter.shape, check_invariants=False)


class Sparse:
    """A gradient that travels by its rows; a rank without one sends none.

    Args:
        dims: how many dimensions of the gradient are indexed, the same on all ranks.
    """

    def __init__(
        self, row: Gradient[torch.Tensor], dims: int, op: ReduceOp, process_set: ProcessSet
    ) -> None:
        self.members = [row]
        self.sent = False
        self._dims = dims
        self._op = op
        self._process_set = process_set
        self._in_flight: InFlightGradient | None = None
        self._handle: int | None = None
        self._result: torch.Tensor | None = None

    def __del__(self) -> None:
        if self._handle is not None:
            handles.abandon_handles([self._handle])

    def is_complete(self, parameter: torch.Tensor) -> bool:
        return True

    def is_trained(self) -> bool:
        return self.members[0].parameter.requires_grad

    def send(self, batcher: RequestBatcher) -> None:
        row = self.members[0]
        gradient = self._present(row.parameter)
        self._in_flight = InFlightGradient(row, gradient)
        self._handle = _start(gradient, row.name, self._op, self._process_set)
        self.sent = True

    def _present(self, parameter: torch.Tensor) -> torch.Tensor:
        gradient = parameter.grad
        if gradient is None:
            gradient = _without_rows(parameter, self._dims)
        elif gradient.layout is torch.strided:
            gradient = gradient.to_sparse(self._dims)
        else:
            gradient = _as_coo(gradient)
        if gradient.sparse_dim() != self._dims:
            gradient = gradient.to_dense().to_sparse(self._dims)
        parameter.grad = gradient
        return gradient

    def forget(self) -> None:
        """Ends the step without `receive`: waits, and leaves the gradient as it is."""
        handle = self._handle
        self.end_step()
        if handle is not None:
            with contextlib.suppress(HvdtuneError):  # it may have ended
                handles.complete(handle)

    def end_step(self) -> None:
        self._handle = self._in_flight = self._result = None
        self.sent = False

    def receive(self) -> None:
        if self._handle is not None and self._result is None:
            self._result = synchronize(self._handle)
        if self._in_flight is not None and self._result is not None:
            self._in_flight.check()
            self._in_flight.row.parameter.grad = self._result
            self._in_flight = None
