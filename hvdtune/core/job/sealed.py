"""Bytes between two nodes that others can neither read nor change.

What travels is a job: its command, its environment and its key. A record is

    length u32 | bytes, each XORed with one of SHAKE-256(key | number) | HMAC-SHA256(key, number and
    all before) [32]

with keys of each direction and connection, and the records of a direction numbered from 0: no two
records of any key have the same stream. The first wrong one ends the connection in both directions,
and nothing of it is used.

What is not hidden is how much is said, and when. Whoever is between the nodes can end a connection,
too, between two records as if the other end had: what is carried has to have a last word of its own
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
# What was written last may take so long to leave.
_FLUSH_S: Final = 10.0


def directions(*, dialed: bool) -> tuple[bytes, bytes]:
    """The names of what an end sends and of what it receives."""
    own, other = _DIRECTIONS if dialed else reversed(_DIRECTIONS)
    return own, other


class Sealing:
    """One direction of a connection: makes its records, or opens them. Used from one thread."""

    def __init__(self, session: bytes, direction: bytes) -> None:
        self._cipher_key = hmac.digest(session, b"cipher " + direction, hashlib.sha256)
        self._tag_key = hmac.digest(session, b"tag " + direction, hashlib.sha256)
        self._number = 0

    def seal(self, data: bytes) -> bytes:
        """The record of at most `RECORD_BYTES`."""
        number = self._next()
        body = HEAD.pack(len(data)) + self._xor(data, number)
        return body + hmac.digest(self._tag_key, number + body, hashlib.sha256)

    def open(self, body: bytes, tag: bytes) -> bytes | None:
        """What a record's length and bytes stand for; None for one that is not the other end's."""
        number = self._next()
        right = hmac.digest(self._tag_key, number + body, hashlib.sha256)
        return self._xor(body[HEAD.size :], number) if hmac.compare_digest(tag, right) else None

    def _next(self) -> bytes:
        self._number += 1
        return _NUMBER.pack(self._number - 1)

    def _xor(self, data: bytes, number: bytes) -> bytes:
        stream = hashlib.shake_256(self._cipher_key + number).digest(len(data))
        mixed = int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")
        return mixed.to_bytes(len(data), "big")


class SealedChannel:
    """The end of a proved connection: what is written to `local` is read from the other's.

    `local` is this process's, or a child's; two threads carry between it and the connection, until
    either is closed.
    """

    def __init__(self, connection: socket.socket, session: bytes, *, dialed: bool) -> None:
        own, other = directions(dialed=dialed)
        self.local, self._inner = socket.socketpair()
        self._connection = connection
        threads = {"out": (self._carry_out, own), "in": (self._carry_in, other)}
        self._threads = [
            threading.Thread(
                target=carry, args=(Sealing(session, way),), name=f"hvdtune-{name}", daemon=True
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
        """Closes `local`, and the connection when what was written there has left."""
        self.local.close()
        self._threads[0].join(_FLUSH_S)
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._threads[1].join(_FLUSH_S)
        self._connection.close()
        self._inner.close()

    def _carry_out(self, sealing: Sealing) -> None:
        try:
            while data := self._inner.recv(RECORD_BYTES):
                self._connection.sendall(sealing.seal(data))
            self._connection.shutdown(socket.SHUT_WR)
        except OSError:
            _end(self._inner)

    def _carry_in(self, sealing: Sealing) -> None:
        with contextlib.suppress(OSError):
            while head := self._receive(HEAD.size):
                data = self._opened(sealing, head)
                if data is None:
                    _end(self._connection)  # whoever has done that is not told more, either
                    break
                self._inner.sendall(data)
        _end(self._inner, socket.SHUT_WR)
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RD)

    def _opened(self, sealing: Sealing, head: bytes) -> bytes | None:
        """Read the rest of this record and open it; None for a wrong one."""
        (length,) = HEAD.unpack(head)
        if length > RECORD_BYTES:
            return None
        body, tag = self._receive(length), self._receive(TAG_BYTES)
        return sealing.open(head + body, tag)

    def _receive(self, count: int) -> bytes:
        """So many bytes, fewer at the end of the connection."""
        data = b""
        while len(data) < count and (more := self._connection.recv(count - len(data))):
            data += more
        return data if len(data) == count else b""


def _end(end: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(how)
