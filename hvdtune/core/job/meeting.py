"""The meeting of ranks that a scheduler or another launcher has started: by a file or by a port.

Without a key of the user's, rank 0 writes a file into a folder that the hosts share, with its
address and the job's key, and removes it when all ranks have joined. With a key, no file is needed
if the others know rank 0's host: its port follows from the job.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import hmac
import time
from typing import TYPE_CHECKING, Final, TypeVar

from hvdtune.core.job import rendezvous, route
from hvdtune.core.job.job_file import JobFile
from hvdtune.core.job.rendezvous import Board, Offer, Opening, Start, TakenError
from hvdtune.core.job.starter import starter_name
from hvdtune.errors import RendezvousError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from hvdtune.core.config.environment import Config
    from hvdtune.core.config.meeting_point import MeetingPoint

T = TypeVar("T")

# Interval between two looks for rank 0's file: short at first, then one that a file server bears.
_FIRST_LOOK_S: Final = 0.02
_LAST_LOOK_S: Final = 1.0
# The name of a container that is starting becomes known to the others after some seconds.
_NAME_S: Final = 10.0
# Another rank 0 answers in a round trip; another program may not answer.
_TWIN_S: Final = 2.0
_TWICE: Final = "If the other ranks are running, two of them have the same rank"
SAME_KEY: Final = (
    "HVDTUNE_KEY_FILE or HVDTUNE_KEY must name the same key on all ranks, and HVDTUNE_JOB_ID, if "
    "set, the same job"
)
ELSEWHERE: Final = (
    "To use another host or port, set HVDTUNE_RENDEZVOUS_HOST or HVDTUNE_RENDEZVOUS_PORT"
)
_ALONE: Final = "To run this process alone, set HVDTUNE_STARTED_BY=none"

_met: Final[set[str]] = set()  # nonces of the files that led this process to a job


def join(config: Config, start: Start[T]) -> tuple[Config, T]:
    """Join the job that the launcher's variables describe; see `rendezvous.meet`.

    All processes of the job call it. Called again after a job has ended, they form the next one.

    Args:
        config: with a meeting point whose place has rank and size.
        start: joins the job that its configuration names; returns when all ranks have joined.

    Raises:
        RendezvousError: not every rank came within the start timeout.
        UsageError: the environment lacks what the ranks need to find each other.
    """
    point = config.rendezvous.meeting
    assert point is not None
    rank, size = point.place.rank, point.place.size
    assert rank is not None and size is not None
    config = dataclasses.replace(
        config, place=dataclasses.replace(config.place, rank=rank, size=size)
    )
    board = board_of(point, config.rendezvous.own_address, config.rendezvous.generation)
    try:
        return rendezvous.meet(config, board, start)
    except TakenError as taken:
        return _join_other(config, board, start, taken)
    except RendezvousError as error:
        keyed = [SAME_KEY] if point.key else []
        placed = [ELSEWHERE, _TWICE] if point.is_by_port else []
        placed = [board.of_rank_0()] if rank == 0 else placed
        raise _explained(error, board.source, *keyed, *placed, _ALONE) from None


def _join_other(
    config: Config, board: PointBoard, start: Start[T], taken: TakenError
) -> tuple[Config, T]:
    """Join the job that another process leads, as a second rank 0.

    That process then refuses both, and names both. Another program at the port does not answer
    like rank 0, so this waits for it only briefly.
    """
    wait_s = min(config.timeouts.start_s, _TWIN_S)
    hasty = dataclasses.replace(
        config, timeouts=dataclasses.replace(config.timeouts, start_s=wait_s)
    )
    try:
        return rendezvous.follow(hasty, board, start)
    except RendezvousError as error:
        raise _explained(taken, error, board.if_taken, board.source, _ALONE) from None


def _explained(*sentences: object) -> RendezvousError:
    texts = [str(each).rstrip(".") for each in sentences]
    return RendezvousError(". ".join(filter(None, texts)) + ".")


def require_meetable(point: MeetingPoint) -> None:
    """Raises UsageError as `join` does, for what can be checked without other ranks."""
    board_of(point, "", 0).require()


def board_of(point: MeetingPoint, chosen: str, count: int, part: str = "") -> PointBoard:
    """Return the way in which the processes of a job meet.

    Args:
        chosen: the address of this host that the user has chosen; "" for the default.
        count: the number of earlier meetings of this job. Each has its own key.
        part: distinguishes meetings of one job at the same time.

    Raises UsageError if the job has no name.
    """
    kind = _PortBoard if point.is_by_port else _FileBoard
    return kind(point, chosen, count, part)


class PointBoard(Board):
    """A board at a MeetingPoint.

    Attributes:
        source: names the launcher's variables of this process's place, for messages.
        path: of the file with the offer; None without one.
        if_taken: advice if another process seems to lead the job.
    """

    path: Path | None = None
    if_taken: str = ""

    def __init__(self, point: MeetingPoint, chosen: str, count: int, part: str) -> None:
        """See `board_of`."""
        place = point.place
        self.source = f"{place.title} set rank {place.rank} of {place.size} by {place.source}"
        name = point.job or starter_name(on_one_host=place.is_on_one_host)
        if not name:
            raise UsageError(
                f"{self.source}, but no job ID. Set HVDTUNE_JOB_ID, the same on all ranks and "
                "different for each job"
            )
        self._point, self._chosen = point, chosen
        self._job = f"{place.dialect}/{name}{part}"
        # Ranks of another job that has the same user's key do not have this one.
        text = f"hvdtune job {count} {self._job}".encode()
        self._key = hmac.digest(point.key, text, hashlib.sha256) if point.key else b""

    def require(self) -> None:
        """Raises UsageError for what can be checked without other ranks."""

    def of_rank_0(self) -> str:
        """Return a sentence for rank 0 about where the others look for it."""
        raise NotImplementedError

    def _listening_address(self) -> str:
        """Return rank 0's address. All processes of its host get the same one."""
        point = self._point
        if point.place.is_on_one_host or point.host.lower() in ("localhost", route.LOOPBACK, "::1"):
            return route.LOOPBACK
        if self._chosen and not point.is_by_port:
            return self._chosen
        # If one of the hosts is unknown, so are the others, and each may take seconds.
        with contextlib.suppress(OSError):
            for address in route.addresses_of(point.host) if point.host else ():
                if not route.is_loopback(address) and route.is_own(address):
                    return address
            for other in point.place.hosts:
                address = route.own_address_towards(other)
                if not route.is_loopback(address):
                    return address
        return route.default_address()


class _PortBoard(PointBoard):
    """The host of rank 0 and a port that follows from the job. The ranks have the key."""

    if_taken = (
        "If that port belongs to another program, not to another rank 0 of this job, set "
        "HVDTUNE_RENDEZVOUS_PORT to a free port, the same on all ranks"
    )

    @property
    def _port(self) -> int:
        return self._point.port_of(self._job)

    def opening(self) -> Opening:
        return Opening(self._listening_address(), self._port, self._key)

    def posted(self, offer: Offer) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext()

    def await_offer(self, timeout_s: float) -> Offer:
        """Return rank 0's address, on which it may not listen yet."""
        point, host = self._point, route.LOOPBACK
        if not point.place.is_on_one_host:
            found = _addresses_of(point.host, min(timeout_s, _NAME_S))
            is_here = any(route.is_own(address) for address in found)
            host = self._listening_address() if is_here else found[0]
        return Offer(route.endpoint(host, self._port), self._key)

    def of_rank_0(self) -> str:
        host, unknown = self._point.host, ""
        if self._point.place.is_on_one_host:
            host = route.LOOPBACK
        else:
            try:
                route.addresses_of(host)
            except OSError:
                unknown = " (unknown to this host)"
        return (
            f"Rank 0 listens on {self._listening_address()}; the others connect to port "
            f"{self._port} of {host}{unknown}"
        )


class _FileBoard(PointBoard):
    """A file in a folder that the hosts share."""

    def __init__(self, point: MeetingPoint, chosen: str, count: int, part: str) -> None:
        super().__init__(point, chosen, count, part)
        self._file = JobFile(point.folder, self._job, makes_folder=not point.is_folder_chosen)
        self.path = self._file.path

    def require(self) -> None:
        self._file.require_folder()

    def opening(self) -> Opening:
        address = self._listening_address()
        return Opening(address, key=self._key) if self._key else Opening(address)

    def posted(self, offer: Offer) -> contextlib.AbstractContextManager[object]:
        return self._file.offered(offer.address, b"" if self._key else offer.key)

    def await_offer(self, timeout_s: float) -> Offer:
        """Wait for rank 0's file. The file of a job that has ended does not count."""
        self.require()
        offer = self._await_file(timeout_s)
        if bool(offer.key) == bool(self._key):
            both = (
                "no key, and this process has one"
                if self._key
                else "a key, and this process has none"
            )
            raise UsageError(f"Rank 0 has {both} ({self.path}). {SAME_KEY}. {self.source}")
        _met.add(offer.nonce)
        return dataclasses.replace(offer, key=self._key or offer.key)

    def _await_file(self, timeout_s: float) -> Offer:
        deadline_s = time.monotonic() + timeout_s
        pause_s = _FIRST_LOOK_S
        while True:
            offer, detail = self._file.read(), ""
            if offer is not None and offer.nonce not in _met:
                if offer.is_answered():
                    return offer
                detail = f" (the file there names {offer.address}, which does not answer)"
            elif not self._file.has_folder:
                detail = " (the folder is missing on this host)"
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise self._missing(timeout_s, detail)
            time.sleep(min(pause_s, left_s))
            pause_s = min(2 * pause_s, _LAST_LOOK_S)
            if pause_s == _LAST_LOOK_S:
                self._file.refresh()

    def _missing(self, timeout_s: float, detail: str) -> RendezvousError:
        instead = (
            "HVDTUNE_RENDEZVOUS_HOST to the host of rank 0, which makes the file unnecessary"
            if self._key
            else "HVDTUNE_KEY to the same key on all ranks"
        )
        return RendezvousError(
            f"No file of rank 0 at {self.path} within {timeout_s:g} s{detail}. If the hosts do not "
            f"share that folder, set HVDTUNE_SHARED_FOLDER to one that they share, or {instead}. "
            f"If the job ID of rank 0 is not {self._job}, set HVDTUNE_JOB_ID, the same on all "
            f"ranks. {_TWICE}"
        )

    def of_rank_0(self) -> str:
        return f"The other ranks look for {self.path}. All hosts must share its folder"


def _addresses_of(host: str, timeout_s: float) -> list[str]:
    """Return the addresses of rank 0's host, whose name may become known after a while.

    Raises UsageError if it does not in time.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return route.addresses_of(host)
        except OSError as error:
            if time.monotonic() >= deadline_s:
                raise UsageError(
                    f"The host of rank 0, {host}, is unknown here ({error.strerror}). Set "
                    "HVDTUNE_RENDEZVOUS_HOST to its name or address"
                ) from None
        time.sleep(min(_LAST_LOOK_S, timeout_s))
