"""The control connection between the launcher and a node that serves it.

It carries frames of `hvdtune.launcher.frames`: the node sends HELLO with its facts; the launcher
sends EXIT with the exit code of the job, or REFUSED with the reason why no job will run. It ends
when either process ends.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from hvdtune.core.config.meeting_point import MeetingPoint
from hvdtune.core.job.records import RecordChannel
from hvdtune.errors import LaunchError
from hvdtune.launcher.frames import REFUSED, Frames, frame
from hvdtune.launcher.nodes.connections import end_with_host, limit_unanswered

_READ_BYTES: Final = 1 << 16


@dataclass(frozen=True)
class NodeTerms:
    """The inputs of a node before the nodes meet.

    Attributes:
        chosen: the address that the user chose for this host; "" for the default.
        slots: the maximum number of ranks there.
        timeout_s: limit of the wait for the other nodes.
        asked: the options that must be equal on all nodes.
    """

    point: MeetingPoint
    chosen: str
    slots: int
    timeout_s: float
    asked: Mapping[str, str]


class NodeFacts(msgspec.Struct, frozen=True):
    """Facts that a node sends to the launcher.

    Attributes:
        number: of the node, from 0.
        host: the node's name for its host.
        slots: the maximum number of ranks there.
        address: where the node accepts relays.
        port: where the node accepts relays.
        asked: see `digests`.
    """

    version: str
    number: int
    host: str
    slots: int
    address: str
    port: int
    asked: dict[str, str]


def digests(key: bytes, asked: Mapping[str, str]) -> dict[str, str]:
    """Return a keyed digest of each option's value, which may be secret."""
    return {
        name: hmac.new(
            key, f"{name}={value}".encode(errors="surrogateescape"), hashlib.sha256
        ).hexdigest()
        for name, value in asked.items()
    }


class ControlConnection:
    """One end of the connection. Used from one thread."""

    def __init__(self, connection: socket.socket, session: bytes, *, dialed: bool) -> None:
        end_with_host(connection)
        limit_unanswered(connection)
        self._channel = RecordChannel(connection, session, dialed=dialed)
        self._reader = Frames()

    def send(self, kind: bytes, payload: bytes) -> None:
        """Send a frame. Raises OSError if the connection has ended."""
        self._channel.local.sendall(frame(kind, payload))

    def receive(self, kind: bytes, timeout_s: float | None) -> bytes:
        """Return the payload of the next frame, which must be of this kind.

        Raises LaunchError for a refusal, another kind of frame, a timeout, or a connection that
        has ended.
        """
        self._channel.local.settimeout(timeout_s)
        try:
            while data := self._channel.local.recv(_READ_BYTES):
                for came, payload in self._reader.feed(data):
                    if came == REFUSED:
                        raise LaunchError(payload.decode())
                    if came != kind:
                        raise LaunchError("it sent an unexpected message.")
                    return payload
        except OSError as error:
            raise LaunchError(f"the connection broke ({error.strerror or error}).") from None
        raise LaunchError("it has exited.")

    def close(self) -> None:
        """Close the connection after the last frame was sent."""
        self._channel.close()
