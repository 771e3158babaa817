"""Faults that are made on purpose: which rank is killed or stopped when. Pure: time is an argument,
and chance follows from a seed."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal

FaultKind = Literal["kill", "stop"]

_SIGNED: Final[tuple[FaultKind, ...]] = ("kill", "stop")


@dataclass(frozen=True)
class ChaosPlan:
    """How often a rank is killed (SIGKILL) and stopped (SIGSTOP), in seconds; None for never."""

    kill_every_s: float | None = None
    stop_every_s: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class Fault:
    """What happens to a worker."""

    kind: FaultKind
    worker: int


class Chaos:
    """Chooses faults. One strikes when it is due and the job trains with more than one rank, and
    the next in a later generation at the earliest: nobody could say what each has cost. For the
    same reason the kinds begin apart: of two with one period, the first begins after half of it.

    Thread rule: one thread.
    """

    def __init__(self, plan: ChaosPlan) -> None:
        periods = {"kill": plan.kill_every_s, "stop": plan.stop_every_s}
        self._every_s = {kind: every for kind in _SIGNED if (every := periods[kind]) is not None}
        self._due_s = {
            kind: every * (n + 1) / len(self._every_s)
            for n, (kind, every) in enumerate(self._every_s.items())
        }
        self._chance = random.Random(plan.seed)
        self._generation = -1
        self._most_members = 0  # of a job that trained

    def strike(
        self, now_s: float, generation: int, members: Collection[int], can_stop: Collection[int]
    ) -> Fault | None:
        """The fault that is due, None for none.

        Args:
            now_s: since training began.
            generation: the one that trains.
            members: its workers.
            can_stop: those of them that can be stopped.
        """
        self._most_members = max(self._most_members, len(members))
        if generation == self._generation or len(members) < 2:
            return None
        for kind in sorted(self._due_s, key=lambda kind: self._due_s[kind]):
            able = sorted(members if kind == "kill" else can_stop)
            if self._due_s[kind] <= now_s and able:
                while self._due_s[kind] <= now_s:
                    self._due_s[kind] += self._every_s[kind]
                self._generation = generation
                return Fault(kind, self._chance.choice(able))
        return None

    def why_none(self) -> str:
        """Why nobody was struck in a job that is over, "" where somebody was."""
        if self._generation >= 0:
            return ""
        if self._most_members == 0:
            why = "no state was committed in a function with @hvd.elastic.run"
        elif self._most_members == 1:
            why = "the job never had more than one rank"
        else:
            why = "the training was over before the first fault was due"
        return f"no rank was killed or stopped, so this run does not test the script: {why}"
