"""The names of Horovod's elastic training, which this version of hvdtune does not have.

They exist so that a script which uses them fails where it does, with a sentence, and not with an
AttributeError somewhere.
"""

from __future__ import annotations

from typing import Any, NoReturn

from hvdtune import __version__

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


def _refuse(name: str, instead: str) -> NoReturn:
    raise NotImplementedError(
        f"hvd.elastic.{name}: hvdtune {__version__} has no elastic training. {instead}"
    )


_KEEP_CHECKPOINTS = (
    "Save checkpoints and start the job again from the last one when a host is lost: a lost rank "
    "raises hvd.HorovodInternalError on all others."
)


class _Absent:
    def __init__(self, *_: Any, **__: Any) -> None:
        _refuse(type(self).__name__, _KEEP_CHECKPOINTS)


class State(_Absent):
    """What Horovod keeps in memory of a training. Making one raises NotImplementedError."""


class ObjectState(State):
    """A State of plain objects. Making one raises NotImplementedError."""


class TorchState(ObjectState):
    """A State of models, optimizers and samplers. Making one raises NotImplementedError."""


class StateHandler(_Absent):
    """Saves and restores one value of a TorchState. Making one raises NotImplementedError."""


class ModelStateHandler(StateHandler):
    """A StateHandler of a model. Making one raises NotImplementedError."""


class OptimizerStateHandler(StateHandler):
    """A StateHandler of an optimizer. Making one raises NotImplementedError."""


class SamplerStateHandler(StateHandler):
    """A StateHandler of a sampler. Making one raises NotImplementedError."""


class ElasticSampler(_Absent):
    """A sampler that goes on after a change of ranks. Making one raises NotImplementedError."""

    def __init__(self, *_: Any, **__: Any) -> None:
        _refuse(
            "ElasticSampler",
            "Use torch.utils.data.DistributedSampler(dataset, hvd.size(), hvd.rank()).",
        )


def run(func: Any) -> Any:
    """Horovod's decorator of a training that survives changes. Raises NotImplementedError."""
    _refuse("run", _KEEP_CHECKPOINTS)


def get_handler_registry() -> Any:
    """Horovod's handlers of a TorchState by type. Raises NotImplementedError."""
    _refuse("get_handler_registry", _KEEP_CHECKPOINTS)


def set_handler_registry(registry: Any) -> None:
    """Horovod's handlers of a TorchState by type. Raises NotImplementedError."""
    _refuse("set_handler_registry", _KEEP_CHECKPOINTS)
