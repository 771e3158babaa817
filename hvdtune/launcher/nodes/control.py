"""The connection between the launcher and a node that serves it, apart from those of ranks.

Frames of `hvdtune.launcher.frames`: the node says HELLO with what it has, the launcher says EXIT
with the exit code of the command when all is over, or REFUSED and why there will be no command.
Either end that is lost closes it.
"""

from __future__ import annotations

import socket
from typing import Final

import msgspec

from hvdtune.core.job.sealed import SealedChannel
from hvdtune.errors import LaunchError
from hvdtune.launcher.frames import REFUSED, Frames, frame
from hvdtune.launcher.nodes.connections import end_with_host, limit_unanswered

_READ_BYTES: Final = 1 << 16


class NodeFacts(msgspec.Struct, frozen=True):
    """What a node says of itself: its number, its name for its host, room for how many ranks,
    where it takes connections for them, and what its user has asked it for, by option."""

    version: str
    number: int
    host: str
    slots: int
    address: str
    port: int
    asked: dict[str, str]


class ControlConnection:
    """One end of it, of a proved connection. Used from one thread."""

    def __init__(self, connection: socket.socket, session: bytes, *, dialed: bool) -> None:
        end_with_host(connection)
        limit_unanswered(connection)
        self._channel = SealedChannel(connection, session, dialed=dialed)
        self._reader = Frames()

    def send(self, kind: bytes, payload: bytes) -> None:
        """Raises OSError when the other end has gone."""
        self._channel.local.sendall(frame(kind, payload))

    def receive(self, kind: bytes, timeout_s: float | None) -> bytes:
        """The payload of the next frame, which is of this kind.

        Raises LaunchError when the other end has gone, refuses this one, says something else or
        nothing in time.
        """
        self._channel.local.settimeout(timeout_s)
        try:
            while data := self._channel.local.recv(_READ_BYTES):
                for came, payload in self._reader.feed(data):
                    if came == REFUSED:
                        raise LaunchError(payload.decode())
                    if came != kind:
                        raise LaunchError("it does not speak as hvdtune does")
                    return payload
        except OSError as error:
            raise LaunchError(f"the connection broke: {error.strerror or error}") from None
        raise LaunchError("it has gone")

    def close(self) -> None:
        """Hangs up when what was sent has left."""
        self._channel.close()
