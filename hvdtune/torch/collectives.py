"""Collectives on PyTorch tensors, by Horovod's names.

Those that return a new tensor at once let gradients flow, see hvdtune.torch.autograd; no gradient
flows through those that work in place or in the background. Working in place is allowed on a
parameter, too, as broadcast_ needs it: autograd takes note of the change and refuses a backward
pass that needs the former values.

`name` identifies an operation across ranks; `*_async` functions return a handle for `poll` and
`synchronize`; a trailing underscore means in place; grouped functions carry out a list of tensors
as one operation; `process_set` selects the ranks. See hvdtune.core.rank.collectives for the
errors.

Until `synchronize` a tensor may be dropped. `synchronize` refuses one that was given other memory
(`data`, `set_`). Do not resize it or its storage: that frees memory which the core uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import torch

from hvdtune.core.rank import collectives
from hvdtune.core.rank.basics import Average
from hvdtune.core.rank.collective_spec import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BROADCAST,
    COLLECTIVES,
    REDUCESCATTER,
    CollectiveSpec,
    form_of,
)
from hvdtune.core.rank.collectives import (
    ReduceOp,
    Reduction,
    handle_average_backwards_compatibility,
)
from hvdtune.core.rank.compression import Compressor
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.core.rank.variants import Function
from hvdtune.errors import UsageError
from hvdtune.torch.adapter import ADAPTER
from hvdtune.torch.autograd import run, waited
from hvdtune.torch.compression import Compression

Tensors = Sequence[torch.Tensor]

__all__ = [
    "join",
    *(name for spec in COLLECTIVES for name in spec.names("", "_", "_async", "_async_")),
]


def reduction_of(
    average: bool | None, op: ReduceOp | int | None, prescale: float, postscale: float
) -> Reduction:
    """The reduction that a public function was asked for; a warning about `average` points at the
    caller of the function that calls this one."""
    return Reduction(handle_average_backwards_compatibility(op, average), prescale, postscale)


def listed(tensors: Tensors) -> list[torch.Tensor]:
    """The tensors of a grouped function. Raises UsageError unless they are a list of tensors."""
    if isinstance(tensors, torch.Tensor) or not isinstance(tensors, Sequence) or not tensors:
        raise UsageError("grouped functions take a list of at least one tensor")
    return list(tensors)


def start_in_place(
    spec: CollectiveSpec,
    tensors: Tensors,
    how: Any,
    name: str | None,
    process_set: ProcessSet,
    grouped: bool = False,
) -> int:
    """Starts a collective that overwrites the tensors, which autograd takes note of."""
    handle = spec.start(ADAPTER, tensors, how, name, process_set, grouped, in_place=True)
    for tensor in tensors:
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)
    return handle


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Combines the tensor over all ranks; returns a new tensor of the same shape and dtype.

    Args:
        average: superseded by `op`: True is hvd.Average, False hvd.Sum; warns.
        op: hvd.Average (the default), Sum, Min, Max, Product or Adasum; a gradient flows through
            the first two.
        prescale_factor: multiplies the tensor before it is combined.
        postscale_factor: multiplies the result.
    """
    how = reduction_of(average, op, prescale_factor, postscale_factor)
    result = waited(ALLREDUCE, [tensor], how, name, process_set, False, compression)
    return cast(torch.Tensor, result)


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Concatenates the ranks' tensors along the first dimension, in rank order."""
    return cast(torch.Tensor, waited(ALLGATHER, [tensor], None, name, process_set))


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Returns the root's tensor as a new tensor on every rank; `root_rank` is a rank of the job."""
    return cast(torch.Tensor, waited(BROADCAST, [tensor], root_rank, name, process_set))


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Sends the first `splits[0]` rows to the first rank, the next `splits[1]` to the second ...

    Args:
        splits: rows for each rank of the process set, integers; None divides evenly.

    Returns:
        What the ranks sent here, in rank order; with `splits` also how many rows came from each, an
        int32 tensor.
    """
    output, received = run(ALLTOALL, [tensor], _listed_rows(splits), name, process_set)
    return output if splits is None else (output, received)


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts what alltoall does; returns a handle for `poll` and `synchronize`."""

    def present(output: torch.Tensor, received: list[int]) -> object:
        return output if splits is None else (output, torch.tensor(received, dtype=torch.int32))

    rows = _listed_rows(splits)
    return collectives.alltoall_async(ADAPTER, tensor, rows, name, process_set, present)


def _listed_rows(splits: torch.Tensor | Sequence[int] | None) -> Any:
    return splits.tolist() if isinstance(splits, torch.Tensor) else splits


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Combines the tensor over all ranks and returns this rank's part of its rows.

    Rows are divided evenly; where they do not divide, the first ranks get one more. Arguments are
    allreduce's; there is no Adasum.
    """
    how = reduction_of(None, op, prescale_factor, postscale_factor)
    result = waited(REDUCESCATTER, [tensor], how, name, process_set, False, compression)
    return cast(torch.Tensor, result)


_STARTED_IN_PLACE: Final = "start_in_place({spec}, {tensors}, {how}, name, process_set, {grouped})"
_FORMS: Final = {
    "": "waited({spec}, {tensors}, {how}, name, process_set, {grouped}, {compression})",
    "_async": "{spec}.start(ADAPTER, {tensors}, {how}, name, process_set, {grouped})",
    "_async_": _STARTED_IN_PLACE,
    "_": f"collectives.complete({_STARTED_IN_PLACE})",
}


def _form(name: str, plain: Function, spec: CollectiveSpec) -> Function:
    return form_of(plain, spec, name, _FORMS[name.partition(spec.name)[2]])


allreduce_ = _form("allreduce_", allreduce, ALLREDUCE)
allreduce_async = _form("allreduce_async", allreduce, ALLREDUCE)
allreduce_async_ = _form("allreduce_async_", allreduce, ALLREDUCE)
grouped_allreduce = _form("grouped_allreduce", allreduce, ALLREDUCE)
grouped_allreduce_ = _form("grouped_allreduce_", allreduce, ALLREDUCE)
grouped_allreduce_async = _form("grouped_allreduce_async", allreduce, ALLREDUCE)
grouped_allreduce_async_ = _form("grouped_allreduce_async_", allreduce, ALLREDUCE)
allgather_async = _form("allgather_async", allgather, ALLGATHER)
grouped_allgather = _form("grouped_allgather", allgather, ALLGATHER)
grouped_allgather_async = _form("grouped_allgather_async", allgather, ALLGATHER)
broadcast_ = _form("broadcast_", broadcast, BROADCAST)
broadcast_async = _form("broadcast_async", broadcast, BROADCAST)
broadcast_async_ = _form("broadcast_async_", broadcast, BROADCAST)
reducescatter_async = _form("reducescatter_async", reducescatter, REDUCESCATTER)
grouped_reducescatter = _form("grouped_reducescatter", reducescatter, REDUCESCATTER)
grouped_reducescatter_async = _form("grouped_reducescatter_async", reducescatter, REDUCESCATTER)


def join(device: int = -1, process_set: ProcessSet = global_process_set) -> int:
    """Announces that this rank has no more data; returns the last rank to join, when all have.

    Meanwhile it contributes neutral values to the other ranks' operations; see
    hvdtune.core.rank.collectives.join.

    Args:
        device: does nothing: the core works in host memory.
    """
    return collectives.join(process_set)
