"""Who is at the other end of a connection, proved by both before any other byte is read.

    dialer -> acceptor   purpose [1], its nonce [32]
    acceptor -> dialer   its nonce [32]
    dialer -> acceptor   HMAC(key, "hvdtune node dialer  " | words)
    acceptor -> dialer   HMAC(key, "hvdtune node acceptor" | words)

where the words are the purpose, both nonces and the number [4] of the node that the dialer means:
all nodes have the same key, and whoever can change packets could lead a connection to another one.

The dialer proves first, so one without the key gets a random number and a closed socket. Both ends
then hold the session key HMAC(key, "hvdtune node session " | words), which is new for each
connection, even if one end's nonce is not.
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

# What a connection is for.
RANK: Final = b"r"
WORKER: Final = b"w"
CONTROL: Final = b"c"
# The node that launches.
FIRST: Final = 0
_NODE: Final = struct.Struct(">I")


class UnprovedError(LaunchError):
    """The other end has not proved that it has the key."""


class CutOffError(LaunchError):
    """The other end has hung up before anything was proved, perhaps to make room for another."""

    def __init__(self) -> None:
        super().__init__("the connection was closed during the handshake")


def dial(
    address: tuple[str, int], key: bytes, purpose: bytes, number: int, timeout_s: float
) -> tuple[socket.socket, bytes]:
    """A proved connection with the node of this number, and its session key.

    Raises OSError when nobody answers, LaunchError for another one, CutOffError as it says.
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
            raise LaunchError(f"{address[0]} port {address[1]} does not have this job's key")
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
    """The session key; None for an end that hangs up, does not speak so or means something else.

    Raises UnprovedError for one that has not proved that it has the key and means `number`, this
    node's.
    """
    deadline_s = time.monotonic() + timeout_s
    try:
        hello = _receive(connection, len(purpose) + NONCE_BYTES, deadline_s)
        if not hello.startswith(purpose):
            return None
        nonce = os.urandom(NONCE_BYTES)
        connection.sendall(nonce)
        words = hello + nonce + _NODE.pack(number)
        said = _receive(connection, hashlib.sha256().digest_size, deadline_s)
        if not hmac.compare_digest(said, _prove(key, _DIALER, words)):
            raise UnprovedError("it has another key")
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
