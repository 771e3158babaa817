from hvdtune.torch import SyncBatchNorm

__all__ = ["SyncBatchNorm"]
