"""Which slots there are, and which of them may not be used for a while. Pure: time is an argument.

A slot on which a process has failed is left alone: for good, or with a cool-down for a time that
doubles with every failure. Only the slot is, not its host: a bad GPU does not cost its neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class SlotName:
    """A slot of a host, numbered from 0."""

    host: str
    number: int


@dataclass(frozen=True)
class Cooldown:
    """How many seconds a slot is left alone: at first, and at most."""

    first_s: float
    most_s: float

    def after(self, failures: int) -> float:
        """The time after so many failures, at least one."""
        return min(self.most_s, self.first_s * 2.0 ** (failures - 1))


@dataclass(frozen=True)
class FailedSlot:
    """A slot in which processes have failed; it is left alone until then, None: for good."""

    slot: SlotName
    failures: int
    until_s: float | None


class Slots:
    """The slots that discovery has found, less those that are left alone.

    Thread rule: one thread.
    """

    def __init__(self, cooldown: Cooldown | None, failed: Sequence[FailedSlot] = ()) -> None:
        """`failed` are those of a job that is taken over, whose hosts are no other machines."""
        self._cooldown = cooldown
        self._hosts = {each.slot.host: 0 for each in failed}
        self._failures = {each.slot: each.failures for each in failed}
        self._until = {
            each.slot: math.inf if each.until_s is None else each.until_s for each in failed
        }

    @property
    def failed(self) -> tuple[FailedSlot, ...]:
        """Those in which processes have failed."""
        return tuple(
            FailedSlot(slot, self._failures[slot], None if until_s == math.inf else until_s)
            for slot, until_s in self._until.items()
        )

    def update(self, hosts: Mapping[str, int]) -> None:
        """Takes what discovery has found: hosts with their numbers of slots, in their order.

        A host that was gone and is back is taken for another machine of its name, unless there is a
        cool-down, by which it could come and go in vain.
        """
        if self._cooldown is None:
            back = hosts.keys() - self._hosts.keys()
            for slot in [slot for slot in self._until if slot.host in back]:
                del self._until[slot], self._failures[slot]
        self._hosts = dict(hosts)

    def all(self) -> list[SlotName]:
        """Every slot, in the order of the hosts."""
        return [SlotName(host, n) for host, count in self._hosts.items() for n in range(count)]

    def exists(self, slot: SlotName) -> bool:
        """Whether discovery still names it."""
        return slot.number < self._hosts.get(slot.host, 0)

    def usable(self, now_s: float) -> list[SlotName]:
        """Those in which a process may be started."""
        return [slot for slot in self.all() if self._until.get(slot, -math.inf) <= now_s]

    def note_failure(self, slot: SlotName, now_s: float) -> None:
        """Leaves a slot alone in which a process has failed."""
        self._failures[slot] = failures = self._failures.get(slot, 0) + 1
        wait_s = math.inf if self._cooldown is None else self._cooldown.after(failures)
        self._until[slot] = now_s + wait_s

    def next_return_s(self, now_s: float) -> float:
        """When the next slot may be used again; infinity for never."""
        waits = (self._until.get(slot, -math.inf) for slot in self.all())
        return min((until for until in waits if until > now_s), default=math.inf)
