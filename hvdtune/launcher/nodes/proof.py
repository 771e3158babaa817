"""Who is at the other end of a connection, proved by both before any other byte is read.

    dialer -> acceptor   purpose [1], its nonce [32]
    acceptor -> dialer   its nonce [32]
    dialer -> acceptor   HMAC(key, "hvdtune node dialer  " | purpose | both nonces)
    acceptor -> dialer   HMAC(key, "hvdtune node acceptor" | purpose | both nonces)

The dialer proves first, so one without the key gets a random number and a closed socket. Both ends
then hold the session key HMAC(key, "hvdtune node session " | purpose | both nonces).
"""

from __future__ import annotations

import hashlib
import hmac
import os
import socket
import time
from typing import Final

from hvdtune.errors import LaunchError

NONCE_BYTES: Final = 32
_DIALER: Final = b"hvdtune node dialer  "
_ACCEPTOR: Final = b"hvdtune node acceptor"
_SESSION: Final = b"hvdtune node session "

# What a connection is for.
RANK: Final = b"r"
CONTROL: Final = b"c"


def dial(
    address: tuple[str, int], key: bytes, purpose: bytes, timeout_s: float
) -> tuple[socket.socket, bytes]:
    """A proved connection and its session key.

    Raises OSError when nobody answers, LaunchError for a stranger.
    """
    connection = socket.create_connection(address, timeout=timeout_s)
    try:
        deadline_s = time.monotonic() + timeout_s
        own = os.urandom(NONCE_BYTES)
        connection.sendall(purpose + own)
        nonces = own + _receive(connection, NONCE_BYTES, deadline_s)
        connection.sendall(_prove(key, _DIALER, purpose + nonces))
        answer = _receive(connection, hashlib.sha256().digest_size, deadline_s)
        if not hmac.compare_digest(answer, _prove(key, _ACCEPTOR, purpose + nonces)):
            raise LaunchError(f"{address[0]} port {address[1]} does not have this job's key")
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection, _prove(key, _SESSION, purpose + nonces)


def accept(connection: socket.socket, key: bytes, purpose: bytes, timeout_s: float) -> bytes | None:
    """The session key; None for an end that has not proved that it has the key."""
    deadline_s = time.monotonic() + timeout_s
    try:
        hello = _receive(connection, len(purpose) + NONCE_BYTES, deadline_s)
        if not hello.startswith(purpose):
            return None
        nonce = os.urandom(NONCE_BYTES)
        connection.sendall(nonce)
        said = _receive(connection, hashlib.sha256().digest_size, deadline_s)
        if not hmac.compare_digest(said, _prove(key, _DIALER, hello + nonce)):
            return None
        connection.sendall(_prove(key, _ACCEPTOR, hello + nonce))
        connection.settimeout(None)
    except (OSError, LaunchError):
        return None
    return _prove(key, _SESSION, hello + nonce)


def _prove(key: bytes, label: bytes, words: bytes) -> bytes:
    return hmac.digest(key, label + words, hashlib.sha256)


def _receive(connection: socket.socket, count: int, deadline_s: float) -> bytes:
    data = b""
    while len(data) < count:
        connection.settimeout(max(0.001, deadline_s - time.monotonic()))
        more = connection.recv(count - len(data))
        if not more:
            raise LaunchError("the connection was closed during the handshake")
        data += more
    return data
