"""Signals that ask the launcher to stop, as one exception."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """SIGINT, SIGTERM or SIGHUP arrived. `exit_code` is what a shell would report for it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


@contextlib.contextmanager
def stop_signals() -> Iterator[None]:
    """Inside, the three signals raise Stopped; one that is ignored stays ignored (nohup).

    Only in the main thread.
    """
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, action in before.items():
        if action != signal.SIG_IGN:
            signal.signal(number, _stop)
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)


def _stop(number: int, _: FrameType | None) -> None:
    raise Stopped(number)
