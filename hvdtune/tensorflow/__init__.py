"""hvdtune for TensorFlow: `import hvdtune.tensorflow as hvd`, with Horovod's names."""

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from hvdtune.core.rank import basics
from hvdtune.core.rank.basics import *
from hvdtune.core.rank.collectives import barrier
from hvdtune.core.rank.process import PROCESS
from hvdtune.recording import start_timeline, stop_timeline
from hvdtune.tensorflow import collectives, spans
from hvdtune.tensorflow.aggregation import LocalGradientAggregationHelper
from hvdtune.tensorflow.broadcast import (
    BroadcastGlobalVariablesHook,
    broadcast_global_variables,
    broadcast_variables,
)
from hvdtune.tensorflow.collectives import *
from hvdtune.tensorflow.compression import Compression
from hvdtune.tensorflow.objects import allgather_object, broadcast_object, broadcast_object_fn
from hvdtune.tensorflow.optimizer import DistributedOptimizer
from hvdtune.tensorflow.sync_batch_norm import SyncBatchNormalization
from hvdtune.tensorflow.tape import DistributedGradientTape, PartialDistributedGradientTape

if TYPE_CHECKING:
    from hvdtune.tensorflow import elastic

_ELASTIC: Final = "hvdtune.tensorflow.elastic"

__all__ = [
    *basics.__all__,
    *collectives.__all__,
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "LocalGradientAggregationHelper",
    "PartialDistributedGradientTape",
    "SyncBatchNormalization",
    "allgather_object",
    "barrier",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "elastic",
    "start_timeline",
    "stop_timeline",
]

spans.watch()
PROCESS.before_join.append(partial(import_module, _ELASTIC))


def __getattr__(name: str) -> Any:
    """Loads `elastic` where it is first asked for, and with it what trains with Keras."""
    if name == "elastic":
        return import_module(_ELASTIC)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
