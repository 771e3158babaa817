"""hvdtune for PyTorch: `import hvdtune.torch as hvd`, with Horovod's names."""

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from hvdtune.core.rank import basics
from hvdtune.core.rank.basics import *
from hvdtune.core.rank.collectives import barrier, poll, synchronize
from hvdtune.core.rank.objects import allgather_object, broadcast_object
from hvdtune.core.rank.process import PROCESS
from hvdtune.recording import start_timeline, stop_timeline
from hvdtune.torch import collectives, spans
from hvdtune.torch.broadcast import broadcast_optimizer_state, broadcast_parameters
from hvdtune.torch.collectives import *
from hvdtune.torch.compression import Compression
from hvdtune.torch.graphs import CUDAGraph
from hvdtune.torch.optimizer import DistributedOptimizer
from hvdtune.torch.sparse import sparse_allreduce_async
from hvdtune.torch.sync_batch_norm import SyncBatchNorm

if TYPE_CHECKING:
    from hvdtune.torch import elastic

_ELASTIC: Final = "hvdtune.torch.elastic"

__all__ = [
    *basics.__all__,
    *collectives.__all__,
    "CUDAGraph",
    "Compression",
    "DistributedOptimizer",
    "SyncBatchNorm",
    "allgather_object",
    "barrier",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "elastic",
    "poll",
    "sparse_allreduce_async",
    "start_timeline",
    "stop_timeline",
    "synchronize",
]

spans.watch()
# The first optimizer imports torch._dynamo, which takes seconds.
PROCESS.before_join += [partial(import_module, _ELASTIC), partial(import_module, "torch._dynamo")]


def __getattr__(name: str) -> Any:
    """Loads `elastic` where it is first asked for: it takes as long as a fifth of the rest."""
    if name == "elastic":
        return import_module(_ELASTIC)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
