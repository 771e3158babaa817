"""What an elastic job's changes of ranks have cost, and how much of its speed was left. Pure: time
is an argument.

A reset is the time from the last commit before ranks come or go to the first one after:

    detection    until the first rank is back in `init`: with what is trained in vain
    agreement    until it is decided who is in
    mesh         until those are connected to each other
    state        until all have rank 0's state
    first step   until the next commit
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hvdtune.plural import counted

PHASES: Final = ("detection", "agreement", "mesh", "state", "first step")


@dataclass(frozen=True)
class Reset:
    """One reset: when it began, and how long each phase took, in seconds."""

    began_s: float
    phases_s: Mapping[str, float]


@dataclass
class Account:
    """Keeps the account of one job. Times are in seconds of one clock.

    Thread rule: one thread.
    """

    history: list[Reset] = field(default_factory=list)
    _spent_s: dict[str, float] = field(default_factory=dict)  # in the reset that goes on
    _reset_s: float = 0.0  # when that began
    _phase: str = ""  # of the reset that goes on, "" while there is training
    _since_s: float = 0.0
    _began_s: float | None = None  # the first commit
    _first_work: tuple[int, int] = (0, 0)
    _last_s: float = 0.0  # the last that was told of
    _work: tuple[int, int] = (0, 0)  # samples and commits
    _part: tuple[float, tuple[int, int]] | None = None  # where this part between resets began
    _parts_s: float = 0.0
    _parts_work: tuple[int, int] = (0, 0)
    # The duration of each completed reset, and the work in it
    _in_resets: list[tuple[float, tuple[int, int]]] = field(default_factory=list)
    _before_reset: tuple[int, int] = (0, 0)  # the work until the current reset

    @property
    def resets(self) -> int:
        """How many resets are over."""
        return len(self.history)

    @property
    def phases_s(self) -> dict[str, float]:
        """What all resets together have spent in each phase, in seconds."""
        return {name: sum(reset.phases_s[name] for reset in self.history) for name in PHASES}

    def training_s(self, now_s: float) -> float | None:
        """How long ago the training began, None unless the ranks train."""
        return None if self._began_s is None or self._phase else now_s - self._began_s

    def note_gathering(self, now_s: float) -> None:
        """A member of the generation that trained is back in `init`."""
        if self._began_s is not None and not self._phase:
            self._end_part()
            self._phase, self._since_s = "detection", self._last_s
            self._spent_s, self._reset_s = dict.fromkeys(PHASES, 0.0), self._last_s
            self._enter("agreement", now_s)

    def note_forming(self, now_s: float) -> None:
        """It is decided who is in the next generation."""
        self._enter("mesh", now_s)

    def note_formed(self, now_s: float) -> None:
        """The generation's ranks are connected."""
        self._enter("state", now_s)

    def note_progress(self, now_s: float, samples: int, commits: int, *, is_commit: bool) -> None:
        """Rank 0 has committed, or else has sent its state to all.

        Args:
            samples: trained and committed since the job began, 0 where the script tells none.
            commits: likewise.
        """
        self._work = samples, commits
        self._last_s = now_s
        if not is_commit:
            self._enter("first step", now_s)
            return
        if self._began_s is None:
            self._began_s, self._first_work = now_s, self._work
        if self._phase:
            self._enter("", now_s)
            self.history.append(Reset(self._reset_s, self._spent_s))
            done = _difference(self._work, self._before_reset)
            self._in_resets.append((sum(self._spent_s.values()), done))
        if self._part is None:
            self._part = now_s, self._work

    def sentences(self) -> list[str]:
        """What is told when the job is over; nothing where no ranks have come or gone."""
        if not self.resets:
            return []
        total_s = sum(self.phases_s.values())
        parts = ", ".join(f"{name} {_seconds(time)}" for name, time in self.phases_s.items())
        said = [f"{counted(self.resets, 'reset')} cost {_seconds(total_s)}: {parts}"]
        found = self.goodput()
        if found is not None:
            kind, number, spent_s, share = found
            parts_s, parts_work = self._parts_until_here()
            between = parts_work[0 if kind == "samples" else 1] / parts_s
            said.append(
                f"{number:,} {kind} in {_seconds(spent_s)}, {number / spent_s:,.4g} per second; "
                f"between the resets {between:,.4g} per second: goodput {share:.1%}"
            )
        return said

    def goodput(self) -> tuple[str, int, float, float] | None:
        """Return the unit (samples, or commits), the count, its time in seconds, and the
        share of that time that was as productive as the parts between resets. None where too little
        is known.

        Work that is first reported after a reset counts for at most the time that the reset took:
        it may have been done before.
        """
        if self._began_s is None:
            return None
        spent_s = self._last_s - self._began_s
        index = 0 if self._work[0] else 1
        done = self._work[index] - self._first_work[index]
        parts_s, parts_work = self._parts_until_here()
        between = parts_work[index]
        if min(spent_s, parts_s) <= 0 or min(done, between) <= 0:
            return None
        each_s = parts_s / between
        useful_s = sum(min(work[index] * each_s, took_s) for took_s, work in self._in_resets)
        share = min(1.0, (parts_s + useful_s) / spent_s)
        return ("samples", "commits")[index], done, spent_s, share

    def _enter(self, phase: str, now_s: float) -> None:
        """Ends the phase that goes on, and begins one; "" is training."""
        if self._phase:
            now_s = max(now_s, self._since_s)  # news of two threads may come in the other order
            self._spent_s[self._phase] += now_s - self._since_s
            self._phase, self._since_s = phase, now_s

    def _end_part(self) -> None:
        """The part between two resets ends with the last commit that was told of."""
        self._parts_s, self._parts_work = self._parts_until_here()
        self._part, self._before_reset = None, self._work

    def _parts_until_here(self) -> tuple[float, tuple[int, int]]:
        """How long all parts between resets were, and what was done in them."""
        if self._part is None:
            return self._parts_s, self._parts_work
        began_s, before = self._part
        done = _difference(self._work, before)
        work = self._parts_work[0] + done[0], self._parts_work[1] + done[1]
        return self._parts_s + self._last_s - began_s, work


def _difference(now: tuple[int, int], then: tuple[int, int]) -> tuple[int, int]:
    return now[0] - then[0], now[1] - then[1]


def _seconds(time_s: float) -> str:
    return f"{time_s:.2f} s" if time_s < 10 else f"{time_s:,.0f} s"
