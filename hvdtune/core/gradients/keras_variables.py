"""Names and values of Keras's variables on all ranks, for the packages of both its backends."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hvdtune.errors import UsageError

COMBINER: Final = "_hvdtune_combiner"  # what combines gradients, as an attribute of an optimizer
SEED_STATE: Final = "seed_generator_state"  # a generator of Keras 3: its seed and count of uses
# The position of the seed in variables of these names; the second is that of tf.random.Generator.
_SEED_POSITIONS: Final = {SEED_STATE: 0, "StateVar": -1}


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

    Keras counts layers by what the process has made before. A root that resumes from a file, and
    ranks with new models, would wait for each other.
    """
    return re.sub(r"_\d+(?=/|$)", "", name)


def layer_and_own(path: str) -> str:
    """Takes the layer's name and the variable's own from a path of Keras 3, without counters.

    The path also contains the layer's models, except if a model has been loaded.
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
            raise UsageError(f"local_layers contains {layer!r:.80}, which is not a Keras layer")
        found += layer.trainable_weights
    return found


def state_on_rank(name: str, state: npt.NDArray[Any], rank: int) -> npt.NDArray[Any]:
    """Return the values that another rank than the root takes from a broadcast of the root's.

    Ranks whose generators of random numbers are equal drop out the same units. So the state of a
    generator gets a seed of this rank, which follows from the root's; the count of uses stays.
    Other variables keep their values.

    Args:
        name: the variable's name or path.
        state: the root's values.
        rank: this process's rank in the job.
    """
    position = _SEED_POSITIONS.get(_last_part(name))
    if position is None or state.ndim != 1 or state.size < 2 or state.dtype.kind not in "iu":
        return state
    own = state.copy()
    # Keras takes seeds of 32 bits, whatever the variable holds.
    kind = np.uint32 if position == 0 else np.uint64
    text = f"rank {rank} of {state[position]}".encode()
    digest = hashlib.blake2b(text, digest_size=np.dtype(kind).itemsize).digest()
    own[position] = np.frombuffer(digest, kind)[0].astype(state.dtype)
    return own


def is_generator(name: str) -> bool:
    """Return whether the variable of this name or path is the state of a generator."""
    return _last_part(name) in _SEED_POSITIONS


def _last_part(name: str) -> str:
    """Return the last part of a path of Keras, torch or TensorFlow: `b` of `a/b:0` or `a/b_1:0`."""
    return re.sub(r"_\d+$", "", re.split(r"[/.]", name.partition(":")[0])[-1])
