"""Signals that ask the launcher to stop, as one exception.

Python raises it between any two instructions. In the middle of `Popen.poll` or `Event.wait` that
leaves a lock taken for good, and ending the job then waits for it for ever. So while there are
processes to end (`hold`) a signal is only noted, and raised where nothing is half done.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# Ids of what has processes to end. One operation of a set is atomic, so any thread may.
_holders: Final[set[int]] = set()
# The signals not yet raised; the main thread's, as is all that handles signals.
_noted: Final[list[int]] = []


class Stopped(KeyboardInterrupt):
    """SIGINT, SIGTERM or SIGHUP arrived. `exit_code` is what a shell would report for it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


@contextlib.contextmanager
def stop_signals(numbers: Sequence[signal.Signals] = _SIGNALS) -> Iterator[None]:
    """Inside, the signals raise Stopped; one that is ignored (nohup) or handled stays so.

    In the main thread; in any other, where Python delivers no signal, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}
    for number, action in before.items():
        if action in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)
        _noted.clear()


def hold(owner: object) -> None:
    """Until `release`, signals are raised by `stop_point` only. `owner` has processes to end."""
    _holders.add(id(owner))


def release(owner: object) -> None:
    """The owner has ended its processes. Raises Stopped for what was noted, if nobody else holds.

    May be called again.
    """
    _holders.discard(id(owner))
    if not _holders:
        stop_point()


def stop_point() -> None:
    """Raises Stopped if a signal has been noted. Where nothing is half done, before a wait."""
    if _noted and threading.current_thread() is threading.main_thread():
        raise Stopped(_noted.pop(0))


def _stop(number: int, _: FrameType | None) -> None:
    _noted.append(number)
    if not _holders:
        stop_point()
