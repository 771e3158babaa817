"""hvdtune for PyTorch: `import hvdtune.torch as hvd`, with Horovod's names."""

from hvdtune.core.rank import basics
from hvdtune.core.rank.basics import *
from hvdtune.core.rank.collectives import barrier, poll, synchronize
from hvdtune.core.rank.objects import allgather_object, broadcast_object
from hvdtune.recording import start_timeline, stop_timeline
from hvdtune.torch import collectives, elastic, spans
from hvdtune.torch.broadcast import broadcast_optimizer_state, broadcast_parameters
from hvdtune.torch.collectives import *
from hvdtune.torch.compression import Compression
from hvdtune.torch.optimizer import DistributedOptimizer
from hvdtune.torch.sparse import sparse_allreduce_async
from hvdtune.torch.sync_batch_norm import SyncBatchNorm

__all__ = [
    *basics.__all__,
    *collectives.__all__,
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
