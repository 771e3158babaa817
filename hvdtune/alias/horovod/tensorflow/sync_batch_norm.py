from hvdtune.tensorflow import SyncBatchNormalization

__all__ = ["SyncBatchNormalization"]
