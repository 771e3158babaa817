"""Names of a group's operations: the core caches operations by name.

An operation that repeats in every step is announced as a number if its name repeats. So names
repeat in the rhythm of the operations. The ranks must agree on the names without communication,
also after they have disagreed about an operation. So names follow only from operations that lie LAG
back, and the caller has waited for those: by then every rank has the same outcome of them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

# Number of names per kind of operation, as in the core's cache.
COUNT: Final = 1024
# Names follow from operations this far back, so this many of a group can be in flight.
LAG: Final = 256
# Number of operations between two searches for the rhythm.
_EVERY: Final = 64
_SHORTEST: Final = 64  # minimum number of operations that must have repeated
_LONGEST_PERIOD: Final = 512
_HISTORY: Final = LAG + 3 * _LONGEST_PERIOD


class OperationNames:
    """The names of one group's operations.

    A signal handler may raise between any two instructions of a method. The method can then be
    called again with the same arguments.

    Thread rule: the caller's lock, except for `note_mismatch`.
    """

    def __init__(self) -> None:
        self._period = 0
        self._modulus = COUNT
        # The number of forgotten operations, and those after them.
        self._history: tuple[int, list[Hashable]] = (0, [])
        self._mismatches: set[int] = set()

    @property
    def count(self) -> int:
        """The number of operations so far, which is the number of the next."""
        dropped, past = self._history
        return dropped + len(past)

    def next(self) -> int:
        """Return the number in the name of the next operation; the same one until `add`.

        Only one operation of a name is in flight. A name repeats after several periods if the
        operations repeat, else after COUNT operations.

        REQUIRES: the operation LAG before the next has ended, and those before it.
        """
        count = self.count
        if count % _EVERY == 0:
            self._look_for_rhythm()
        return count % self._modulus

    def add(self, what: Hashable) -> None:
        """Notes that the next operation was submitted.

        Args:
            what: equal on all ranks unless they disagree, and for operations that are alike.
        """
        self._history[1].append(what)

    def note_mismatch(self, number: int) -> None:
        """Notes that the ranks disagreed about this operation. It then equals no other one.

        Must be called before it has ended; may be called again. Takes no lock.
        """
        self._mismatches.add(number)

    def _look_for_rhythm(self) -> None:
        dropped, past = self._history
        for number in [each for each in list(self._mismatches) if each - dropped < len(past)]:
            if number >= dropped:
                past[number - dropped] = object()
            self._mismatches.discard(number)
        end = len(past) - LAG
        if end > 0 and not (self._period and _repeats(past, self._period, end)):
            for period in range(1, _LONGEST_PERIOD + 1):
                if _repeats(past, period, end):
                    self._modulus = period * -(-max(2 * period, LAG) // period)
                    self._period = period
                    break
        surplus = len(past) - _HISTORY
        if surplus > 0:
            self._history = (dropped + surplus, past[surplus:])


def _repeats(past: list[Hashable], period: int, end: int) -> bool:
    """Return whether enough operations before `end` repeat with this period."""
    begin = end - max(2 * period, _SHORTEST)
    if begin < period or past[end - 1] != past[end - 1 - period]:
        return False
    return past[begin:end] == past[begin - period : end - period]
