"""Decisions about the processes of a job: the actions, and the rules for a fixed number of them.

Pure: no process, no socket, no clock. The rules for processes that come and go are in
`elastic/membership.py`.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from hvdtune.core.job.channel import Closed, Formed, JobEvent, Left, Lost


@dataclass(frozen=True)
class Start:
    """Start the process of a worker."""

    worker: int


@dataclass(frozen=True)
class Kill:
    """End the worker's process; `why` is its failure, "" for none."""

    worker: int
    why: str = ""


@dataclass(frozen=True)
class Terminate:
    """Ask all processes that still run to end (SIGTERM)."""


@dataclass(frozen=True)
class Abandon:
    """Fail the start-up of the generation that forms: a member of it is lost."""

    generation: int
    why: str


@dataclass(frozen=True)
class Finish:
    """End the job.

    Attributes:
        why: the reason for a failure; "" if a rank returned from its script, or if the return
            codes of the processes are the reason.
        failed: the worker that failed, None for none or several.
        leaving: dismissed workers, which have time to end.
    """

    why: str = ""
    failed: int | None = None
    leaving: tuple[int, ...] = ()


def shell_code(code: int) -> int:
    """Return the exit code that a shell gives a process of this return code."""
    return 128 - code if code < 0 else code


def describe_exit(code: int) -> str:
    """Describe the end of a process by its return code."""
    if code >= 0:
        return f"exited with code {code}"
    known = -code in set(signal.Signals)
    return f"was killed by {signal.Signals(-code).name if known else f'signal {-code}'}"


class FixedMembership:
    """Decides for a fixed number of processes: all start at once, and one failure ends the job.

    Thread rule: one thread.
    """

    def __init__(
        self, title: str, names: Sequence[str], graces_s: tuple[float, float], *, has_ranks: bool
    ) -> None:
        """
        Args:
            title: the name of the job.
            names: those of its processes.
            graces_s: after a failure, for the others to report and exit, then to end after SIGTERM.
            has_ranks: the processes form a job.
        """
        self._title, self._names = title, names
        self._report_s, self._terminate_s = graces_s
        self.has_formed = not has_ranks
        self._is_gathering = has_ranks  # no job yet, or no longer one
        self._waiting = list(range(len(names)))  # not started yet
        self._running = set(self._waiting)
        self._codes: dict[int, int] = {}  # of those that ended, in the order of their ends
        self._signalled: set[int] = set()
        self._has_abandoned = self._is_over = False
        self._failed_s: float | None = None
        self._start_failure = self._loss = ""
        self._gone: list[int] = []  # in the order in which the job lost them
        self._given_up: set[int] = set()  # by the ranks of the latest job

    def note_exit(self, rank: int, code: int) -> None:
        """The rank's process has ended (code -N: by signal N)."""
        self._running.discard(rank)
        self._codes[rank] = code

    def note_event(self, event: JobEvent) -> None:
        """The ranks report an event."""
        match event:
            case Formed():
                self.has_formed, self._is_gathering = True, False
                self._given_up.clear()
            case Closed():
                self._is_gathering = True
            case Lost(message=message) if self._is_gathering:
                self._start_failure = self._start_failure or message
            case Lost(rank=rank, message=message):
                self._gone.append(rank)
                self._given_up.add(rank)
                self._loss = self._loss or message
            case Left(rank=rank):
                self._gone.append(rank)

    def decide(self, now_s: float) -> list[Start | Terminate | Abandon | Finish]:
        """Return what follows from the news; without news, nothing."""
        if self._is_over:
            return []
        if self._waiting:
            starting, self._waiting = self._waiting, []
            return [Start(rank) for rank in starting]
        if self._failed_s is None and self._is_failing():
            self._failed_s = now_s
        failed_for_s = 0.0 if self._failed_s is None else now_s - self._failed_s
        if not self._running or failed_for_s > self._report_s + self._terminate_s:
            self._is_over = True
            return [Finish()]
        if failed_for_s > self._report_s and not self._signalled:
            self._signalled = set(self._running)
            return [Terminate()]
        if not self._codes or not self._is_gathering or self._has_abandoned:
            return []
        # Only the launcher can know: the rank may never have connected to anything.
        self._has_abandoned = True
        rank = next(iter(self._codes))
        how = describe_exit(self._codes[rank])
        return [Abandon(0, f"rank {rank} {how} before all ranks had called hvd.init()")]

    def _is_failing(self) -> bool:
        cannot_form = bool(self._start_failure) and not self.has_formed
        return cannot_form or any(self._codes.values()) or bool(self._left_behind())

    def _left_behind(self) -> set[int]:
        """Return the ranks that still run, if all others have ended and gave them up. A stopped
        process would never end."""
        return self._running if self._codes and self._given_up >= self._running else set()

    def verdict(self, *, is_stopped: bool) -> tuple[int, str, int]:
        """Return the job's exit code, the reason in one line ("" for none) and the rank to quote.

        The launcher has ended all processes whose exit was not noted.
        """
        failed = [rank for rank, code in self._codes.items() if code]
        failed = [rank for rank in failed if rank not in self._signalled]
        if is_stopped and not failed:
            return 128 + signal.SIGTERM, f"{self._title} was stopped", 0
        no_job = f"{self._title} ended without calling hvd.init(): its processes never formed a job"
        if not self.has_formed and not self._running and not any(self._codes.values()):
            return 0, no_job, 0
        if self._start_failure and (failed or not self.has_formed):
            rank = failed[0] if failed else 0
            return (shell_code(self._codes[rank]) if failed else 1), self._start_failure, rank
        if failed:
            return self._first_failure(failed)
        if left_behind := self._left_behind():
            rank = min(left_behind)
            who = self._names[rank]
            return 1, f"{who} had not ended when all others had: {self._loss}", rank
        return (0, "", 0) if self.has_formed else (1, no_job, 0)

    def _first_failure(self, failed: list[int]) -> tuple[int, str, int]:
        """Blame the rank that the job lost first: the others fail because of it, maybe before it
        ends."""
        rank = next((rank for rank in self._gone if rank in failed), failed[0])
        reason = f"{self._names[rank]} {describe_exit(self._codes[rank])}"
        if self._loss and rank not in self._gone:
            reason = f"{reason} because {self._loss}"
        return shell_code(self._codes[rank]), reason, rank
