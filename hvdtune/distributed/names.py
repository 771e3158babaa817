"""Names of a group's operations: the core caches operations by name.

An operation that repeats in every step is announced as a number if it has the same name again. So
names repeat in the rhythm of the operations. The ranks must agree on the names without
communication, also after they have disagreed about an operation. So names follow only from
operations that lie LAG back, and the caller has waited for those: by then every rank has the same
outcome of them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

# How many names a kind of operation has: the core's cache remembers as many.
COUNT: Final = 1024
# Names follow from operations so far back. As many of a group can be in flight.
LAG: Final = 256
# How often the rhythm is looked for.
_EVERY: Final = 64
_SHORTEST: Final = 64  # how many operations must have repeated
_LONGEST_PERIOD: Final = 512
_HISTORY: Final = LAG + 3 * _LONGEST_PERIOD


class OperationNames:
    """Those of one group.

    A signal handler may raise between any two instructions of its methods: then each can be called
    again with the same arguments.

    Thread rule: the caller's lock, except for `note_mismatch`.
    """

    def __init__(self) -> None:
        self._period = 0
        self._modulus = COUNT
        # How many operations were before those that are remembered, and these.
        self._history: tuple[int, list[Hashable]] = (0, [])
        self._mismatches: set[int] = set()

    @property
    def count(self) -> int:
        """How many operations there were, which is the number of the next."""
        dropped, past = self._history
        return dropped + len(past)

    def next(self) -> int:
        """Returns the number in the name of the next operation; again the same until `add`.

        Of one name only one operation is in flight. Where operations repeat, a name comes again
        after several periods, elsewhere after COUNT operations.

        REQUIRES: the operation LAG before the next has ended, and those before it.
        """
        count = self.count
        if count % _EVERY == 0:
            self._look_for_rhythm()
        return count % self._modulus

    def add(self, what: Hashable) -> None:
        """The next operation was submitted.

        Args:
            what: equal on all ranks unless they disagree, and for operations that are alike.
        """
        self._history[1].append(what)

    def note_mismatch(self, number: int) -> None:
        """The ranks disagreed about this operation. On all of them it counts as like no other.

        To be called before it has ended; maybe again. Takes no lock.
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
    """Whether the operations before `end` did, for as many as are needed to be sure."""
    begin = end - max(2 * period, _SHORTEST)
    if begin < period or past[end - 1] != past[end - 1 - period]:
        return False
    return past[begin:end] == past[begin - period : end - period]
