"""What a worker of an elastic job and its launcher say to each other, over a proved connection.

    worker -> launcher   Arrival     it has called `init` and waits for its place
                         Progress    what rank 0 has trained
                         Training    it is in a training function, or has returned from it
                         Raised      its training function ends with an error of the script
    launcher -> worker   Placement   its place in a generation that forms
                         Removed     it is not needed any more
                         Update      the generation is to end at the next commit
                         Probe       nothing: whether its host still takes what is sent

Each is msgpack in one authenticated record (`hvdtune.core.job.records`).
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
from typing import Final

import msgspec

from hvdtune.core.job.records import HEAD, RECORD_BYTES, TAG_BYTES, RecordTags, directions
from hvdtune.errors import RendezvousError

_READ_BYTES: Final = 1 << 16
_CUT: Final = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)


class Arrival(msgspec.Struct, frozen=True, tag="arrival"):
    """A worker waits in `init`. `generation` is the one that it was in, -1 for none; it holds a
    state of the training (`has_state`) after so many `commits`, which the others may not have
    (`must_sync`). Its runtime has given up the `lost` ranks of that generation. `why` is the error
    that its training function raised, "" for none."""

    worker: int
    generation: int
    has_state: bool
    commits: int
    must_sync: bool
    lost: tuple[int, ...]
    why: str = ""


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """Rank 0 has committed (`is_commit`), or has sent its state to all ranks of a generation. So
    many `samples` and `commits` are trained and committed in this job; 0 samples where the script
    tells none. `all_commits` are those of the training, with those that it was resumed from."""

    generation: int
    samples: int
    commits: int
    all_commits: int
    is_commit: bool


class Training(msgspec.Struct, frozen=True, tag="training"):
    """The worker is in a training function (`is_on`), or has returned from it."""

    worker: int
    is_on: bool


class Raised(msgspec.Struct, frozen=True, tag="raised"):
    """The worker's training function ends with the error `why`, which is no other rank's doing."""

    worker: int
    why: str


class Placement(msgspec.Struct, frozen=True, tag="placement"):
    """A rank of a generation, whose ranks meet at `rendezvous` (host:port). `must_sync`: rank 0
    is to send its state to the others."""

    generation: int
    rank: int
    size: int
    rendezvous: str
    must_sync: bool


class Removed(msgspec.Struct, frozen=True, tag="removed"):
    """The worker's slot is gone."""


class Update(msgspec.Struct, frozen=True, tag="update"):
    """The hosts have changed; `added`: there are newcomers."""

    added: bool


class Probe(msgspec.Struct, frozen=True, tag="probe"):
    """The other ranks have lost the worker. Its host's system takes the message, if it can be
    reached; the worker itself has nothing to do."""


Message = Arrival | Progress | Training | Raised | Placement | Removed | Update | Probe


class Messages:
    """One end of a connection. Sending and receiving may be two threads' business.

    Attributes:
        is_cut: whether it has ended as the other host could not be reached any more.
    """

    def __init__(self, connection: socket.socket, session: bytes, *, dialed: bool) -> None:
        own, other = directions(dialed=dialed)
        self._connection = connection
        self._sent, self._received = RecordTags(session, own), RecordTags(session, other)
        self._decoder = msgspec.msgpack.Decoder(Message)
        self._buffer = bytearray()
        self.is_cut = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, message: Message) -> None:
        """Raises OSError when the other end has hung up."""
        self._connection.sendall(self._sent.pack(msgspec.msgpack.encode(message)))

    def receive(self) -> Message:
        """The next message, however long it takes. Raises RendezvousError when the other end hangs
        up, or what comes is not its."""
        while (message := self._next()) is None:
            self._read()
        return message

    def take(self) -> Message | None:
        """The next message that has come, None for none. Raises as `receive` does."""
        while (message := self._next()) is None:
            if not select.select([self._connection], [], [], 0)[0]:
                return None
            self._read()
        return message

    def limit_silence(self, limit_s: float) -> None:
        """Lets the connection end when the other host's system has not taken what was sent for so
        long. Raises OSError once it has ended.
        """
        limit_ms = round(limit_s * 1000)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)

    def close(self) -> None:
        """Hangs up; a thread in `receive` raises."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _read(self) -> None:
        try:
            data = self._connection.recv(_READ_BYTES)
        except OSError as error:
            data = b""
            self.is_cut = error.errno in _CUT
        if not data:
            raise RendezvousError("the connection has ended")
        self._buffer += data

    def _next(self) -> Message | None:
        if len(self._buffer) < HEAD.size:
            return None
        (length,) = HEAD.unpack_from(self._buffer)
        if length > RECORD_BYTES:
            raise RendezvousError("received an invalid record")
        body_end, end = HEAD.size + length, HEAD.size + length + TAG_BYTES
        if len(self._buffer) < end:
            return None
        body, tag = bytes(self._buffer[:body_end]), bytes(self._buffer[body_end:end])
        del self._buffer[:end]
        data = self._received.unpack(body, tag)
        if data is None:
            raise RendezvousError("received a record with a wrong authentication tag")
        try:
            message: Message = self._decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise RendezvousError(f"received an invalid message: {error}") from None
        return message
