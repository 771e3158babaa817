"""Elastic training with PyTorch: Horovod's `hvd.elastic`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hvdtune.core.rank import elastic
from hvdtune.core.rank.elastic import ObjectState, State
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
    "SamplerStateHandler",
    "State",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "run",
    "set_handler_registry",
]

T = TypeVar("T")


def run(func: Callable[..., T]) -> Callable[..., T]:
    """Decorates a training function, so that it goes on when ranks come and go.

    The function's first argument is a State, from which it takes up its loop: it is called anew in
    every generation of the job. Under `hvdtune run --min-np ...` a rank that is lost makes it go
    back to the last `state.commit()`, newcomers begin with rank 0's state. Without such a launcher
    an error ends the function as usual.

        @hvd.elastic.run
        def train(state):
            for state.epoch in range(state.epoch, epochs):
                ...
                state.commit()
    """
    return elastic.run(func)
