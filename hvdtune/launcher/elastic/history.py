"""Who was in an elastic job when, and what each change has cost, as a trace of its own.

The trace is Chrome JSON: a process for each worker, with a slice for each generation that it was
in, and one for the resets, with a slice for each phase. `otherData` has the same under KEY, for
the dashboard. Pure: time is an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hvdtune.launcher.elastic.account import PHASES, Account
from hvdtune.launcher.elastic.slots import SlotName

FILE_NAME: Final = "membership.json"
KEY: Final = "hvdtune_elastic"
_US_PER_S: Final = 1e6
_RESETS_PID: Final = 0  # workers are counted from 1 here


@dataclass(frozen=True)
class Stay:
    """A worker's time in one generation, in seconds since the job's start; None: it goes on."""

    worker: int
    slot: SlotName
    generation: int
    rank: int
    size: int
    began_s: float
    ended_s: float | None = None


class History:
    """Keeps the members of each generation. Thread rule: one thread."""

    def __init__(self, stays: Sequence[Stay] = ()) -> None:
        """`stays` are those of before, which are over."""
        self.stays = list(stays)
        self._current: list[int] = []  # indices of those that go on

    def note_formed(
        self, generation: int, members: Sequence[tuple[int, SlotName]], now_s: float
    ) -> None:
        """These workers are in a new generation, in the order of their ranks."""
        self.note_ended(now_s)
        for rank, (worker, slot) in enumerate(members):
            self._current.append(len(self.stays))
            self.stays.append(Stay(worker, slot, generation, rank, len(members), now_s))

    def note_exit(self, worker: int, now_s: float) -> None:
        """The worker's process has ended."""
        self._end([one for one in self._current if self.stays[one].worker == worker], now_s)

    def note_ended(self, now_s: float) -> None:
        """The generation has ended."""
        self._end(self._current, now_s)

    def until(self, now_s: float) -> list[Stay]:
        """All stays, of which those that go on end now."""
        return [replace(stay, ended_s=_first(stay.ended_s, now_s)) for stay in self.stays]

    def _end(self, those: Sequence[int], now_s: float) -> None:
        for one in those:
            self.stays[one] = replace(self.stays[one], ended_s=now_s)
        self._current = [one for one in self._current if one not in those]


def document(history: History, account: Account, now_s: float) -> dict[str, Any]:
    """The trace as it is now."""
    stays = history.until(now_s)
    workers = {stay.worker: stay.slot for stay in stays}
    events = [
        _named(worker + 1, f"worker {worker} (slot {slot.number} of {slot.host})")
        for worker, slot in sorted(workers.items())
    ]
    events += [
        _slice(
            stay.worker + 1,
            f"generation {stay.generation}: rank {stay.rank} of {stay.size}",
            stay.began_s,
            stay.ended_s or now_s,
        )
        for stay in stays
    ]
    events.append(_named(_RESETS_PID, "resets"))
    for reset in account.history:
        began_s = reset.began_s
        for phase in PHASES:
            spent_s = reset.phases_s[phase]
            events.append(_slice(_RESETS_PID, phase, began_s, began_s + spent_s))
            began_s += spent_s
    known = {
        "stays": [
            {
                "worker": stay.worker,
                "host": stay.slot.host,
                "slot": stay.slot.number,
                "generation": stay.generation,
                "rank": stay.rank,
                "began_s": stay.began_s,
                "ended_s": stay.ended_s,
            }
            for stay in stays
        ],
        "resets": [
            {"began_s": reset.began_s, "phases_s": reset.phases_s} for reset in account.history
        ],
        "sentences": account.sentences(),
    }
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {KEY: known}}


def _first(known_s: float | None, now_s: float) -> float:
    return now_s if known_s is None else known_s


def _named(pid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}


def _slice(pid: int, name: str, began_s: float, ended_s: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": 0,
        "ts": began_s * _US_PER_S,
        "dur": (ended_s - began_s) * _US_PER_S,
    }
