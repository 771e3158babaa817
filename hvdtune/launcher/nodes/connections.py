"""Connections of the launcher and of nodes.

A service accepts further connections after any failure of one. A connection ends when the other
host is gone.
"""

from __future__ import annotations

import errno
import functools
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

# A host that has lost its power or its network closes nothing. It is given up after 45 s, as ssh
# does with ServerAliveInterval=15.
_EVERY_S: Final = 15
_PROBES: Final = 2
# The connection has ended, none is waiting, or the listener was shut down.
_NOTHING_THERE: Final = (errno.ECONNABORTED, errno.EAGAIN, errno.EINVAL)
_PAUSE_S: Final = 0.1


def next_connection(listener: socket.socket) -> tuple[socket.socket, Any] | None:
    """Accept a connection; return it with its address, or None if that fails.

    While the process has no descriptor to spare, every attempt fails at once although a connection
    waits. Then this pauses before it returns, so that a loop around it does not spin.
    """
    try:
        return listener.accept()
    except OSError as error:
        if error.errno not in _NOTHING_THERE:
            time.sleep(_PAUSE_S)
        return None


def serve_aside(serve: Callable[[], None], connection: socket.socket) -> bool:
    """Call `serve` on a new thread. Return False if no thread can be started.

    If it cannot be started, or if `serve` raises, the connection is closed and the reason is
    printed.
    """

    def guarded() -> None:
        try:
            serve()
        except Exception as error:
            _give_up(connection, error)

    try:
        threading.Thread(target=guarded, name="hvdtune-connection", daemon=True).start()
    except RuntimeError as error:
        _give_up(connection, error)
        return False
    return True


def _give_up(connection: socket.socket, error: Exception) -> None:
    connection.close()
    text = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
    report(f"a connection was closed ({text})")


@functools.lru_cache(maxsize=64)
def report(text: str) -> None:
    """Print a warning, once for each text."""
    print(f"hvdtune: warning: {text}", file=sys.stderr, flush=True)


def end_with_host(
    connection: socket.socket, every_s: int = _EVERY_S, probes: int = _PROBES
) -> None:
    """Let the system end an idle connection whose other host stops answering.

    Args:
        every_s: seconds of silence before each probe.
        probes: number of unanswered probes that end the connection.
    """
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
        connection.setsockopt(socket.IPPROTO_TCP, option, every_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, probes)


def limit_unanswered(connection: socket.socket) -> None:
    """Let the system end a connection if sent data is not acknowledged in time.

    While data is unacknowledged, the system sends it again instead of probing. Only for an end that
    sends little: data that the other program does not read in time ends the connection, too.
    """
    limit_ms = 1000 * _EVERY_S * (1 + _PROBES)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)
