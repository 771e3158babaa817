"""A command of another runtime: its processes, their output, and how it ends."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hvdtune.core.job.interrupt import check_signals, defer_signals, resume_signals
from hvdtune.launcher.output import Output, Writer
from hvdtune.launcher.run import ExitReport, describe_exit, shell_code, wait_for_end
from hvdtune.launcher.spawn import ProcessGroup

if TYPE_CHECKING:
    from typing_extensions import Self

_LAST_OUTPUT_S: Final = 2.0
# Once a process has failed the others have this long to report, then this long to end. Launchers
# such as torchrun start sessions of their own, which only they can end.
_REPORT_S: Final = 2.0
_TERMINATE_S: Final = 10.0
_TAIL_LINES: Final = 40


@dataclass(frozen=True)
class CommandPlan:
    """The argument vector, and the environment of each process that is started with it."""

    command: tuple[str, ...]
    environs: tuple[Mapping[str, str], ...]


class Command:
    """A running command. A context manager: leaving it leaves no process. Used from one thread."""

    def __init__(self, plan: CommandPlan, writers: Sequence[Writer] = ()) -> None:
        """Starts it. Raises LaunchError when a process cannot be started."""
        self._began_s = time.monotonic()
        self._ended_s: float | None = None
        self._failed_at_s: float | None = None
        self._failed_rank: int | None = None
        self._report: ExitReport | None = None
        self._stopped = self._signalled = False
        self._group = ProcessGroup()
        self._output = Output(writers, _TAIL_LINES)
        self._children: list[subprocess.Popen[bytes]] = []
        defer_signals(self)
        try:
            for rank, environ in enumerate(plan.environs):
                child = self._group.start(plan.command, environ, ())
                self._children.append(child)
                self._output.watch(rank, child)
            self._output.start()
        except BaseException:
            self._end()
            raise

    @property
    def wall_s(self) -> float:
        """Seconds from the start to the end of the last process; so far, while one runs."""
        return (self._ended_s or time.monotonic()) - self._began_s

    def tail(self, rank: int = 0) -> tuple[str, ...]:
        """The last lines of a process."""
        return self._output.tail(rank)

    def wait(self, timeout_s: float) -> None:
        """Returns when a process has ended since the last call, or after the timeout."""
        check_signals()
        self._output.wait_for_change(timeout_s)
        self._note_end()

    def poll(self) -> ExitReport | None:
        """How the command ended; None while it runs."""
        if self._report is None:
            self._supervise()
        return self._report

    def terminate(self, grace_s: float = _TERMINATE_S) -> None:
        """Ends the command: SIGTERM, then SIGKILL to all that is left after the grace."""
        if self._report is not None:
            return
        self._stopped = True
        self._group.signal_children(signal.SIGTERM)
        try:
            wait_for_end(self._output, self._running, grace_s)
        finally:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.terminate()

    def _running(self) -> bool:
        return None in [child.poll() for child in self._children]

    def _note_end(self) -> None:
        if self._ended_s is None and not self._running():
            self._ended_s = time.monotonic()

    def _supervise(self) -> None:
        self._note_end()
        if self._ended_s is not None:
            self._end()
        elif self._failed_at_s is None:
            self._failed_rank = self._first_failed()
            if self._failed_rank is not None:
                self._failed_at_s = time.monotonic()
        elif time.monotonic() - self._failed_at_s > _REPORT_S + _TERMINATE_S:
            self._end()
        elif time.monotonic() - self._failed_at_s > _REPORT_S and not self._signalled:
            self._signalled = True
            self._group.signal_children(signal.SIGTERM)

    def _first_failed(self) -> int | None:
        order = [*self._output.ended(), *range(len(self._children))]
        return next((rank for rank in order if self._children[rank].returncode), None)

    def _end(self) -> None:
        try:
            self._end_all()
        finally:
            resume_signals(self)

    def _end_all(self) -> None:
        rank = self._first_failed() if self._failed_rank is None else self._failed_rank
        self._group.kill()
        self._output.close(_LAST_OUTPUT_S)
        self._ended_s = self._ended_s or time.monotonic()
        if self._stopped:
            self._report = ExitReport(128 + signal.SIGTERM, "the command was stopped", ())
        elif rank is None:
            self._report = ExitReport(0, "", self._output.tail(0) if self._children else ())
        else:
            code = self._children[rank].returncode
            who = f"rank {rank}" if len(self._children) > 1 else "the command"
            reason = f"{who} {describe_exit(code)}"
            self._report = ExitReport(shell_code(code), reason, self._output.tail(rank), rank)


def free_port(address: str) -> int:
    """A port that nobody listens on at the moment."""
    with socket.create_server((address, 0)) as server:
        return int(server.getsockname()[1])
