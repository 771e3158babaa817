"""Admission of connections that prove they have the key, however many others connect."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from hvdtune.core.job import proof
from hvdtune.launcher.nodes.connections import next_connection, serve_aside

_HANDSHAKE_S: Final = 5.0
MOST_HALF_OPEN: Final = 64


class Admission:
    """Passes each proved connection and its session key to `admitted`, on its own thread.

    At most `MOST_HALF_OPEN` connections are unproved at a time. A further one replaces the oldest,
    which may connect again.

    Thread rule: the thread that made it calls `close`, once. `_lock` guards `_half_open`,
    `_is_closed` and `_unproved`.
    """

    def __init__(
        self,
        listener: socket.socket,
        key: bytes,
        purpose: bytes,
        number: int,
        admitted: Callable[[socket.socket, bytes], None],
    ) -> None:
        self._listener = listener
        self._meant = (key, purpose, number)
        self._admitted = admitted
        self._lock = threading.Lock()
        self._half_open: list[socket.socket] = []  # the oldest first
        self._is_closed = False
        self._unproved = ""
        self._thread = threading.Thread(target=self._listen, name="hvdtune-admission", daemon=True)
        self._thread.start()

    @property
    def unproved(self) -> str:
        """The address of the last process with another key; "" without one."""
        with self._lock:
            return self._unproved

    def close(self) -> None:
        """Close the listener and the unproved connections."""
        with self._lock:
            self._is_closed = True
            for connection in self._half_open:
                _hang_up(connection)
        _hang_up(self._listener)  # wakes the thread
        self._thread.join()
        self._listener.close()

    def _listen(self) -> None:
        while True:
            accepted = next_connection(self._listener)
            if accepted is None:
                with self._lock:
                    if self._is_closed:
                        return
                continue
            connection, address = accepted
            with self._lock:
                if len(self._half_open) >= MOST_HALF_OPEN:
                    _hang_up(self._half_open.pop(0))  # its thread closes it
                self._half_open.append(connection)
            if not serve_aside(partial(self._try, connection, address[0]), connection):
                self._settle(connection)

    def _try(self, connection: socket.socket, address: str) -> None:
        session = None
        try:
            session = proof.accept(connection, *self._meant, _HANDSHAKE_S)
        except proof.UnprovedError:
            with self._lock:
                self._unproved = address
        finally:
            is_open = self._settle(connection)
        if session is None or not is_open:
            connection.close()
            return
        self._admitted(connection, session)

    def _settle(self, connection: socket.socket) -> bool:
        """Remove it from the half-open connections; return False if it was closed before."""
        with self._lock:
            # A connection that was replaced is closed, even if it was proved meanwhile.
            is_open = connection in self._half_open and not self._is_closed
            with contextlib.suppress(ValueError):
                self._half_open.remove(connection)
            return is_open


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other end has closed it
        connection.shutdown(socket.SHUT_RDWR)
