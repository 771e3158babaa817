"""Process groups that end with the process that made them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from hvdtune.core.job.child_command import process_group
from hvdtune.errors import LaunchError

# The group's leader. It waits for the end of a pipe that only the launcher holds, so that even a
# launcher killed with SIGKILL takes the whole group along, grandchildren included.
_GUARD: Final = "trap '' HUP INT TERM; read -r _; kill -KILL 0"

# One that was being started while the others were looked at is found in the next.
_ROUNDS: Final = 3


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

    def signal_children(self, number: signal.Signals) -> None:
        """Sends a signal to the children that still run, not to theirs."""
        for child in self._children:
            if child.poll() is None:
                child.send_signal(number)

    def kill_left_by(self, variable: str, value: str) -> None:
        """Ends the group's processes in whose environment a variable has this value: those that a
        child has left which had it, such as readers of data.

        What it has started in a group of its own is left alone.
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

    def kill(self) -> None:
        """Ends the children and what they have started, at once. May be called again."""
        if self._guard.returncode is None:
            # The guard is not reaped yet, so the number still is this group's.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._guard.pid, signal.SIGKILL)
            for child in self._children:
                child.wait()
            self._guard.wait()
            assert self._guard.stdin is not None
            self._guard.stdin.close()


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
