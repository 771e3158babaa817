import abc
from typing import Any, Final

from hvdtune.torch import DistributedOptimizer
from hvdtune.torch.adasum import DeltaOptimizer
from hvdtune.torch.optimizer import GradientOptimizer

from .._absent import stand_in

__all__ = ["DistributedOptimizer", "_DistributedAdasumOptimizer", "_DistributedOptimizer"]

_REASON: Final = (
    "hvdtune's optimizer is built differently and cannot be subclassed; wrap your optimizer with "
    "hvd.DistributedOptimizer, whose compression= changes the data sent"
)


def _for_annotations(name: str, kind: type) -> Any:
    """A class of this name whose instances are those of `kind`, and which cannot be derived from.

    Programs derive optimizers of their own from Horovod's class, or copy what it consists of.
    """
    refuse = stand_in(f"horovod.torch.optimizer.{name}", _REASON)
    found = abc.ABCMeta(name, (), {"__init__": refuse, "__init_subclass__": refuse})
    found.register(kind)
    return found


_DistributedOptimizer = _for_annotations("_DistributedOptimizer", GradientOptimizer)
_DistributedAdasumOptimizer = _for_annotations("_DistributedAdasumOptimizer", DeltaOptimizer)
