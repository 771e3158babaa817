"""The messages between a relay and the agent on another host.

They travel over ssh's stdin and stdout, or over a connection to a node.

A frame is a kind (one byte), a length (four bytes, big-endian) and that many bytes. The agent first
writes MAGIC and its version; anything that a login shell prints before MAGIC is skipped.

to the agent    JOB       msgpack of `RemoteJob`, or of `NodeJob` to a node; once
                SIGNAL    one byte, the number of a signal for the rank
                ALIVE     empty, every BEAT_S: the launcher's host is up
from the agent  HELLO     the agent's version, after MAGIC
                STARTED   empty; the rank runs
                OUT, ERR  output of the rank
                REFUSED   why the rank could not be started, as text
                FILE      four bytes, the number of a descriptor, then its content
                TRACE     msgpack of (name of a raw trace, a piece of it)
                EXIT      four bytes, the rank's return code, signed; the last frame
"""

from __future__ import annotations

import os
import select
import struct
from collections.abc import Iterator
from typing import Final

import msgspec

from hvdtune.errors import LaunchError

MAGIC: Final = b"\0hvdtune-agent\n"
JOB, SIGNAL, ALIVE = b"J", b"S", b"A"
HELLO, STARTED, OUT, ERR, REFUSED = b"H", b"B", b"O", b"E", b"R"
FILE, TRACE, EXIT = b"F", b"T", b"X"
# The interval of ALIVE, and the silence after which the agent ends its rank. Long enough for a
# launcher's host that is suspended, migrated or disconnected for a moment: the other ranks give up
# the ranks of such a host after the heartbeat timeout anyway.
BEAT_S: Final = 15.0
SILENCE_S: Final = 300.0
# A function's arguments and results are a frame each.
_MAX_BYTES: Final = 1 << 30
_HEAD: Final = struct.Struct(">cI")


class RemoteJob(msgspec.Struct, frozen=True):
    """What an agent started by ssh needs to run a rank.

    `files` maps each inherited descriptor to its content. Words, paths and variables are bytes, as
    the kernel has them.
    """

    command: list[bytes]
    folder: bytes
    environ: dict[bytes, bytes]
    files: dict[int, bytes]


class NodeJob(msgspec.Struct, frozen=True):
    """What an agent on a node needs to run a rank. It contains no secret.

    The node has its own command, folder and environment. `variables` are those that the launcher
    sets for the rank; the job's key is derived from `nonce` and the nodes' common key.
    """

    variables: dict[bytes, bytes]
    nonce: bytes


def frame(kind: bytes, payload: bytes) -> bytes:
    """Return the bytes of one frame. Raises LaunchError if the payload is too long."""
    if len(payload) > _MAX_BYTES:
        raise LaunchError(
            f"A message to another host has {len(payload):,} bytes; the limit is {_MAX_BYTES:,}."
        )
    return _HEAD.pack(kind, len(payload)) + payload


def write_all(descriptor: int, data: bytes) -> None:
    """Write all data, even if another process has made a shared descriptor non-blocking."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


class Frames:
    """Splits a stream of bytes into frames. Used from one thread."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Yield the frames that `data` completes. Raises LaunchError for an impossible length."""
        self._rest += data
        while len(self._rest) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._rest)
            if length > _MAX_BYTES:
                raise LaunchError("The program on the other host is not hvdtune.")
            end = _HEAD.size + length
            if len(self._rest) < end:
                return
            payload = bytes(self._rest[_HEAD.size : end])
            del self._rest[:end]
            yield kind, payload
