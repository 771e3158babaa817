"""Whether this process can still call anything: the evidence by which a deadlock is proved.

A thread that calls hvdtune has a Python frame, even where C++ code of a framework makes it call.
While all of them are inside waits for operations that are not done, none can call anything, nor
start a thread that could. Each looks whether this is so when it has waited for a while, which it
does while it holds Python's lock, so that none of the others runs.

A thread that does anything else, such as one that loads data, could call something next: with one
no deadlock is proved, and the job is explained when the time for that has come. Frameworks whose
threads wait outside of Python, as TensorFlow's do, are never proved to be blocked.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from hvdtune.core.rank.process import PROCESS

if TYPE_CHECKING:
    from hvdtune.core import _native


def note_wait(native: _native.Runtime) -> None:
    """This thread has waited for a while, and will wait on."""
    PROCESS.blocked.add(threading.get_ident())
    threads = len(sys._current_frames())
    native.note_blocked_threads(threads if threads == len(PROCESS.blocked) else 0)


def note_end_of_wait(native: _native.Runtime | None) -> None:
    """This thread, if it was noted, waits no longer."""
    PROCESS.blocked.discard(threading.get_ident())
    if native is not None:
        native.note_blocked_threads(0)
