"""The names of Horovod's elastic training, which this version of hvdtune does not have.

They exist so that a script which uses them fails where it does, with a sentence, and not with an
AttributeError somewhere.
"""

from __future__ import annotations

from typing import Any

from hvdtune.core.rank.elastic import Absent, ObjectState, State, refuse, run

__all__ = [
    "ElasticSampler",
    "ModelStateHandler",
    "ObjectState",
    "OptimizerStateHandler",
    "SamplerStateHandler",
    "State",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "run",
    "set_handler_registry",
]


class TorchState(ObjectState):
    """A State of models, optimizers and samplers. Making one raises NotImplementedError."""


class StateHandler(Absent):
    """Saves and restores one value of a TorchState. Making one raises NotImplementedError."""


class ModelStateHandler(StateHandler):
    """A StateHandler of a model. Making one raises NotImplementedError."""


class OptimizerStateHandler(StateHandler):
    """A StateHandler of an optimizer. Making one raises NotImplementedError."""


class SamplerStateHandler(StateHandler):
    """A StateHandler of a sampler. Making one raises NotImplementedError."""


class ElasticSampler(Absent):
    """A sampler that goes on after a change of ranks. Making one raises NotImplementedError."""

    def __init__(self, *_: Any, **__: Any) -> None:
        refuse(
            "ElasticSampler",
            "Use torch.utils.data.DistributedSampler(dataset, hvd.size(), hvd.rank()).",
        )


def get_handler_registry() -> Any:
    """Horovod's handlers of a TorchState by type. Raises NotImplementedError."""
    refuse("get_handler_registry")


def set_handler_registry(registry: Any) -> None:
    """Horovod's handlers of a TorchState by type. Raises NotImplementedError."""
    refuse("set_handler_registry")
