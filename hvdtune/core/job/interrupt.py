"""Signals that stop the launcher, as one exception.

Python raises it between any two instructions. In the middle of `Popen.poll` or `Event.wait` this
would leave a lock taken, and ending the job would never return. So while there are processes to end
(`defer_signals`), a signal is only noted. `check_signals` raises it at a safe point. If none comes,
the third signal has its default action: it ends this process, and its children notice that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Ids of the owners that have processes to end. One operation of a set is atomic, so any thread may.
_deferring: Final[set[int]] = set()
# The signals not yet raised, and when the latest came; the main thread's, as is all that handles
# signals.
_noted: Final[list[int]] = []
_latest_s = -1.0
# `timeout` and shells send a signal to a process and to its group: that is one request.
_ONE_REQUEST_S: Final = 0.1
_MOST_NOTED: Final = 2


class Stopped(KeyboardInterrupt):
    """SIGINT, SIGTERM or SIGHUP arrived. `exit_code` is what a shell would report for it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


@contextlib.contextmanager
def stop_signals(numbers: Sequence[signal.Signals] = _SIGNALS) -> Iterator[None]:
    """Let signals raise Stopped in the block, except those that are ignored (nohup) or handled.

    In the main thread; in any other, where Python delivers no signal, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _forget_latest()
    before = {number: signal.getsignal(number) for number in numbers}
    usual = (signal.SIG_DFL, signal.default_int_handler)
    taken = {number: action for number, action in before.items() if action in usual}
    for number in taken:
        signal.signal(number, _stop)
    try:
        yield
        if taken:
            check_signals()
    finally:
        for number, action in taken.items():
            signal.signal(number, action)
        if taken:
            _noted.clear()


def defer_signals(owner: object) -> None:
    """Leaves signals to `check_signals` until `resume_signals`. `owner` has processes to end."""
    _deferring.add(id(owner))


def resume_signals(owner: object) -> None:
    """Ends what the owner's `defer_signals` began; raises Stopped for a signal that was noted.

    May be called again.
    """
    _deferring.discard(id(owner))
    if not _deferring:
        check_signals()


def check_signals() -> None:
    """Raises Stopped if a signal has been noted. Call it at a safe point, before a wait."""
    if _noted and threading.current_thread() is threading.main_thread():
        raise Stopped(_noted.pop(0))


def _forget_latest() -> None:
    global _latest_s
    _latest_s = -1.0


def _stop(number: int, _: FrameType | None) -> None:
    global _latest_s
    before_s, _latest_s = _latest_s, time.monotonic()
    if _latest_s - before_s < _ONE_REQUEST_S:
        return
    _noted.append(number)
    if not _deferring:
        check_signals()
    elif len(_noted) > _MOST_NOTED:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
