"""A connection between two hosts that know the same key, and how fast the way between them is.

Both ends prove that they know the key before another byte is read, as the ranks of a job do
(`csrc/transport/handshake.h`): each signs both ends' random numbers and the name of the host that
is meant, so that another machine behind the same address is told apart from it.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import selectors
import socket
import statistics
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from hvdtune.errors import HvdtuneError
from hvdtune.launcher.nodes.connections import next_connection, serve_aside

_HELLO: Final = b"hvdtune preflight 1\n"
_NONCE_BYTES: Final = 32
_PROOF_BYTES: Final = hashlib.sha256().digest_size
_DIALER, _ACCEPTOR = b"dialer", b"acceptor"
_HANDSHAKE_S: Final = 5.0
_MOST_CONNECTIONS: Final = 256

# What follows the proofs: what is wanted, and how many bytes come with it.
_HEAD: Final = struct.Struct(">cI")
_ECHO, _TAKE, _TAKEN = b"E", b"T", b"!"
_ECHO_BYTES: Final = 8
_FIRST_BLOCK_BYTES: Final = 64 << 10
_LAST_BLOCK_BYTES: Final = 4 << 20
_MOST_ROUND_TRIPS: Final = 200
_MOST_BLOCKS: Final = 32
# A block that takes less says more about the machines than about the way.
_LEAST_BLOCK_S: Final = 0.01
_MIB: Final = 1 << 20


class WayError(HvdtuneError):
    """No such connection. `stage` is "connect" or "authenticate"; the message is what was seen."""

    def __init__(self, stage: str, seen: str) -> None:
        super().__init__(seen)
        self.stage = stage


@dataclass(frozen=True)
class WaySpeed:
    """Medians of several measurements, and of how many."""

    round_trip_us: float
    round_trips: int
    mib_per_s: float
    blocks: int


def dial(address: str, port: int, key: bytes, name: str, timeout_s: float) -> socket.socket:
    """Connect to the host that calls itself `name`; both ends have proved that they know the key.

    Raises WayError.
    """
    deadline_s = time.monotonic() + timeout_s
    try:
        connection = socket.create_connection((address, port), timeout=timeout_s)
    except TimeoutError:
        raise WayError("connect", f"no answer within {timeout_s:g} s") from None
    except OSError as error:
        raise WayError("connect", error.strerror or str(error)) from None
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        mine = os.urandom(_NONCE_BYTES)
        connection.sendall(_HELLO + mine)
        theirs = _receive(connection, _NONCE_BYTES, deadline_s)
        connection.sendall(_proof(key, _DIALER, name, mine, theirs))
        answer = _receive(connection, _PROOF_BYTES, deadline_s)
        if not hmac.compare_digest(answer, _proof(key, _ACCEPTOR, name, mine, theirs)):
            raise WayError("authenticate", "what answers there does not know the key")
    except OSError:  # hung up, or silent
        connection.close()
        raise WayError(
            "authenticate", "what answers there is not hvdtune's check on this host"
        ) from None
    except WayError:
        connection.close()
        raise
    return connection


def measure(connection: socket.socket, budget_s: float) -> WaySpeed:
    """Measure an authenticated connection for about twice the budget. Raises OSError."""
    connection.settimeout(max(10 * budget_s, 10.0))
    trips = list(_round_trips(connection, budget_s))
    rates = list(_block_rates(connection, budget_s))
    return WaySpeed(
        1e6 * statistics.median(trips), len(trips), statistics.median(rates), len(rates)
    )


def _round_trips(connection: socket.socket, budget_s: float) -> Iterator[float]:
    """Seconds of each."""
    message = _HEAD.pack(_ECHO, _ECHO_BYTES) + bytes(_ECHO_BYTES)
    end_s = time.monotonic() + budget_s
    for count in range(_MOST_ROUND_TRIPS):
        if count and time.monotonic() > end_s:
            return
        began_s = time.perf_counter()
        connection.sendall(message)
        _receive(connection, _ECHO_BYTES)
        yield time.perf_counter() - began_s


def _block_rates(connection: socket.socket, budget_s: float) -> Iterator[float]:
    """MiB/s of each block; blocks grow until one takes long enough to be timed."""
    block = bytes(_LAST_BLOCK_BYTES)
    size, count = _FIRST_BLOCK_BYTES, 0
    end_s = time.monotonic() + budget_s
    while count < _MOST_BLOCKS and (not count or time.monotonic() < end_s):
        began_s = time.perf_counter()
        connection.sendall(_HEAD.pack(_TAKE, size))
        connection.sendall(memoryview(block)[:size])
        _receive(connection, len(_TAKEN))
        took_s = time.perf_counter() - began_s
        if took_s < _LEAST_BLOCK_S and size < _LAST_BLOCK_BYTES:
            size *= 2
            continue
        count += 1
        yield size / _MIB / took_s


class Doors:
    """Listens at addresses of this host until closed, for those who know the key.

    Threads of its own serve the connections; at most 256 are open, further ones are closed.
    """

    def __init__(self, addresses: list[str], key: bytes, name: str, port: int = 0) -> None:
        """Listens at this port of each address, any that is free for 0.

        Raises OSError for an address that is none of this host's, or a port that is taken.
        """
        self._key, self._name = key, name
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._listeners: dict[str, socket.socket] = {}
        for address in addresses:
            family, _, _, _, where = socket.getaddrinfo(
                address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
            )[0]
            self._listeners[address] = socket.create_server(where, family=family, backlog=128)
        threading.Thread(target=self._accept, name="hvdtune-doors", daemon=True).start()

    @property
    def ports(self) -> dict[str, int]:
        """The port at each address."""
        return {where: each.getsockname()[1] for where, each in self._listeners.items()}

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            for listener in self._listeners.values():
                listener.setblocking(False)
                selector.register(listener, selectors.EVENT_READ)
            while True:
                for found, _ in selector.select():
                    assert isinstance(found.fileobj, socket.socket)
                    if (accepted := next_connection(found.fileobj)) is not None:
                        self._admit(accepted[0])

    def _admit(self, connection: socket.socket) -> None:
        if not self._free.acquire(blocking=False):
            connection.close()
        elif not serve_aside(partial(self._serve, connection), connection):
            self._free.release()

    def _serve(self, connection: socket.socket) -> None:
        try:
            # A stranger, or one who has what it came for, hangs up.
            with connection, contextlib.suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._is_known(connection):
                    connection.settimeout(None)
                    _answer_measurements(connection)
        finally:
            self._free.release()

    def _is_known(self, connection: socket.socket) -> bool:
        deadline_s = time.monotonic() + _HANDSHAKE_S
        hello = _receive(connection, len(_HELLO) + _NONCE_BYTES, deadline_s)
        if not hello.startswith(_HELLO):
            return False
        theirs, mine = hello[len(_HELLO) :], os.urandom(_NONCE_BYTES)
        connection.sendall(mine)
        proof = _receive(connection, _PROOF_BYTES, deadline_s)
        if not hmac.compare_digest(proof, _proof(self._key, _DIALER, self._name, theirs, mine)):
            return False
        connection.sendall(_proof(self._key, _ACCEPTOR, self._name, theirs, mine))
        return True


def _answer_measurements(connection: socket.socket) -> None:
    """Until the other end hangs up, which is an OSError."""
    buffer = bytearray(_LAST_BLOCK_BYTES)
    while True:
        kind, length = _HEAD.unpack(_receive(connection, _HEAD.size))
        if kind == _ECHO and length == _ECHO_BYTES:
            connection.sendall(_receive(connection, length))
        elif kind == _TAKE and length <= _LAST_BLOCK_BYTES:
            rest = memoryview(buffer)[:length]
            while rest:
                count = connection.recv_into(rest)
                if not count:
                    return
                rest = rest[count:]
            connection.sendall(_TAKEN)
        else:
            return


def _proof(key: bytes, who: bytes, name: str, dialer: bytes, acceptor: bytes) -> bytes:
    label = b"hvdtune preflight " + who
    return hmac.digest(key, label + dialer + acceptor + name.encode(), hashlib.sha256)


def _receive(connection: socket.socket, length: int, deadline_s: float | None = None) -> bytes:
    """Exactly so many bytes. Raises OSError when they do not come."""
    data = b""
    while len(data) < length:
        if deadline_s is not None:
            connection.settimeout(max(0.001, deadline_s - time.monotonic()))
        piece = connection.recv(length - len(data))
        if not piece:
            raise ConnectionResetError("the other end hung up")
        data += piece
    return data
