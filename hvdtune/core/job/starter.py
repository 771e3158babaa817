"""What started this process, where no variable names the job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

# Hydra starts one of these on every host, and gives each the address of the one mpiexec.
_PROXY: Final = "hydra_pmi_proxy"
_CONTROL_PORT: Final = b"--control-port"


def starter_name(*, on_one_host: bool) -> str:
    """A name that the processes of one start have in common, "" where nothing is known.

    Of Hydra's, that is where its mpiexec listens. Of others on one host, their parent.
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
    """The processes above this one, the nearest first, as far as this one may know them."""
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
    """In clock ticks since the host's start: a process of this number has it for itself."""
    fields = _stat(pid)
    return fields[19] if fields else ""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on, which is the third."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    return text.rpartition(")")[2].split()
