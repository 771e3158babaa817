"""Giving every rank the root's parameters, optimizer state or Python objects."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from hvdtune.core import runtime
from hvdtune.core.collectives import synchronize
from hvdtune.core.process_sets import ProcessSet, global_process_set
from hvdtune.errors import UsageError
from hvdtune.torch.collectives import broadcast_, broadcast_async_


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[tuple[str, torch.Tensor]], root_rank: int
) -> None:
    """Overwrites every rank's parameters with the root's.

    Args:
        params: `model.state_dict()` or `model.named_parameters()`; the same names on all ranks.
            Values that are no tensors are left as they are.

    Raises:
        UsageError: params is neither.
    """
    rows = params.items() if isinstance(params, Mapping) else params
    try:
        pairs = [(name, tensor) for name, tensor in rows]
    except (TypeError, ValueError):
        raise UsageError(
            "broadcast_parameters takes model.state_dict() or model.named_parameters(), not "
            f"{params!r:.100}"
        ) from None
    targets = []
    for name, tensor in pairs:
        if not isinstance(tensor, torch.Tensor):
            continue
        whole = tensor.detach()
        packed = whole.contiguous()
        targets.append((whole, packed, broadcast_async_(packed, root_rank, f"parameters.{name}")))
    for whole, packed, handle in targets:
        synchronize(handle)
        if packed.data_ptr() != whole.data_ptr():
            whole.copy_(packed)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """The root's object on every rank.

    It travels as a pickle over connections that have proved the job's key. Raises whatever pickle
    raises for an object that cannot be sent.
    """
    label = name or "object"
    payload = torch.empty(0, dtype=torch.uint8)
    if runtime.rank() == root_rank:
        payload = torch.frombuffer(bytearray(pickle.dumps(obj)), dtype=torch.uint8)
    length = broadcast_(torch.tensor([len(payload)]), root_rank, f"{label}.length", process_set)
    if runtime.rank() != root_rank:
        payload = torch.empty(int(length.item()), dtype=torch.uint8)
    broadcast_(payload, root_rank, f"{label}.data", process_set)
    if runtime.rank() == root_rank:
        return obj
    return pickle.load(io.BytesIO(payload.numpy().tobytes()))


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int) -> None:
    """Gives every rank the root's optimizer state and hyperparameters.

    Tensors travel as tensors, everything else as one object. Ranks whose optimizer has no state yet
    receive the root's.

    Raises:
        UsageError: the optimizer is LBFGS, whose state is not per parameter.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UsageError("the state of torch.optim.LBFGS cannot be broadcast")
    tensors: list[torch.Tensor] = []
    outline = None
    if runtime.rank() == root_rank:
        outline = _outline(optimizer.state_dict(), tensors)
    outline = broadcast_object(outline, root_rank, "optimizer")
    if runtime.rank() != root_rank:
        _fill(outline, tensors)
    broadcast_parameters(((f"optimizer.{i}", t) for i, t in enumerate(tensors)), root_rank)
    if runtime.rank() != root_rank:
        optimizer.load_state_dict(_restore(outline, tensors))


class _Place:
    """Stands for the tensor of this index in an outline."""

    def __init__(self, index: int, tensor: torch.Tensor) -> None:
        self.index = index
        self.shape = tuple(tensor.shape)
        self.dtype = tensor.dtype


def _outline(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Place(len(tensors) - 1, value)
    if isinstance(value, dict):
        return {key: _outline(item, tensors) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_outline(item, tensors) for item in value)
    return value


def _fill(outline: Any, tensors: list[torch.Tensor]) -> None:
    if isinstance(outline, _Place):
        tensors.append(torch.empty(outline.shape, dtype=outline.dtype))
    elif isinstance(outline, dict):
        for item in outline.values():
            _fill(item, tensors)
    elif isinstance(outline, list | tuple):
        for item in outline:
            _fill(item, tensors)


def _restore(outline: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(outline, _Place):
        return tensors[outline.index]
    if isinstance(outline, dict):
        return {key: _restore(item, tensors) for key, item in outline.items()}
    if isinstance(outline, list | tuple):
        return type(outline)(_restore(item, tensors) for item in outline)
    return outline
