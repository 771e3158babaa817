"""Numbers for pairs that come over and over: a few array operations, and no sort, for a batch."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hvdtune.timeline.model.schema import Ints

_PLACES: Final = 1 << 12


class PairInterner:
    """Gives each pair of numbers below 2**31 a number, from 0 on; new ones of a batch in order."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._keys = np.full(1, -1, np.int64)  # by number, and room for more
        # By a hash of a pair: its number, unless another pair came later.
        self._likely = np.zeros(_PLACES, np.int32)

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.int32]:
        """The number of each pair, which may be new."""
        keys = first.astype(np.int64) << 32 | second
        places = (keys ^ (keys >> 27)) & (_PLACES - 1)
        numbers: NDArray[np.int32] = self._likely[places]
        others = np.flatnonzero(self._keys[numbers] != keys)
        if len(others):
            numbers[others] = self._look_up(keys[others])
            self._likely[places[others]] = numbers[others]
        return numbers

    def pairs(self, since: int = 0) -> tuple[Ints, Ints]:
        """The first and second of all pairs from number `since` on, by their numbers."""
        keys = self._keys[since : len(self)]
        return keys >> 32, keys & 0xFFFFFFFF

    def _look_up(self, keys: Ints) -> NDArray[np.int32]:
        used, inverse = np.unique(keys, return_inverse=True)
        numbers = [self._numbers.setdefault(key, len(self._numbers)) for key in used.tolist()]
        found = np.array(numbers, np.int32)
        if len(self) > len(self._keys):
            more = np.full(2 * len(self) - len(self._keys), -1, np.int64)
            self._keys = np.concatenate((self._keys, more))
        self._keys[found] = used
        return found[inverse]


def raise_to(highest: Ints, numbers: NDArray[np.int32], values: Ints) -> None:
    """Raises the element of each number to its value, where that is more."""
    # With indices of another type numpy is several times as slow.
    np.maximum.at(highest, numbers.astype(np.intp), values)
