"""Who may connect: those that prove to have the key, while any number of others try, too."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Final

from hvdtune.core.job import proof

_HANDSHAKE_S: Final = 5.0
MOST_HALF_OPEN: Final = 64
# Between two attempts to accept where the system has no descriptor to spare.
_RETRY_S: Final = 0.1


class Admission:
    """Hands each proved connection and its session key to `admitted`, on a thread of its own.

    At most `MOST_HALF_OPEN` connections are there whose other end has not proved itself yet. For a
    further one the oldest of them is closed; whoever that was may come again.

    Thread rule: `close` once, by the thread that made it. `_lock` guards `_half_open`, `_is_closed`
    and `_unproved`.
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
        """The address of who last showed that it has another key, "" for none."""
        with self._lock:
            return self._unproved

    def close(self) -> None:
        """Closes the listener, and the connections that have proved nothing yet."""
        with self._lock:
            self._is_closed = True
            for connection in self._half_open:
                _hang_up(connection)
        _hang_up(self._listener)  # wakes the thread
        self._thread.join()
        self._listener.close()

    def _listen(self) -> None:
        while True:
            try:
                connection, address = self._listener.accept()
            except OSError:
                with self._lock:
                    if self._is_closed:
                        return
                time.sleep(_RETRY_S)
                continue
            with self._lock:
                if len(self._half_open) >= MOST_HALF_OPEN:
                    _hang_up(self._half_open.pop(0))  # its thread closes it
                self._half_open.append(connection)
            threading.Thread(target=self._try, args=(connection, address[0]), daemon=True).start()

    def _try(self, connection: socket.socket, address: str) -> None:
        session, unproved = None, ""
        try:
            session = proof.accept(connection, *self._meant, _HANDSHAKE_S)
        except proof.UnprovedError:
            unproved = address
        with self._lock:
            self._unproved = unproved or self._unproved
            # One that has made room has been closed, whatever it has proved meanwhile.
            is_known = connection in self._half_open and session is not None
            with contextlib.suppress(ValueError):
                self._half_open.remove(connection)
            is_known = is_known and not self._is_closed
        if session is None or not is_known:
            connection.close()
            return
        self._admitted(connection, session)


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has hung up already
        connection.shutdown(socket.SHUT_RDWR)
