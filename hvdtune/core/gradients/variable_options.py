"""How the gradients of one optimizer or tape are combined, for TensorFlow and Keras."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hvdtune.core.gradients.groups import Groups, check_groups
from hvdtune.core.rank.collectives import Reduction
from hvdtune.core.rank.compression import NoneCompressor, compressor_of
from hvdtune.core.rank.process import PROCESS
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set, id_of


@dataclass(frozen=True, eq=False)
class GradientOptions:
    """How the gradients of one optimizer or tape are combined.

    Making one raises UsageError where a compressor, groups or process set cannot be used.

    Attributes:
        scale_local: gradients that stay on this rank are divided by the number of ranks, by
            whatever operation the others are combined, as in Horovod.
        average: send the mean of the `passes`, not their sum.
        local: the combiner's keys of the variables whose gradients stay on this rank.
    """

    compression: Any = NoneCompressor
    reduction: Reduction = field(default_factory=Reduction)
    sparse_as_dense: bool = False
    groups: Groups = 0
    process_set: ProcessSet = global_process_set
    scale_local: bool = True
    passes: int = 1
    average: bool = False
    local: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        compressor_of(self.compression)
        check_groups(self.groups, "variables")
        id_of(self.process_set)

    def travels(self) -> bool:
        """Return whether another rank takes part, or may do so before the end of the graph that
        is traced: it outlives the generations of an elastic job."""
        is_elastic = PROCESS.worker is not None
        return self.process_set.included() and (is_elastic or self.process_set.size() > 1)

    def scaled(self, gradient: Any, ranks: Any = None) -> Any:
        """A gradient that stays on this rank, as it is to be applied.

        Args:
            ranks: their number when the gradient is ready; None for the current number.
        """
        if not self.scale_local or not self.travels():
            return gradient
        return gradient / (self.process_set.size() if ranks is None else ranks)
