"""What the variables of Keras are called on all ranks, for the packages of both its backends."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from hvdtune.errors import UsageError

COMBINER: Final = "_hvdtune_combiner"  # what combines gradients, as an attribute of an optimizer


def distinct(names: Sequence[str]) -> list[str]:
    """The names in order, where one comes again with its position after it."""
    taken: set[str] = set()
    found = []
    for number, name in enumerate(names):
        found.append(f"{name}.{number}" if name in taken else name)
        taken.add(name)
    return found


def without_counters(name: str) -> str:
    """A variable's name as all ranks have it: `dense/kernel` for `dense_3/kernel`.

    Keras counts layers by what the process has made before. A root that goes on from a file, and
    ranks with new models, would wait for each other for ever.
    """
    return re.sub(r"_\d+(?=/|$)", "", name)


def layer_and_own(path: str) -> str:
    """Takes the layer's name and the variable's own from a path of Keras 3, without counters.

    In which models a layer lies is said by the path, too, but not where a model has been loaded.
    """
    return without_counters("/".join(path.split("/")[-2:]))


def variables_of(layers: Any) -> list[Any]:
    """The variables that the layers train.

    Raises:
        UsageError: one is no layer.
    """
    rows = [] if layers is None else layers if isinstance(layers, Iterable) else [layers]
    found: list[Any] = []
    for layer in rows:
        if not hasattr(layer, "trainable_weights"):
            raise UsageError(f"local_layers has {layer!r:.80}, which is not a Keras layer")
        found += layer.trainable_weights
    return found
