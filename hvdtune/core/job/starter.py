"""A name for the job, from the program that started this process, if no variable names it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

# Hydra starts one of these on every host, with the address of its mpiexec.
_PROXY: Final = "hydra_pmi_proxy"
_CONTROL_PORT: Final = b"--control-port"


def starter_name(*, on_one_host: bool) -> str:
    """Return a name that all processes of one start share, or "" if it is unknown.

    For Hydra this is the address of its mpiexec; for other processes on one host, their parent.
    """
    ancestors = list(_ancestors())
    for pid in ancestors:
        words = _words(pid)
        if words and Path(os.fsdecode(words[0])).name == _PROXY and _CONTROL_PORT in words[:-1]:
            return "mpiexec-" + os.fsdecode(words[words.index(_CONTROL_PORT) + 1])
    if on_one_host and ancestors:
        return f"{os.uname().nodename}-{ancestors[0]}-{_start_time(ancestors[0])}"
    return ""


def _ancestors() -> list[int]:
    """Return the ancestors of this process that it may see, the nearest first."""
    found: list[int] = []
    pid = os.getppid()
    while pid > 0 and pid not in found:
        found.append(pid)
        fields = _stat(pid)
        pid = int(fields[1]) if fields else 0
    return found


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return []


def _start_time(pid: int) -> str:
    """Return its clock ticks since the host's start, which no other process of this number has."""
    fields = _stat(pid)
    return fields[19] if fields else ""


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()
