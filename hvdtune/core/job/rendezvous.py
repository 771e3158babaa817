"""The meeting of a job's ranks: rank 0 listens, and posts its address and the job's key on a board.

Each way to meet is a `Board`: a file or a port (hvdtune.core.job.meeting), torch's store
(hvdtune.distributed.store_board), or MPI (hvdtune.core.mpi.startup). Both ends of a connection
prove that they have the key before any other byte is read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from hvdtune import parse
from hvdtune.core.config.key_source import KEY_BYTES
from hvdtune.core.job import route
from hvdtune.errors import HvdtuneError, RendezvousError

if TYPE_CHECKING:
    from typing_extensions import Self

    from hvdtune.core.config.environment import Config
    from hvdtune.core.job.channel import JobChannel

T = TypeVar("T")
Start = Callable[["Config"], T]

# Every job has its own key, so the number has no meaning. Ranks of a generation other than 0 retry
# if rank 0 does not listen yet.
GENERATION: Final = 1
_LOOK_S: Final = 0.05
# A rank 0 that listens answers in a round trip.
_CONNECT_S: Final = 2.0


@dataclasses.dataclass(frozen=True)
class Offer:
    """The address at which rank 0 listens, and the job's key.

    Attributes:
        address: `host:port`.
        key: b"" if the ranks have it already.
        nonce: distinguishes two files of one name; "" elsewhere.
    """

    address: str
    key: bytes = dataclasses.field(repr=False)
    nonce: str = dataclasses.field(default="", repr=False)

    def to_json(self) -> str:
        return json.dumps({"address": self.address, "key": self.key.hex(), "nonce": self.nonce})

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """
        Raises:
            RendezvousError: the text is a `withdrawal`.
            ValueError, KeyError, TypeError: it is neither that nor an offer.
        """
        found = json.loads(text)
        if "withdrawn" in found:
            raise RendezvousError(f"Rank 0 could not open a rendezvous: {found['withdrawn']}")
        return cls(str(found["address"]), bytes.fromhex(found["key"]), str(found["nonce"]))

    def is_answered(self) -> bool:
        """Return whether a process listens at the address, so that the job has not ended."""
        with (
            contextlib.suppress(OSError),
            socket.create_connection(parse.endpoint(self.address), timeout=_CONNECT_S),
        ):
            return True
        return False


def withdrawal(why: str) -> str:
    """Return the text that replaces an offer that rank 0 cannot make."""
    return json.dumps({"withdrawn": why})


class TakenError(RendezvousError):
    """Another process seems to lead this job already."""


@dataclasses.dataclass(frozen=True)
class Opening:
    """The address and key with which rank 0 listens.

    Attributes:
        port: 0 for any free port.
        key: of the job. [default: a random one]
    """

    bind_host: str
    port: int = 0
    key: bytes = dataclasses.field(default_factory=lambda: os.urandom(KEY_BYTES), repr=False)


class Board:
    """A way for rank 0's offer to reach the other ranks.

    Attributes:
        is_hopeless: returns True if other ranks can no longer come; None if that is unknown.
    """

    is_hopeless: Callable[[], bool] | None = None

    def opening(self) -> Opening:
        """Return the address at which rank 0 is to listen, and the key."""
        raise NotImplementedError

    def posted(self, offer: Offer) -> contextlib.AbstractContextManager[object]:
        """Post rank 0's offer, at least while the block runs. May raise TakenError."""
        raise NotImplementedError

    def withdraw(self, why: str) -> None:
        """Report to the other ranks that there will be no offer, if they would wait long for it."""

    def await_offer(self, timeout_s: float) -> Offer:
        """Return rank 0's offer. Raises RendezvousError if it does not come within the timeout."""
        raise NotImplementedError


def meet(
    config: Config, board: Board, start: Start[T], generation: int = GENERATION
) -> tuple[Config, T]:
    """Join the job of `config.size` ranks. All of them call this.

    Args:
        config: with the rank and size of this process.
        start: joins the job whose rendezvous its argument names; returns when all ranks have.
        generation: of the rendezvous.

    Returns:
        The configuration that was used, and the result of `start`.

    Raises:
        TakenError: on rank 0.
        RendezvousError: not every rank came within the start timeout, or rank 0 cannot listen.
    """
    if config.place.rank == 0:
        return _lead(config, board, start, generation)
    return follow(config, board, start)


def follow(config: Config, board: Board, start: Start[T]) -> tuple[Config, T]:
    """Join a job that another process leads; see `meet`."""
    config = met_at(config, board.await_offer(config.timeouts.start_s))
    return config, start(config)


def _lead(config: Config, board: Board, start: Start[T], generation: int) -> tuple[Config, T]:
    """Listen and join until all ranks have joined."""
    wait_s = config.timeouts.start_s
    try:
        opening = board.opening()
        channel = _listen(opening, config.place.size, wait_s, generation)
    except HvdtuneError as error:
        board.withdraw(str(error))
        raise
    with contextlib.closing(channel), _aborted_if(board.is_hopeless, channel):
        offer = Offer(channel.address, opening.key)
        with board.posted(offer):
            config = met_at(config, offer)
            started = start(config)
            channel.await_formed(wait_s)
    return config, started


def _listen(opening: Opening, size: int, wait_s: float, generation: int) -> JobChannel:
    from hvdtune.core.job.channel import JobChannel

    try:
        return JobChannel(opening.key, size, opening.bind_host, wait_s, generation, opening.port)
    except RendezvousError as error:
        if opening.port:
            raise TakenError(str(error)) from None
        raise


def met_at(config: Config, offer: Offer) -> Config:
    """Return the configuration of a rank that has this offer, with its own address."""
    host, port = parse.endpoint(offer.address)
    address = config.rendezvous.own_address
    if not address and not route.is_loopback(host):
        address = route.address_for_peers(host)
    where = dataclasses.replace(
        config.rendezvous, address=host, port=port, key=offer.key, own_address=address
    )
    return dataclasses.replace(config, rendezvous=where)


@contextlib.contextmanager
def _aborted_if(is_hopeless: Callable[[], bool] | None, channel: JobChannel) -> Iterator[None]:
    """Fail the start-up as soon as other ranks can no longer come."""
    if is_hopeless is None:
        yield
        return
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(_LOOK_S):
            if is_hopeless():
                channel.abort("The other ranks can no longer join.")
                return

    thread = threading.Thread(target=look, name="hvdtune-meeting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
