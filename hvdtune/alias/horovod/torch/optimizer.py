from hvdtune.torch import DistributedOptimizer

__all__ = ["DistributedOptimizer"]
