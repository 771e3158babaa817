"""The rule by which random numbers are dealt out after a change of the ranks."""

from __future__ import annotations

import hashlib
import pickle
import random
from typing import Final

import numpy as np

_SEED_BYTES: Final = 8


def first_seed() -> int:
    """A number that follows from the generators of Python and NumPy as they are."""
    states = pickle.dumps((random.getstate(), np.random.get_state()))
    return _hashed(states)


def dealt_seed(seed: int, commits: int, rank: int, *more: object) -> int:
    """What a rank's generators begin with after a change of the generation; 64 bits.

    Args:
        seed: rank 0's, from the start of the training.
        commits: made so far.
        more: which of several generators.
    """
    words = [seed, commits, rank, *more]
    return _hashed(" ".join(map(str, words)).encode())


def _hashed(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=_SEED_BYTES).digest(), "little")
