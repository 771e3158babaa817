from hvdtune.torch import SyncBatchNorm

from .._absent import stand_in

__all__ = ["SyncBatchNorm"]

_SyncBatchNorm = stand_in("horovod.torch.sync_batch_norm._SyncBatchNorm", "use SyncBatchNorm")
