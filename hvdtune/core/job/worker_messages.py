"""Messages between a worker of an elastic job and its launcher, over a proved connection.

    worker -> launcher   Arrival     it has called `init` and waits for its place
                         Progress    the training progress, from rank 0
                         Training    it is in a training function, or has returned from it
                         Raised      its training function ends with an error of the script
    launcher -> worker   Placement   its place in a generation that forms
                         Removed     it is no longer needed
                         Update      the generation is to end at the next commit
                         Probe       no content: a test whether its host still receives data

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
    """A worker waits in `init`.

    Attributes:
        generation: the last one that it was in, or -1.
        has_state: it holds a state of the training.
        commits: the number of commits in that state.
        must_sync: the others may not have that state.
        lost: ranks of that generation that its runtime has given up.
        why: the error that its training function raised, or "".
    """

    worker: int
    generation: int
    has_state: bool
    commits: int
    must_sync: bool
    lost: tuple[int, ...]
    why: str = ""


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """Rank 0 has committed, or has sent its state to all ranks of a generation.

    Attributes:
        samples: trained in this job; 0 if the script does not report them.
        commits: in this job.
        all_commits: of the training, including those of the jobs that it was resumed from.
        is_commit: rank 0 has committed.
    """

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
    """The worker's training function ends with the error `why`, not because of another rank."""

    worker: int
    why: str


class Placement(msgspec.Struct, frozen=True, tag="placement"):
    """A rank of a generation.

    Attributes:
        rendezvous: `host:port` at which its ranks meet.
        must_sync: rank 0 is to send its state to the others.
    """

    generation: int
    rank: int
    size: int
    rendezvous: str
    must_sync: bool


class Removed(msgspec.Struct, frozen=True, tag="removed"):
    """The worker's slot is gone."""


class Update(msgspec.Struct, frozen=True, tag="update"):
    """The hosts have changed; `added` if there are new ones."""

    added: bool


class Probe(msgspec.Struct, frozen=True, tag="probe"):
    """The other ranks have lost the worker. Its host's system receives the message, if it can be
    reached; the worker ignores it."""


Message = Arrival | Progress | Training | Raised | Placement | Removed | Update | Probe


class Messages:
    """One end of a connection. One thread may send while another receives.

    Attributes:
        is_cut: whether it has ended because the other host became unreachable.
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
        """Raises OSError if the other end has closed the connection."""
        self._connection.sendall(self._sent.pack(msgspec.msgpack.encode(message)))

    def receive(self) -> Message:
        """Wait for the next message and return it.

        Raises RendezvousError if the other end closes the connection, or the message is not its.
        """
        while (message := self._next()) is None:
            self._read()
        return message

    def take(self) -> Message | None:
        """Return the next message if it has arrived. Raises as `receive` does."""
        while (message := self._next()) is None:
            if not select.select([self._connection], [], [], 0)[0]:
                return None
            self._read()
        return message

    def limit_silence(self, limit_s: float) -> None:
        """End the connection if the other host's system does not receive sent data for `limit_s`.

        Raises OSError if it has ended.
        """
        limit_ms = round(limit_s * 1000)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, limit_ms)

    def close(self) -> None:
        """Close the connection; a thread in `receive` raises."""
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
