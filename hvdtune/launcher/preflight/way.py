"""Connections between two hosts that have the same key, and the speed of the way between them.

Both ends prove that they have the key before another byte is read (`hvdtune.core.job.proof`). The
proof contains the number of the wanted host, because another machine may have the same address.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hvdtune.core.job import proof
from hvdtune.errors import HvdtuneError, LaunchError
from hvdtune.launcher.nodes.admission import Admission
from hvdtune.launcher.preflight.facts import WayState

_PREFLIGHT: Final = b"p"  # the purpose of these connections

# A block is its length and that many bytes; one byte acknowledges it.
_LENGTH: Final = struct.Struct(">I")
_TAKEN: Final = b"!"
_FIRST_BLOCK_BYTES: Final = 64 << 10
_LAST_BLOCK_BYTES: Final = 4 << 20
_MOST_ROUND_TRIPS: Final = 200
_MOST_BLOCKS: Final = 32
# A block that takes less time measures the machines rather than the way.
_LEAST_BLOCK_S: Final = 0.01
_MIB: Final = 1 << 20


class WayError(HvdtuneError):
    """A connection that cannot be made or authenticated; the message is the symptom."""

    def __init__(self, state: WayState, seen: str) -> None:
        super().__init__(seen)
        self.state = state


@dataclass(frozen=True)
class WaySpeed:
    """Medians of several measurements, and their numbers."""

    round_trip_us: float
    round_trips: int
    mib_per_s: float
    blocks: int


def dial(address: str, port: int, key: bytes, number: int, timeout_s: float) -> socket.socket:
    """Connect to the host of this number. Raises WayError."""
    try:
        connection, _ = proof.dial((address, port), key, _PREFLIGHT, number, timeout_s)
    except proof.CutOffError:
        seen = "the process there does not take part in this check"
        raise WayError("unauthenticated", seen) from None
    except LaunchError:
        raise WayError("unauthenticated", "the process there has a different key") from None
    except TimeoutError:
        raise WayError("unreachable", f"no answer within {timeout_s:g} s") from None
    except OSError as error:
        raise WayError("unreachable", error.strerror or str(error)) from None
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def measure(connection: socket.socket, budget_s: float) -> WaySpeed:
    """Measure an authenticated connection for about twice the budget. Raises OSError."""
    connection.settimeout(max(10 * budget_s, 10.0))
    block = memoryview(bytes(_LAST_BLOCK_BYTES))

    def send(size: int) -> float:
        """Return the seconds until the other end has acknowledged a block."""
        began_s = time.perf_counter()
        connection.sendall(_LENGTH.pack(size))
        connection.sendall(block[:size])
        if not connection.recv(len(_TAKEN)):
            raise ConnectionResetError("the other host closed the connection")
        return time.perf_counter() - began_s

    trips = [send(0)]
    end_s = time.monotonic() + budget_s
    while len(trips) < _MOST_ROUND_TRIPS and time.monotonic() < end_s:
        trips.append(send(0))
    rates: list[float] = []
    size, end_s = _FIRST_BLOCK_BYTES, time.monotonic() + budget_s
    while not rates or (len(rates) < _MOST_BLOCKS and time.monotonic() < end_s):
        took_s = send(size)
        if took_s < _LEAST_BLOCK_S and size < _LAST_BLOCK_BYTES:
            size *= 2
        else:
            rates.append(size / _MIB / took_s)
    return WaySpeed(
        1e6 * statistics.median(trips), len(trips), statistics.median(rates), len(rates)
    )


def open_doors(addresses: Sequence[str], key: bytes, number: int, port: int = 0) -> dict[str, int]:
    """Listen at these addresses while this process runs; return the port at each.

    Threads serve the connections of those that have the key.

    Args:
        number: number of this host.
        port: the port at each address; 0: any free one.

    Raises OSError for an address of another host or for a used port.
    """
    listeners = {}
    for address in addresses:
        family, _, _, _, where = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )[0]
        listeners[address] = socket.create_server(where, family=family, backlog=128)
    for listener in listeners.values():
        Admission(listener, key, _PREFLIGHT, number, _acknowledge)
    return {address: listener.getsockname()[1] for address, listener in listeners.items()}


def _acknowledge(connection: socket.socket, session: bytes) -> None:
    """Acknowledge blocks until the other end hangs up."""
    del session
    buffer = memoryview(bytearray(_LAST_BLOCK_BYTES))
    with connection, connection.makefile("rb") as stream, contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while len(head := stream.read(_LENGTH.size)) == _LENGTH.size:
            (length,) = _LENGTH.unpack(head)
            if length > len(buffer) or stream.readinto(buffer[:length]) < length:
                return
            connection.sendall(_TAKEN)
