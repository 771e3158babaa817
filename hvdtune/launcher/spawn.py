"""Process groups that end with the process that made them, and the processes of a job in one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from hvdtune.core.job.child_command import process_group
from hvdtune.core.job.interrupt import check_signals
from hvdtune.errors import LaunchError
from hvdtune.launcher.output import Output, Writer

# The group's leader. It waits for the end of a pipe that only the launcher holds, so that even a
# launcher killed with SIGKILL takes the whole group along, grandchildren included.
_GUARD: Final = "trap '' HUP INT TERM; read -r _; kill -KILL 0"

# One that was being started while the others were looked at is found in the next.
_ROUNDS: Final = 3
_LAST_OUTPUT_S: Final = 2.0


class ProcessGroup:
    """Child processes that share a process group, apart from the launcher's own.

    Ends with `kill()`, or with the launcher, however that dies. Used from one thread.
    """

    def __init__(self) -> None:
        try:
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                **process_group(0),
            )
        except OSError as error:
            raise LaunchError(f"cannot start a process group: {error.strerror}") from None
        self._children: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        inherited: Sequence[int],
        *,
        stderr: int | None = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        """Starts a child with a pipe for stdout and one for stderr, unless that is None: then it
        is this process's. The child inherits these descriptors.

        Raises LaunchError when the program cannot be started.
        """
        try:
            child = subprocess.Popen(
                command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                pass_fds=tuple(inherited),
                **process_group(self._guard.pid),
            )
        except OSError as error:
            raise LaunchError(f"cannot start {command[0]}: {error.strerror}") from None
        self._children = [one for one in self._children if one.returncode is None] + [child]
        return child

    def kill(self) -> None:
        """End the children and their descendants at once. May be called again."""
        if self._guard.returncode is None:
            # The guard is not reaped yet, so the number still is this group's.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._guard.pid, signal.SIGKILL)
            for child in self._children:
                child.wait()
            self._guard.wait()
            assert self._guard.stdin is not None
            self._guard.stdin.close()


class Processes(ProcessGroup):
    """The processes of a job by number, and their output. Ends with `close()`.

    Attributes:
        output: reads what the processes write.
    """

    def __init__(self, writers: Sequence[Writer], tail_lines: int) -> None:
        """Raises LaunchError if no process group can be made."""
        super().__init__()
        self._numbered: dict[int, subprocess.Popen[bytes]] = {}
        self._ended: set[int] = set()
        self.output = Output(writers, tail_lines)
        self.output.start()

    def start_worker(
        self,
        number: int,
        command: Sequence[str],
        environ: Mapping[str, str],
        inherited: Sequence[int] = (),
    ) -> None:
        """Start a process. Raises LaunchError if the program cannot be started."""
        child = self.start(command, environ, inherited)
        self._numbered[number] = child
        self.output.watch(number, child)

    @property
    def pids(self) -> dict[int, int]:
        """Process ids by number."""
        return {number: child.pid for number, child in self._numbered.items()}

    @property
    def running(self) -> list[int]:
        """The numbers of the processes that run."""
        return [number for number, child in self._numbered.items() if child.poll() is None]

    def take_exits(self) -> list[tuple[int, int]]:
        """Return number and return code of each process that ended since the last call, the first
        to end first."""
        codes = {number: child.poll() for number, child in self._numbered.items()}
        order = dict.fromkeys([*self.output.ended(), *self._numbered])
        exits = [(number, code) for number in order if (code := codes[number]) is not None]
        new = [(number, code) for number, code in exits if number not in self._ended]
        self._ended.update(number for number, _ in new)
        return new

    def send_signal(self, number: int, signum: signal.Signals) -> None:
        """Send a signal to one process, if it runs."""
        self._numbered[number].send_signal(signum)

    def kill_left_by(self, variable: str, value: str) -> None:
        """End the processes that have this variable in their environment, such as readers of data
        that a worker has left. Those in a group of their own are left alone.
        """
        entry = f"{variable}={value}".encode()
        for _ in range(_ROUNDS):
            members = set(_members(self._guard.pid)) - {self._guard.pid}
            found = [pid for pid in members if entry in _environment(pid)]
            if not found:
                break
            for pid in found:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM to all processes that run, but not to their descendants."""
        for number in self.running:
            self.send_signal(number, signal.SIGTERM)

    def wait_for_end(self, grace_s: float, numbers: Collection[int] | None = None) -> None:
        """Return when these processes (None: all) have ended, or after the grace; a signal ends
        the wait."""
        deadline_s = time.monotonic() + grace_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            running = self.running
            if not (running if numbers is None else set(running) & set(numbers)):
                break
            self.output.wait_for_change(min(left_s, 0.1))
            check_signals()  # asked again: no more grace

    def close(self) -> None:
        """Leave no process and no descriptor; read the rest of the output."""
        self.kill()
        self.output.close(_LAST_OUTPUT_S)


def _members(group: int) -> list[int]:
    """The processes of a group that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            state, _, own, *_ = path.read_text().rpartition(")")[2].split()
            if int(own) == group and state != "Z":
                found.append(int(path.parent.name))
    return found


def _environment(pid: int) -> list[bytes]:
    """The variables that a process was started with, none where it has ended."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


@contextlib.contextmanager
def sealed_file(name: str, content: bytes) -> Iterator[int]:
    """A memory file that nobody can change: nothing of it is in argv, environment or on disk."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with os.fdopen(fd, "wb", closefd=False) as file:
            file.write(content)
        fcntl.fcntl(
            fd,
            fcntl.F_ADD_SEALS,
            fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL,
        )
        yield fd
    finally:
        os.close(fd)
