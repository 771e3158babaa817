"""Giving every rank the root's parameters and optimizer state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from hvdtune.core.gradients.keras_variables import is_generator, state_on_rank
from hvdtune.core.rank import runtime
from hvdtune.core.rank.collective_spec import ALLREDUCE
from hvdtune.core.rank.collectives import ReduceOp, Reduction, Scope, complete, synchronize
from hvdtune.core.rank.objects import broadcast_object
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.errors import UsageError
from hvdtune.torch.adapter import ADAPTER, DTYPES
from hvdtune.torch.collectives import broadcast_async_


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Overwrites every rank's parameters with the root's.

    Tensors may be of any dtype and layout in memory. Gradients are not touched. The generators of
    layers of Keras on torch get seeds of this rank's own; torch's own generators are not sent.

    Args:
        params: `model.state_dict()`, `model.named_parameters()` or a list of tensors: the same
            names, or the same number in the same order, on all ranks. Other values are ignored.
        root_rank: a rank of the job that belongs to the process set.

    Raises:
        UsageError: params has another type.
    """
    targets = []
    with Scope():
        for name, tensor in _named(params):
            whole = tensor.detach()
            packed = whole.resolve_conj().resolve_neg().contiguous()
            sent = packed if packed.dtype in DTYPES else packed.reshape(-1).view(torch.uint8)
            handle = broadcast_async_(sent, root_rank, f"parameters.{name}", process_set)
            targets.append((name, whole, packed, handle))
        for _, whole, packed, handle in targets:
            synchronize(handle)
            if packed.data_ptr() != whole.data_ptr():
                whole.copy_(packed)
    if runtime.rank() != root_rank:
        _reseed([(name, whole) for name, whole, *_ in targets if is_generator(name)])


def _reseed(generators: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Give generators of Keras's layers, which have the root's state, seeds of this rank's own."""
    # Keras's state_dict has a tensor under two names.
    for name, state in {state.data_ptr(): (name, state) for name, state in generators}.values():
        own = state_on_rank(name, state.cpu().numpy(), runtime.rank())
        state.copy_(torch.from_numpy(own))


def _named(params: Mapping[str, Any] | Iterable[Any]) -> list[tuple[str, torch.Tensor]]:
    rows = params.items() if isinstance(params, Mapping) else params
    pairs: list[tuple[str, Any]] = []
    known = isinstance(rows, Iterable) and not isinstance(rows, torch.Tensor)
    for i, row in enumerate(rows if known else ()):
        pairs.append(row if isinstance(row, tuple) else (f"noname.{i}", row))
        known &= isinstance(row, tuple | torch.Tensor | None) and len(pairs[-1]) == 2
    if not known:
        raise UsageError(
            "broadcast_parameters takes model.state_dict() or model.named_parameters(), not "
            f"{params!r:.100}"
        )
    return [(name, tensor) for name, tensor in pairs if isinstance(tensor, torch.Tensor)]


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: Any = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Gives every rank the root's optimizer state and hyperparameters, exactly as they are there.

    Ranks whose optimizer has no state yet receive the root's, ranks with state the root does not
    have lose theirs. Parameters are not touched, nor are gradients; but where an optimizer had no
    state, parameters that have no gradient have one of zeros afterwards, as with Horovod. Tensors
    travel as tensors and stay on the device of their parameter, everything else as one object.

    Args:
        optimizer: any of torch.optim but LBFGS, or one like them, wrapped by DistributedOptimizer
            or not; with as many parameters in as many groups on all ranks.
        root_rank: a rank of the job that belongs to the process set.
        model: not needed; Horovod has it.

    Raises:
        UsageError: the optimizer is LBFGS, whose state is not per parameter, or its groups are not
            those of the root.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(
            "broadcast_optimizer_state takes the optimizer itself, a torch.optim.Optimizer, not "
            f"{type(optimizer).__name__}"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise UsageError(
            "the state of torch.optim.LBFGS cannot be broadcast because it is not per "
            "parameter; call broadcast_parameters before its first step"
        )
    is_root, is_fresh = runtime.rank() == root_rank, not optimizer.state
    tensors: list[torch.Tensor] = []
    outline = _outline(optimizer, tensors) if is_root else None
    outline = broadcast_object(outline, root_rank, "optimizer", process_set)
    _check_groups(optimizer, outline, root_rank, process_set)
    if not is_root:
        outline = _with_room(outline, optimizer, tensors)
    rows = ((f"optimizer.{i}", tensor) for i, tensor in enumerate(tensors))
    broadcast_parameters(rows, root_rank, process_set)
    if not is_root:
        _adopt(optimizer, outline)
    if is_fresh:
        _add_zero_gradients(optimizer)


def _add_zero_gradients(optimizer: torch.optim.Optimizer) -> None:
    for parameter in _parameters(optimizer):
        has_shape = not torch.nn.parameter.is_lazy(parameter)
        if has_shape and parameter.requires_grad and parameter.grad is None:
            zeros = torch.zeros_like(parameter)
            takes_sparse = isinstance(optimizer, torch.optim.SparseAdam) and zeros.dim() > 0
            parameter.grad = zeros.to_sparse(1) if takes_sparse else zeros


@dataclass
class _TensorOutline:
    """A tensor's place in an outline."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    beside_parameter: bool  # on its device; else in host memory


# The groups' values without "params", and the state of each parameter that has one, by its number.
_Outline = tuple[list[dict[str, Any]], list[int], dict[int, Any]]


def _outline(optimizer: torch.optim.Optimizer, tensors: list[torch.Tensor]) -> _Outline:
    def outlined(value: Any, parameter: torch.Tensor) -> Any:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            beside = value.device == parameter.device
            return _TensorOutline(tuple(value.shape), value.dtype, beside)
        return _mapped(value, lambda item: outlined(item, parameter))

    groups = [outlined(_hyperparameters(g), _first(g)) for g in optimizer.param_groups]
    states = {
        number: outlined(optimizer.state[parameter], parameter)
        for number, parameter in enumerate(_parameters(optimizer))
        if parameter in optimizer.state
    }
    return groups, _counts(optimizer), states


def _with_room(
    outline: _Outline, optimizer: torch.optim.Optimizer, tensors: list[torch.Tensor]
) -> _Outline:
    def filled(value: Any, parameter: torch.Tensor) -> Any:
        if isinstance(value, _TensorOutline):
            tensors.append(_room(value, parameter))
            return tensors[-1]
        return _mapped(value, lambda item: filled(item, parameter))

    groups, counts, states = outline
    firsts = map(_first, optimizer.param_groups)
    groups = [filled(group, first) for group, first in zip(groups, firsts, strict=True)]
    parameters = _parameters(optimizer)
    return groups, counts, {n: filled(state, parameters[n]) for n, state in states.items()}


def _room(place: _TensorOutline, parameter: torch.Tensor) -> torch.Tensor:
    device = parameter.device if place.beside_parameter else torch.device("cpu")
    if place.shape == tuple(parameter.shape):
        return torch.empty_like(parameter, dtype=place.dtype, device=device, requires_grad=False)
    return torch.empty(place.shape, dtype=place.dtype, device=device)


def _mapped(value: Any, function: Any) -> Any:
    if type(value) is dict:
        return {key: function(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(function(item) for item in value)
    return value


def _hyperparameters(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}


def _first(group: dict[str, Any]) -> torch.Tensor:
    return group["params"][0] if group["params"] else torch.empty(0)


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _counts(optimizer: torch.optim.Optimizer) -> list[int]:
    return [len(group["params"]) for group in optimizer.param_groups]


def _check_groups(
    optimizer: torch.optim.Optimizer, outline: _Outline, root_rank: int, process_set: ProcessSet
) -> None:
    """Check on all ranks alike, so that none waits for one that has refused."""
    counts, wanted = _counts(optimizer), outline[1]
    own = runtime.rank() if counts != wanted else -1
    largest = Reduction(ReduceOp.MAX)
    handle = ALLREDUCE.start(
        ADAPTER, [torch.tensor([own])], largest, "optimizer.groups", process_set
    )
    odd = int(complete(handle))
    if odd < 0:
        return
    its = f"groups of sizes {counts}" if own == odd else "different ones"
    raise UsageError(
        f"the optimizer of root rank {root_rank} has parameter groups of sizes {wanted}, that of "
        f"rank {odd} has {its}"
    )


def _adopt(optimizer: torch.optim.Optimizer, outline: _Outline) -> None:
    groups, _, states = outline
    for group, values in zip(optimizer.param_groups, groups, strict=True):
        group.update(values)
    for number, parameter in enumerate(_parameters(optimizer)):
        if number in states:
            optimizer.state[parameter] = states[number]
        else:
            optimizer.state.pop(parameter, None)
