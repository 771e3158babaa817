"""Elastic training with PyTorch: Horovod's `hvd.elastic`."""

from __future__ import annotations

from hvdtune.core.elastic.loop import run
from hvdtune.core.elastic.parts import PerRank
from hvdtune.core.elastic.samples import read_audit
from hvdtune.core.elastic.state import ObjectState, State
from hvdtune.torch.elastic.sampler import ElasticSampler
from hvdtune.torch.elastic.state import (
    ModelStateHandler,
    OptimizerStateHandler,
    SamplerStateHandler,
    StateHandler,
    TorchState,
    get_handler_registry,
    set_handler_registry,
)

__all__ = [
    "ElasticSampler",
    "ModelStateHandler",
    "ObjectState",
    "OptimizerStateHandler",
    "PerRank",
    "SamplerStateHandler",
    "State",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "read_audit",
    "run",
    "set_handler_registry",
]
