"""The main thread's Python stack for the core, which cannot take Python's lock to ask for it.

The core sends a signal to the main thread; faulthandler's handler, which is C, writes the stack to
a file in memory, whatever the thread does and any thread holds the lock. As with any signal, a
system call may return early; Python's own start again.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# Real-time signals have no conventional use. Libraries take the first ones, so start at the last.
CANDIDATES: Final = range(signal.SIGRTMAX - 1, signal.SIGRTMIN + 1, -1)


@dataclass(frozen=True, eq=False)
class StackSource:
    """What the core needs to ask: `signal` makes the main thread write its stack to `fd`."""

    signal: int
    fd: int

    def close(self) -> None:
        """Releases signal and file. The core must not ask for a stack any more."""
        # A signal that has not arrived yet would end the process; to ignore it discards it. Only
        # the main thread may use Python's own function for that.
        ctypes.CDLL(None).signal(self.signal, ctypes.c_void_p(signal.SIG_IGN))
        faulthandler.unregister(self.signal)
        os.close(self.fd)


def open_stack_source() -> StackSource | None:
    """None where no signal is free or no file in memory can be made."""
    if not hasattr(os, "memfd_create"):
        return None
    try:
        number = next((n for n in CANDIDATES if not _has_handler(n)), None)
        if number is None:
            return None
        fd = os.memfd_create("hvdtune-stack", os.MFD_CLOEXEC)
    except OSError:
        return None  # hvdtune works without stacks
    faulthandler.register(number, file=fd, all_threads=False, chain=False)
    return StackSource(number, fd)


def _has_handler(number: int) -> bool:
    """Return whether the signal is caught or ignored; Python reports only its own handlers."""
    caught_or_ignored = 0
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in ("SigCgt", "SigIgn"):
            caught_or_ignored |= int(value, 16)
    return bool(caught_or_ignored >> (number - 1) & 1)
