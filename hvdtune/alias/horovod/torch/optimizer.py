from hvdtune.torch import DistributedOptimizer
from hvdtune.torch.adasum import DeltaOptimizer as _DistributedAdasumOptimizer
from hvdtune.torch.optimizer import GradientOptimizer as _DistributedOptimizer

__all__ = ["DistributedOptimizer", "_DistributedAdasumOptimizer", "_DistributedOptimizer"]
