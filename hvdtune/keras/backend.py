"""The framework that Keras computes with, and what hvdtune needs of it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from hvdtune.core.gradients.variable_options import GradientOptions
from hvdtune.errors import UsageError


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
            f"Keras uses the backend {name}; hvdtune supports tensorflow and torch (KERAS_BACKEND)"
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
