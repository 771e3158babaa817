"""Which name an operation of a group has: the core knows it by that, and remembers what it was.

What repeats in every step travels as a number if it has the name that it had before. So names come
again in the rhythm in which operations do. The ranks must agree on them without a word, and also
where they disagree about an operation, for then all are told so: names follow from operations that
lie so far back that whoever waits for them knows how they ended.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

# How many names a kind of operation has: the core's cache remembers as many.
COUNT: Final = 1024
# Names follow from operations so far back, and are thought over as often.
_LAG: Final = 64
_LONGEST_PERIOD: Final = 512
# Who starts more operations of equal names than there are waits for the first of them to end.
_FEWEST: Final = 256
_HISTORY: Final = _LAG + 3 * _LONGEST_PERIOD


class OperationNames:
    """Those of one group.

    Thread rule: the caller's lock.
    """

    def __init__(self) -> None:
        self.count = 0
        self._period = 0
        self._modulus = COUNT
        self._past: list[Hashable] = []  # of the latest operations
        self._dropped = 0  # how many were before these

    def next(self, what: Hashable) -> tuple[int, int]:
        """The number of an operation, from 0 in call order, and the number in its name.

        Of one name only one operation is in flight. Where operations repeat, a name comes again
        after several periods, elsewhere after COUNT operations.

        Args:
            what: equal on all ranks unless they disagree, and for operations that are alike.
        """
        number, self.count = self.count, self.count + 1
        if number % _LAG == 0:
            self._think(len(self._past) - _LAG)
        self._past.append(what)
        return number, number % self._modulus

    def forget(self, number: int) -> None:
        """The ranks disagreed about this operation: it is like no other, on all of them."""
        at = number - self._dropped
        if at >= 0:
            self._past[at] = object()

    def _think(self, end: int) -> None:
        if end <= 0 or (self._period and self._repeats(self._period, end)):
            return
        for period in range(1, _LONGEST_PERIOD + 1):
            if self._repeats(period, end):
                self._period = period
                self._modulus = period * -(-max(2 * period, _FEWEST) // period)
                break
        surplus = len(self._past) - _HISTORY
        if surplus > 0:
            del self._past[:surplus]
            self._dropped += surplus

    def _repeats(self, period: int, end: int) -> bool:
        """Whether the operations before `end` did, for as many as are needed to say so."""
        begin = end - max(2 * period, _LAG)
        if begin < period or self._past[end - 1] != self._past[end - 1 - period]:
            return False
        return self._past[begin:end] == self._past[begin - period : end - period]
