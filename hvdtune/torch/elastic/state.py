"""The state of a training with PyTorch: models, optimizers, samplers and plain objects."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import torch

from hvdtune.core.elastic.packing import TensorKind, register_tensors
from hvdtune.core.elastic.randomness import dealt_seed
from hvdtune.core.elastic.state import ObjectState, check_free, check_names
from hvdtune.core.rank import runtime
from hvdtune.core.rank.objects import broadcast_object
from hvdtune.errors import UsageError
from hvdtune.torch.broadcast import broadcast_optimizer_state, broadcast_parameters
from hvdtune.torch.elastic.sampler import ElasticSampler


class StateHandler:
    """Saves, restores and sends one value of a TorchState; a base to derive from."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def save(self) -> None:
        """Keeps a copy of the value."""
        raise NotImplementedError

    def restore(self) -> None:
        """Gives the value what was kept last."""
        raise NotImplementedError

    def sync(self) -> None:
        """Gives the value rank 0's content. The TorchState saves all when all are sent."""
        raise NotImplementedError

    def reset(self) -> None:
        """Fits the value to a new generation."""

    def snapshot(self) -> Any:
        """Return the last saved state, for a file."""
        raise UsageError(
            f"{type(self).__name__} has no snapshot(), which commit(to_disk=...) needs"
        )

    def adopt(self, snapshot: Any) -> None:
        """Goes to a snapshot as if it had been saved last."""
        raise UsageError(f"{type(self).__name__} has no adopt(), which resume() needs")

    def set_value(self, value: Any) -> None:
        """Handles another value from now on, and keeps it."""
        self.value = value
        self.save()


class _StateDictHandler(StateHandler):
    """Keeps what `state_dict` returns. What it sends is that, as a pickle."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self._saved: Any = None
        self.save()

    def save(self) -> None:
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self) -> None:
        self.value.load_state_dict(copy.deepcopy(self._saved))

    def sync(self) -> None:
        self.value.load_state_dict(broadcast_object(self.value.state_dict(), 0))

    def snapshot(self) -> Any:
        return self._saved

    def adopt(self, snapshot: Any) -> None:
        self._saved = snapshot
        self.restore()


class ModelStateHandler(_StateDictHandler):
    """A StateHandler of a torch.nn.Module."""

    def restore(self) -> None:
        self.value.load_state_dict(self._saved)  # which copies

    def sync(self) -> None:
        broadcast_parameters(self.value.state_dict(), root_rank=0)


class OptimizerStateHandler(_StateDictHandler):
    """A StateHandler of a torch.optim.Optimizer."""

    def __init__(self, value: Any) -> None:
        if isinstance(value, torch.optim.LBFGS):
            raise UsageError(
                "a TorchState does not support torch.optim.LBFGS: its state is not per "
                "parameter, so it cannot be sent to other ranks. Use another optimizer"
            )
        super().__init__(value)

    def sync(self) -> None:
        broadcast_optimizer_state(self.value, root_rank=0)
        self.reset()

    def reset(self) -> None:
        """Drops the gradients, which belong to no step any more."""
        self.value.zero_grad()


class SamplerStateHandler(_StateDictHandler):
    """A StateHandler of an ElasticSampler."""

    def reset(self) -> None:
        self.value.reset()


Registry = list[tuple[type, type[StateHandler]]]
_registry: Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry() -> Registry:
    """Return the StateHandler of a TorchState for a value, by its type; the first match counts."""
    return _registry


def set_handler_registry(registry: Registry) -> None:
    """Replaces what `get_handler_registry` returns."""
    global _registry
    _registry = registry


class TorchState(ObjectState):
    """A State of models, optimizers, samplers and whatever else is given by name.

    What has `state_dict` and `load_state_dict` (schedulers, a GradScaler) is kept by these, other
    values as in an ObjectState. `state.model` and so on are the values.

    After a change of ranks the generators of random numbers (torch's, Python's and numpy's) are
    seeded from rank 0's first seed, the number of commits and the rank, so that the same changes
    at the same commits give the same numbers.

    Args:
        model: a torch.nn.Module, or None.
        optimizer: a torch.optim.Optimizer, or None.
        kwargs: further values.
    """

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        values = {"model": model, "optimizer": optimizer, **kwargs}
        check_free(type(self), values)
        handlers = {name: _handler_of(value) for name, value in values.items()}
        self._handlers: dict[str, StateHandler] = {
            name: handler for name, handler in handlers.items() if handler is not None
        }
        for name, handler in self._handlers.items():
            object.__setattr__(self, name, handler.value)
        self._first_seed = torch.initial_seed()
        plain = {name: value for name, value in values.items() if name not in self._handlers}
        super().__init__(broadcast_object, runtime.rank, **plain)

    def __setattr__(self, name: str, value: Any) -> None:
        handler = self.__dict__.get("_handlers", {}).get(name)
        if handler is not None:
            handler.set_value(value)
        super().__setattr__(name, value)

    def save(self) -> None:
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self) -> None:
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        for handler in self._handlers.values():
            handler.sync()
        self._sync_attributes()
        self._save_what_is_right()

    def reset(self) -> None:
        for handler in self._handlers.values():
            handler.reset()

    def snapshot(self) -> Any:
        kept = {name: handler.snapshot() for name, handler in self._handlers.items()}
        return {"handled": kept, "objects": super().snapshot()}

    def adopt(self, snapshot: Any) -> None:
        check_names(snapshot["handled"], self._handlers)
        for name, handler in self._handlers.items():
            try:
                handler.adopt(snapshot["handled"][name])
            except (RuntimeError, ValueError) as error:
                raise UsageError(f"the commit's {name} does not fit: {error}") from error
        objects = snapshot["objects"]
        check_names(objects, self._saved_state)
        self._saved_state = dict(objects)
        super().restore()

    def seed(self) -> int:
        return self._first_seed

    def deal_randomness(self, seed: int, commits: int) -> None:
        number = dealt_seed(seed, commits, runtime.rank())
        torch.manual_seed(number)
        random.seed(number)
        np.random.seed(number % 2**32)


def _handler_of(value: Any) -> StateHandler | None:
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    can_load = hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
    return _StateDictHandler(value) if can_load else None


def _split(tensor: Any) -> tuple[np.ndarray[Any, Any], list[Any]] | None:
    """A dense tensor's bytes and what makes it again. See TensorKind."""
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
        return None
    values = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
    name = str(tensor.dtype).removeprefix("torch.")
    facts = [name, list(tensor.shape), tensor.device.type, tensor.requires_grad]
    return values.view(torch.uint8).numpy(), facts


def _join(data: np.ndarray[Any, Any], facts: list[Any]) -> torch.Tensor:
    name, shape, device, requires_grad = facts
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise UsageError(
            f"the data contain tensors of dtype {name}, which this PyTorch does not support"
        )
    tensor = torch.empty(shape, dtype=dtype)
    tensor.reshape(-1).view(torch.uint8).numpy()[:] = data
    if device != "cpu":  # where that is a GPU: this process's
        tensor = tensor.to(device)
    return tensor.requires_grad_(requires_grad)


register_tensors("hvdtune.torch", torch.Tensor, TensorKind(_split, _join))
