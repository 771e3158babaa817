"""The handshake: both ends of a connection prove that they have the key.

No other byte is read before it.

    dialer -> acceptor   purpose [1], its nonce [32]
    acceptor -> dialer   its nonce [32]
    dialer -> acceptor   HMAC(key, "hvdtune node dialer  " | words)
    acceptor -> dialer   HMAC(key, "hvdtune node acceptor" | words)

where the words are the purpose, both nonces and the number [4] of the node that the dialer wants.
The number is needed because all nodes have the same key: an attacker who changes packets could
redirect a connection to another node.

The dialer proves first, so a dialer without the key gets only a random number. Both ends then have
the session key HMAC(key, "hvdtune node session " | words). It is new for each connection, even if
one end repeats its nonce.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import struct
import time
from typing import Final

from hvdtune.errors import LaunchError

NONCE_BYTES: Final = 32
_DIALER: Final = b"hvdtune node dialer  "
_ACCEPTOR: Final = b"hvdtune node acceptor"
_SESSION: Final = b"hvdtune node session "

# The purpose of a connection.
RANK: Final = b"r"
WORKER: Final = b"w"
CONTROL: Final = b"c"
# The node that launches.
FIRST: Final = 0
_NODE: Final = struct.Struct(">I")


class UnprovedError(LaunchError):
    """The other end does not have the key."""


class CutOffError(LaunchError):
    """The other end closed the connection during the handshake, perhaps for lack of room."""

    def __init__(self) -> None:
        super().__init__("The connection was closed during the handshake.")


def dial(
    address: tuple[str, int], key: bytes, purpose: bytes, number: int, timeout_s: float
) -> tuple[socket.socket, bytes]:
    """Return a proved connection with the node of this number, and its session key.

    Raises:
        OSError: no answer.
        CutOffError: the other end closed the connection.
        LaunchError: the other end has a different key or number.
    """
    connection = socket.create_connection(address, timeout=timeout_s)
    try:
        deadline_s = time.monotonic() + timeout_s
        own = os.urandom(NONCE_BYTES)
        connection.sendall(purpose + own)
        words = purpose + own + _receive(connection, NONCE_BYTES, deadline_s) + _NODE.pack(number)
        connection.sendall(_prove(key, _DIALER, words))
        answer = _receive(connection, hashlib.sha256().digest_size, deadline_s)
        if not hmac.compare_digest(answer, _prove(key, _ACCEPTOR, words)):
            raise LaunchError(f"{address[0]} port {address[1]} does not have this job's key.")
        connection.settimeout(None)
    except (BrokenPipeError, ConnectionResetError):
        connection.close()
        raise CutOffError from None
    except BaseException:
        connection.close()
        raise
    return connection, _prove(key, _SESSION, words)


def accept(
    connection: socket.socket, key: bytes, purpose: bytes, number: int, timeout_s: float
) -> bytes | None:
    """Return the session key; None if the other end hangs up or has another purpose or protocol.

    Raises UnprovedError if the other end does not prove that it has the key and means this node's
    `number`.
    """
    deadline_s = time.monotonic() + timeout_s
    try:
        hello = _receive(connection, len(purpose) + NONCE_BYTES, deadline_s)
        if not hello.startswith(purpose):
            return None
        nonce = os.urandom(NONCE_BYTES)
        connection.sendall(nonce)
        words = hello + nonce + _NODE.pack(number)
        proof = _receive(connection, hashlib.sha256().digest_size, deadline_s)
        if not hmac.compare_digest(proof, _prove(key, _DIALER, words)):
            raise UnprovedError("The other end has a different key.")
        connection.sendall(_prove(key, _ACCEPTOR, words))
        connection.settimeout(None)
    except (OSError, CutOffError):
        return None
    return _prove(key, _SESSION, words)


def _prove(key: bytes, label: bytes, words: bytes) -> bytes:
    return hmac.digest(key, label + words, hashlib.sha256)


def _receive(connection: socket.socket, count: int, deadline_s: float) -> bytes:
    data = b""
    while len(data) < count:
        connection.settimeout(max(0.001, deadline_s - time.monotonic()))
        more = connection.recv(count - len(data))
        if not more:
            raise CutOffError
        data += more
    return data
