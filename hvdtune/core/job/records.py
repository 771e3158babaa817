"""Authenticated records between two hosts: readable on the network, but protected from changes.

A record is

    length u32 | bytes | HMAC-SHA256(key, number u64 | length | bytes) [32]

Each direction of each connection has its own key, and its records are numbered from 0. The first
wrong record ends the connection in both directions, and none of its bytes are used.

Nothing secret may be sent this way. An attacker on the network can read everything, and can end a
connection between two records as if the sender had. So a protocol on top needs its own last message
(`hvdtune.launcher.frames.EXIT`).
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
import struct
import threading
from typing import Final

RECORD_BYTES: Final = 1 << 16
HEAD: Final = struct.Struct(">I")
_NUMBER: Final = struct.Struct(">Q")
TAG_BYTES: Final = 32
_DIRECTIONS: Final = (b"from the dialer", b"from the acceptor")
# Limit for sending the last bytes when the connection is closed.
_FLUSH_S: Final = 10.0


def directions(*, dialed: bool) -> tuple[bytes, bytes]:
    """Return the name of the sending direction and of the receiving direction of an end."""
    own, other = _DIRECTIONS if dialed else reversed(_DIRECTIONS)
    return own, other


class RecordTags:
    """The authentication tags of one direction of a connection. Used from one thread."""

    def __init__(self, session: bytes, direction: bytes) -> None:
        self._key = hmac.digest(session, b"tag " + direction, hashlib.sha256)
        self._number = 0

    def pack(self, data: bytes) -> bytes:
        """Return the next record, which holds `data` (at most `RECORD_BYTES`)."""
        body = HEAD.pack(len(data)) + data
        return body + self._next_tag(body)

    def unpack(self, body: bytes, tag: bytes) -> bytes | None:
        """Return the data of the next record; None if the tag is wrong."""
        return body[HEAD.size :] if hmac.compare_digest(tag, self._next_tag(body)) else None

    def _next_tag(self, body: bytes) -> bytes:
        self._number += 1
        return hmac.digest(self._key, _NUMBER.pack(self._number - 1) + body, hashlib.sha256)


class RecordChannel:
    """One end of a proved connection: `local` carries the bytes of the other end's `local`.

    This process or a child uses `local`. Two threads copy between it and the connection until
    either is closed.
    """

    def __init__(self, connection: socket.socket, session: bytes, *, dialed: bool) -> None:
        own, other = directions(dialed=dialed)
        self.local, self._inner = socket.socketpair()
        self._connection = connection
        threads = {"out": (self._carry_out, own), "in": (self._carry_in, other)}
        self._threads = [
            threading.Thread(
                target=carry, args=(RecordTags(session, way),), name=f"hvdtune-{name}", daemon=True
            )
            for name, (carry, way) in threads.items()
        ]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError:  # the limit of processes is reached (ulimit -u)
            for end in (connection, self.local, self._inner):
                _end(end)
                end.close()
            raise

    def close(self) -> None:
        """Close `local`, send its last data, then close the connection."""
        self.local.close()
        self._threads[0].join(_FLUSH_S)
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._threads[1].join(_FLUSH_S)
        self._connection.close()
        self._inner.close()

    def _carry_out(self, tags: RecordTags) -> None:
        try:
            while data := self._inner.recv(RECORD_BYTES):
                self._connection.sendall(tags.pack(data))
            self._connection.shutdown(socket.SHUT_WR)
        except OSError:
            _end(self._inner)

    def _carry_in(self, tags: RecordTags) -> None:
        with contextlib.suppress(OSError):
            while head := self._receive(HEAD.size):
                data = self._unpacked(tags, head)
                if data is None:
                    _end(self._connection)  # an attacker gets no further answer
                    break
                self._inner.sendall(data)
        _end(self._inner, socket.SHUT_WR)
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RD)

    def _unpacked(self, tags: RecordTags, head: bytes) -> bytes | None:
        """Read the rest of this record and return its data; None for a wrong record."""
        (length,) = HEAD.unpack(head)
        if length > RECORD_BYTES:
            return None
        body, tag = self._receive(length), self._receive(TAG_BYTES)
        return tags.unpack(head + body, tag)

    def _receive(self, count: int) -> bytes:
        """Return the next `count` bytes; none if the connection ends before."""
        data = b""
        while len(data) < count and (more := self._connection.recv(count - len(data))):
            data += more
        return data if len(data) == count else b""


def _end(end: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(how)
