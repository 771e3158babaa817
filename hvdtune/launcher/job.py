"""A job: its processes, the loop that supervises them, and its end.

It is the same for a fixed number of hvdtune's ranks or of other processes (`ranks.py`) and for
ranks that come and go (`elastic/workers.py`). Each has its `Workers`, which start the processes and
decide about them.
"""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from hvdtune.core.job.channel import NEVER_ADOPTED, JobEvent
from hvdtune.core.job.interrupt import check_signals, defer_signals, resume_signals
from hvdtune.launcher.decisions import Finish, Terminate

if TYPE_CHECKING:
    from typing_extensions import Self

    from hvdtune.core.config.knobs import Setting
    from hvdtune.launcher.spawn import Processes

# A caller that takes one event after another looks at the processes at most this often.
_LEAST_TURN_S: Final = 0.02


@dataclass(frozen=True)
class ExitReport:
    """The end of a job.

    Attributes:
        returncode: of the first rank to fail (128 + N if signal N killed it), 1 if the job never
            formed, 0 if all went well.
        reason: one line, "" if there is nothing to report; with returncode 0 it is a remark.
        tail: the last lines of `rank`.
        rank: the one that failed, else 0.
    """

    returncode: int
    reason: str
    tail: tuple[str, ...]
    rank: int = 0


class Workers(Protocol):
    """The processes of one kind of job, and the decisions about them."""

    processes: Processes
    turn_s: float = 0.25  # longest time between two looks

    def look(self) -> list[JobEvent]:
        """Note exits of processes, and return the new events of the ranks.

        An exit is taken before the events and noted after them: the job formed before a rank left.
        """
        ...

    def events(self, timeout_s: float) -> list[JobEvent]:
        """Return the new events; wait for the first, or the end of a process, until the timeout."""
        if timeout_s > 0:
            self.processes.output.wait_for_change(timeout_s)
        return []

    def last_events(self, *, is_stopped: bool) -> list[JobEvent]:
        """Return the events that came before all processes had ended."""
        return []

    def decide(self) -> Sequence[Any]:
        """Return the actions that follow."""
        ...

    def carry_out(self, action: Any) -> None:
        """Carry out an action other than Terminate and Finish."""
        ...

    def propose(self, setting: Setting) -> int:
        """Ask the ranks to adopt the setting; return its version."""
        return NEVER_ADOPTED

    def verdict(self, finish: Finish | None) -> tuple[int, str, int]:
        """Return exit code, reason and the rank to quote. Without `finish` the job was stopped."""
        ...

    def close(self) -> None:
        """Leave no thread and no descriptor."""
        return


class Job:
    """A running job. A context manager: leaving it leaves no process. Used from one thread.

    It makes progress only inside its methods.
    """

    def __init__(self, workers: Workers, terminate_grace_s: float) -> None:
        """Starts nothing yet.

        Args:
            terminate_grace_s: time for the processes to end after SIGTERM.
        """
        self._workers, self._processes = workers, workers.processes
        self._terminate_grace_s = terminate_grace_s
        self._events: deque[JobEvent] = deque()
        self._report: ExitReport | None = None
        self._began_s = time.monotonic()
        self._turned_s = self._began_s - _LEAST_TURN_S
        self._ended_s: float | None = None
        self._has_failed = False  # a turn; the job can only be ended
        defer_signals(self)

    def start(self) -> Self:
        """Start the first processes. Raises LaunchError if one cannot be started."""
        try:
            self._turn()
        except BaseException:
            self._end(None)
            raise
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()

    @property
    def write_error(self) -> str:
        """The reason why output was not passed on, "" if it was."""
        return self._processes.output.write_error

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids in the order of the ranks."""
        return tuple(self._processes.pids.values())

    @property
    def wall_s(self) -> float:
        """Seconds from the start to the end of the last process; so far, while one runs."""
        return (self._ended_s or time.monotonic()) - self._began_s

    def tail(self, rank: int = 0) -> tuple[str, ...]:
        """Return the last lines of a rank."""
        return self._processes.output.tail(rank)

    def propose(self, setting: Setting) -> int:
        """Ask all ranks to adopt `setting`; return its version, NEVER_ADOPTED without ranks."""
        return self._workers.propose(setting)

    def next_event(self, timeout_s: float) -> JobEvent | None:
        """Return the oldest event of the ranks not yet taken, None if none comes in time.

        In an elastic job a generation begins with Formed and ends with Closed.
        """
        deadline_s = time.monotonic() + timeout_s
        check_signals()
        if time.monotonic() - self._turned_s >= _LEAST_TURN_S:
            self._turn()
        while not self._events and self._report is None:
            left_s = max(0.0, deadline_s - time.monotonic())
            self._events.extend(self._workers.events(min(left_s, self._workers.turn_s)))
            if self._events or left_s == 0.0:
                break
            check_signals()
            self._turn()
        return self._events.popleft() if self._events else None

    def poll(self) -> ExitReport | None:
        """Return the end of the job, None while it runs. Events stay for `next_event`."""
        self._turn()
        return self._report

    def wait(self) -> ExitReport:
        """Wait for the end. Drops the events. Raises LaunchError if a process cannot be started."""
        while (report := self.poll()) is None:
            self._events.clear()
            self.wait_for_change(self._workers.turn_s)
        return report

    def wait_for_change(self, timeout_s: float) -> bool:
        """Return when a rank has ended since the last call, or after the timeout: True if any
        still runs."""
        check_signals()
        self._processes.output.wait_for_change(timeout_s)
        return self._is_running()

    def terminate(self, grace_s: float | None = None) -> None:
        """End the job: SIGTERM to the ranks, SIGKILL to all that is left after the grace.

        The default grace is that of the job.
        """
        if self._report is None and (self._has_failed or self.poll() is None):
            self._processes.terminate()
            try:
                grace_s = self._terminate_grace_s if grace_s is None else grace_s
                self._processes.wait_for_end(grace_s)
            finally:
                self._end(None)

    def _is_running(self) -> bool:
        is_running = bool(self._processes.running)
        if not is_running and self._ended_s is None:
            self._ended_s = time.monotonic()
        return is_running

    def _turn(self) -> None:
        """Note exits and events, and carry out the actions that are decided."""
        if self._report is not None or self._has_failed:
            return
        self._has_failed = True
        self._events.extend(self._workers.look())
        # What one decision changes may call for the next.
        while self._report is None and (actions := self._workers.decide()):
            for action in actions:
                self._carry_out(action)
        self._turned_s = time.monotonic()
        self._has_failed = False

    def _carry_out(self, action: Any) -> None:
        match action:
            case Terminate():
                self._processes.terminate()
            case Finish(leaving=leaving):
                self._processes.wait_for_end(self._terminate_grace_s, leaving)
                self._end(action)
            case _:
                self._workers.carry_out(action)

    def _end(self, finish: Finish | None) -> None:
        """Leave no process, thread or descriptor, whatever the state."""
        if self._report is not None:
            return
        self._report = ExitReport(128 + signal.SIGTERM, "", ())
        try:
            self._processes.close()
            self._is_running()
            self._events.extend(self._workers.last_events(is_stopped=finish is None))
            code, reason, rank = self._workers.verdict(finish)
            self._report = ExitReport(code, reason, self.tail(rank), rank)
        finally:
            self._workers.close()
            resume_signals(self)
