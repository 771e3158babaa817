"""Jobs that a scheduler or another launcher has started: where the ranks find each other.

Rank 0 opens the rendezvous. Without a key of the user's it leaves a file for the others in a folder
that the hosts share, with its address and the job's key, and removes it once the job has formed.
With a key the others need no file where they know rank 0's host: its port follows from the job.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import hmac
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from hvdtune import parse
from hvdtune.core.config.key_source import KEY_BYTES
from hvdtune.core.job import route
from hvdtune.core.job.channel import JobChannel
from hvdtune.core.job.job_file import JobFile, Offer, OfferedError
from hvdtune.core.job.starter import starter_name
from hvdtune.errors import RendezvousError, UsageError
from hvdtune.plural import counted

if TYPE_CHECKING:
    from hvdtune.core.config.environment import Config
    from hvdtune.core.config.meeting_point import MeetingPoint

T = TypeVar("T")
Start = Callable[["Config"], T]

# Every job has a key of its own, so the number tells nothing; ranks of another one than 0 ask again
# where nobody listens yet.
GENERATION: Final = 1
_LOOPBACK: Final = "127.0.0.1"
# Between two looks for rank 0's file: soon at first, then as often as a file server bears.
_FIRST_LOOK_S: Final = 0.02
_LAST_LOOK_S: Final = 1.0
# A name of a container that is starting is known to the others after some seconds.
_NAME_S: Final = 10.0
# Another rank 0 answers in a round trip; a program that is none of ours may say nothing.
_TWIN_S: Final = 2.0
_TWICE: Final = "if the others run already, one of them was told the same rank"
SAME_KEY: Final = (
    "HVDTUNE_KEY_FILE or HVDTUNE_KEY has to name the same key everywhere, and HVDTUNE_JOB_ID, if "
    "set, the same job"
)
ELSEWHERE: Final = "HVDTUNE_RENDEZVOUS_HOST and HVDTUNE_RENDEZVOUS_PORT name another place to meet"
_WITHOUT_KEY: Final = "HVDTUNE_KEY to the same key everywhere"
_WITH_KEY: Final = "HVDTUNE_RENDEZVOUS_HOST to the host of rank 0, where the key is enough"
ALONE: Final = "if this process is alone, set HVDTUNE_STARTED_BY=none"


_met: Final[set[str]] = set()  # the files that led this process to a job


class _PortTakenError(RendezvousError):
    """Rank 0 cannot listen where the others look for it."""


def join(config: Config, start: Start[T]) -> tuple[Config, T]:
    """Brings this process into the job that its launcher's variables describe.

    All processes of the job call it. Called again after a job has ended, they form the next one.

    Args:
        config: with a meeting point whose place has rank and size.
        start: joins the job whose rendezvous its argument names; returns when all ranks have.

    Returns:
        The configuration that was used, and what `start` returned.

    Raises:
        RendezvousError: not every rank came within the start timeout.
        UsageError: the environment leaves out what the ranks need to find each other.
    """
    point = config.rendezvous.meeting
    assert point is not None
    rank, size = point.place.rank, point.place.size
    assert rank is not None and size is not None
    config = dataclasses.replace(
        config, place=dataclasses.replace(config.place, rank=rank, size=size)
    )
    try:
        if rank == 0:
            return _lead(config, point, start)
        return _follow(config, point, start)
    except _PortTakenError as error:
        raise RendezvousError(f"{error} ({_who(point)}; {ALONE})") from None
    except RendezvousError as error:
        keyed = [SAME_KEY] if point.key else []
        placed = [ELSEWHERE, _TWICE] if point.is_by_port else []
        placed = [_where(config, point)] if rank == 0 else placed
        said = "; ".join([_who(point), *keyed, *placed, ALONE])
        raise RendezvousError(f"{error} ({said})") from None


def require_meetable(point: MeetingPoint) -> None:
    """Raises UsageError as `join` does, for what can be known without waiting for others."""
    file = _file_of(point, _job_of(point))
    if not point.is_by_port:
        file.require_folder()


@dataclasses.dataclass(frozen=True)
class Opening:
    """How whoever leads lets the others find it: where it listens, at any port for 0, and its key.

    `file` is where it says so; None where the others know it.
    """

    bind_host: str
    port: int
    key: bytes = dataclasses.field(repr=False)
    file: JobFile | None = None
    is_key_known: bool = False

    def offered(self, address: str) -> contextlib.AbstractContextManager[None]:
        """The others are told the address, and the key if they do not know it, in the block."""
        if self.file is None:
            return contextlib.nullcontext()
        return self.file.offered(address, b"" if self.is_key_known else self.key)


def opening(point: MeetingPoint, address: str, count: int, part: str = "") -> Opening:
    """How the first of a job's processes opens a meeting.

    Args:
        address: the one of this host's that the user has chosen, "" for none.
        count: of the meetings of this job before; each has a key of its own.
        part: tells meetings of one job apart that are there at a time.

    Raises UsageError as `join` does, OfferedError in the block of `offered` where another process
    has opened the meeting.
    """
    job = _job_of(point) + part
    key = _derived(point.key, job, count) if point.key else os.urandom(KEY_BYTES)
    bind_host = _listening_address(point, address)
    if point.is_by_port:
        return Opening(bind_host, point.port_of(job), key)
    return Opening(bind_host, 0, key, _file_of(point, job), bool(point.key))


def find_leader(
    point: MeetingPoint, address: str, count: int, timeout_s: float, part: str = ""
) -> tuple[str, bytes]:
    """Where the first of a job's processes listens, as `host:port`, and the key of the meeting.

    The arguments are those of `opening`. Where only the port is known, it may not listen yet.

    Raises RendezvousError when nothing is heard of it in time, UsageError as `join` does.
    """
    job = _job_of(point) + part
    if point.is_by_port:
        host = _address_of_rank_0(point, address, timeout_s)
        where = f"[{host}]" if ":" in host else host
        return f"{where}:{point.port_of(job)}", _derived(point.key, job, count)
    file = _file_of(point, job)
    file.require_folder()
    offer = _await_offer(file, job, timeout_s, _WITH_KEY if point.key else _WITHOUT_KEY)
    if bool(offer.key) == bool(point.key):
        both = (
            "no key, and this process has one" if point.key else "a key, and this process has none"
        )
        raise UsageError(f"{_who(point)}; rank 0, by {file.path}, has {both}: {SAME_KEY}")
    _met.add(offer.nonce)
    return offer.address, _derived(point.key, job, count) if point.key else offer.key


def _lead(config: Config, point: MeetingPoint, start: Start[T]) -> tuple[Config, T]:
    """Rank 0: opens the rendezvous, tells the others, and goes when all are there.

    Where another process has done so for the same job, it joins that one as a second rank 0: there
    both are refused, by a sentence that names both. Another program that has the port answers
    nothing, or not as rank 0 does, and is not waited for.
    """
    how = opening(point, config.rendezvous.own_address, config.rendezvous.generation)
    wait_s = config.timeouts.start_s
    hasty = dataclasses.replace(
        config, timeouts=dataclasses.replace(config.timeouts, start_s=min(wait_s, _TWIN_S))
    )
    try:
        channel = JobChannel(
            how.key, config.place.size, how.bind_host, wait_s, GENERATION, how.port
        )
    except RendezvousError as taken:
        if not how.port:
            raise
        try:
            return _follow(hasty, point, start)
        except RendezvousError as error:
            raise _PortTakenError(
                f"{taken}; {error}; unless another rank 0 of this job has that port, set "
                "HVDTUNE_RENDEZVOUS_PORT, the same for all ranks, to one that is free"
            ) from None
    with contextlib.closing(channel):
        try:
            with how.offered(channel.address):
                config = met_at(config, channel.address, how.key)
                started = start(config)
                channel.await_formed(wait_s)
        except OfferedError as twin:
            key = how.key if how.is_key_known else twin.offer.key
            config = met_at(hasty, twin.offer.address, key)
            try:
                started = start(config)
            except RendezvousError as error:
                assert how.file is not None
                raise RendezvousError(f"{error}; {how.file.path} led there") from None
    return config, started


def _follow(config: Config, point: MeetingPoint, start: Start[T]) -> tuple[Config, T]:
    """The other ranks: find out where rank 0 listens."""
    address, count = config.rendezvous.own_address, config.rendezvous.generation
    config = met_at(config, *find_leader(point, address, count, config.timeouts.start_s))
    return config, start(config)


def met_at(config: Config, endpoint: str, key: bytes) -> Config:
    """The configuration of a rank that knows where rank 0 listens."""
    host, port = parse.endpoint(endpoint)
    address = config.rendezvous.own_address
    if not address and not route.is_loopback(host):
        address = route.address_for_peers(host)
    rendezvous = dataclasses.replace(
        config.rendezvous, address=host, port=port, key=key, own_address=address
    )
    return dataclasses.replace(config, rendezvous=rendezvous)


def _job_of(point: MeetingPoint) -> str:
    """What tells this job from all others of this user. Raises UsageError where nothing does."""
    place = point.place
    name = point.job or starter_name(on_one_host=place.is_on_one_host)
    if not name:
        raise UsageError(
            f"{_who(point)}, but not which of its jobs that is: set HVDTUNE_JOB_ID, the same for "
            "all ranks and another one for each job"
        )
    return f"{place.dialect}/{name}"


def _file_of(point: MeetingPoint, job: str) -> JobFile:
    return JobFile(point.folder, job, makes_folder=not point.is_folder_chosen)


def _derived(key: bytes, job: str, count: int) -> bytes:
    """The key of one job: ranks of another one that has the same user's key do not know it."""
    return hmac.digest(key, f"hvdtune job {count} {job}".encode(), hashlib.sha256)


def _listening_address(point: MeetingPoint, chosen: str) -> str:
    """Where rank 0 listens. The same for every process of its host that asks."""
    if point.place.is_on_one_host or point.host.lower() in ("localhost", _LOOPBACK, "::1"):
        return _LOOPBACK
    if chosen and not point.is_by_port:
        return chosen
    # Where one of the hosts is unknown, so are the others, and each may take seconds.
    with contextlib.suppress(OSError):
        for address in route.addresses_of(point.host) if point.host else ():
            if not route.is_loopback(address) and route.is_own(address):
                return address
        for other in point.place.hosts:
            address = route.own_address_towards(other)
            if not route.is_loopback(address):
                return address
    address = route.default_address()
    if not address:
        raise UsageError(
            f"{_who(point)}, but no way leads from this host to others: set HVDTUNE_INTERFACE to "
            "the interface that the hosts have in common"
        )
    return address


def _where(config: Config, point: MeetingPoint) -> str:
    """Where rank 0 and the others meet, as far as it knows."""
    if not point.is_by_port:
        path = _file_of(point, _job_of(point)).path
        return f"the others look for {path}, in a folder that all hosts have to share"
    address = _listening_address(point, config.rendezvous.own_address)
    port = point.port_of(_job_of(point))
    host, unknown = point.host, ""
    if point.place.is_on_one_host:
        host = _LOOPBACK
    else:
        try:
            route.addresses_of(host)
        except OSError:
            unknown = ", a name that is not known here"
    return (
        f"rank 0 listens at {address}, and the others look for it at {host}, port {port}{unknown}"
    )


def _address_of_rank_0(point: MeetingPoint, chosen: str, timeout_s: float) -> str:
    if point.place.is_on_one_host:
        return _LOOPBACK
    found = _addresses_of(point.host, min(timeout_s, _NAME_S))
    if any(route.is_own(address) for address in found):
        return _listening_address(point, chosen)
    return found[0]


def _addresses_of(host: str, timeout_s: float) -> list[str]:
    """The addresses of rank 0's host, whose name may become known after this rank has started.

    Raises UsageError where it does not in time.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return route.addresses_of(host)
        except OSError as error:
            if time.monotonic() >= deadline_s:
                raise UsageError(
                    f"the host of rank 0, {host}, is not known here: {error.strerror}; set "
                    "HVDTUNE_RENDEZVOUS_HOST to a name or an address of it"
                ) from None
        time.sleep(min(_LAST_LOOK_S, timeout_s))


def _await_offer(file: JobFile, job: str, timeout_s: float, without_file: str) -> Offer:
    """Waits for rank 0's file; one that leads nowhere is of a job that has ended.

    Args:
        job: whose file it is, for the message.
        without_file: what to set so that no file is needed.

    Raises RendezvousError when there is none in time.
    """
    deadline_s = time.monotonic() + timeout_s
    pause_s = _FIRST_LOOK_S
    said = ""
    while True:
        offer = file.read()
        if offer is not None and offer.nonce not in _met:
            if offer.is_answered():
                return offer
            said = f"; the file there names {offer.address}, where nobody listens"
        elif not file.has_folder:
            said = "; there is no such folder here"
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise RendezvousError(
                f"no word from rank 0 in {file.path} for {timeout_s:g} s{said}: if the hosts do "
                "not share that folder, set HVDTUNE_SHARED_FOLDER to one that they share, or "
                f"{without_file}; if rank 0 was told of another job than {job}, set "
                f"HVDTUNE_JOB_ID, the same for all ranks; {_TWICE}"
            )
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _LAST_LOOK_S)
        if pause_s == _LAST_LOOK_S:
            file.refresh()


def _who(point: MeetingPoint) -> str:
    place = point.place
    return (
        f"{place.title} says that this is rank {place.rank} of {counted(place.size or 0, 'rank')}, "
        f"by {place.source}"
    )
