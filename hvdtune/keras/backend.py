"""The framework that Keras computes with, and what hvdtune needs of it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hvdtune.core.gradients.groups import Groups, check_groups
from hvdtune.core.rank.collectives import Reduction
from hvdtune.core.rank.compression import NoneCompressor, compressor_of
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set, id_of
from hvdtune.errors import UsageError


@dataclass(frozen=True)
class GradientOptions:
    """How the gradients of one optimizer or tape are combined.

    Making one raises UsageError where a compressor, groups or process set cannot be used.

    Attributes:
        scale_local: gradients that stay on this rank are divided by the number of ranks, by
            whatever operation the others are combined, as in Horovod.
        average: what is sent is the mean of the `passes`, not their sum.
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
        """Whether there is another rank to combine with."""
        return self.process_set.included() and self.process_set.size() > 1

    def scaled(self, gradient: Any) -> Any:
        """A gradient that stays on this rank, as it is to be applied."""
        if not self.scale_local or not self.travels():
            return gradient
        return gradient / self.process_set.size()


class Combiner(Protocol):
    """Combines the gradients of one optimizer, in the framework that computes them."""

    def register_local(self, variable: Any) -> None:
        """Keeps the gradient of this variable on this rank."""

    def apply(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        step: Callable[[list[Any]], None],
        skip: Callable[[], None],
    ) -> None:
        """Calls `step` with combined gradients, or `skip` where they are not due yet."""


def name_of(keras: Any) -> str:
    """The backend of this module, which is Keras 3 or Keras 2.

    Raises:
        UsageError: gradients of this backend cannot be combined.
    """
    name = str(keras.backend.backend())
    if name not in ("tensorflow", "torch"):
        raise UsageError(
            f"Keras computes with {name}; hvdtune combines gradients of the tensorflow and torch "
            "backends (KERAS_BACKEND)"
        )
    return name


def compression_of(keras: Any) -> Any:
    """The backend's `hvd.Compression`."""
    return importlib.import_module(f"hvdtune.{name_of(keras)}.compression").Compression


def make_combiner(keras: Any, options: GradientOptions) -> Combiner:
    """A combiner of the backend's own, which is above this package and known by its name only."""
    module = importlib.import_module(f"hvdtune.{name_of(keras)}.keras_combiner")
    combiner: Combiner = module.KerasCombiner(options)
    return combiner
