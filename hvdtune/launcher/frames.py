"""What a relay and the agent on another host say to each other, over ssh's stdin and stdout.

A frame is a kind (one byte), a length (four bytes, big-endian) and that many bytes. The agent first
writes MAGIC and its version; what a login shell prints before that is skipped.

to the agent    JOB    msgpack of `RemoteJob`, once
                SIGNAL  one byte, the number of a signal for the rank
                ALIVE  nothing, every BEAT_S: the launcher's host is there
from the agent  HELLO  the agent's version, behind MAGIC
                STARTED   nothing; the rank runs
                OUT, ERR  what it wrote
                REFUSED   why the rank could not be started, as text
                FILE   four bytes, the number of a descriptor, then its content
                TRACE  msgpack of (name of a raw trace, a piece of it)
                EXIT   four bytes, the rank's return code, signed; the last frame
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
# How often a relay says that it lives, and after how long without a word the agent ends its rank.
# Long enough for a launcher's host that is suspended for a moment, moved to another machine or cut
# off; the ranks that run there are lost to the others after the heartbeat timeout in any case.
BEAT_S: Final = 15.0
SILENCE_S: Final = 300.0
# A function's arguments and results are a frame each.
_MAX_BYTES: Final = 1 << 30
_HEAD: Final = struct.Struct(">cI")


class RemoteJob(msgspec.Struct, frozen=True):
    """What a rank on another host needs: `files` are its inherited descriptors with content.

    Words, paths and variables are bytes, as the kernel has them.
    """

    command: list[bytes]
    folder: bytes
    environ: dict[bytes, bytes]
    files: dict[int, bytes]


def frame(kind: bytes, payload: bytes) -> bytes:
    """The bytes of one frame. Raises LaunchError when the payload is too long for one."""
    if len(payload) > _MAX_BYTES:
        raise LaunchError(f"{len(payload):,} bytes are too many for one message over ssh")
    return _HEAD.pack(kind, len(payload)) + payload


def write_all(descriptor: int, data: bytes) -> None:
    """Writes it whole, even where somebody who shares the descriptor has made it non-blocking."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])


class Frames:
    """Cuts a stream of bytes into frames. Used from one thread."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The frames that `data` completes. Raises LaunchError for a length that cannot be."""
        self._rest += data
        while len(self._rest) >= _HEAD.size:
            kind, length = _HEAD.unpack_from(self._rest)
            if length > _MAX_BYTES:
                raise LaunchError("the program at the other end of ssh is not hvdtune")
            end = _HEAD.size + length
            if len(self._rest) < end:
                return
            payload = bytes(self._rest[_HEAD.size : end])
            del self._rest[:end]
            yield kind, payload
