"""The channel between a job's launcher and its ranks, for events of the ranks and requests to them.

The C++ core's events are dictionaries, which are turned into values here.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from hvdtune.core.config.knobs import Setting
from hvdtune.core.job.route import endpoint
from hvdtune.errors import HvdtuneError, RendezvousError

# The version of a proposal that no rank received; no step is ever taken under it.
NEVER_ADOPTED: Final = -2


@dataclass(frozen=True)
class RankAddress:
    """The host and process of one rank."""

    rank: int
    host: str
    pid: int


@dataclass(frozen=True)
class Formed:
    """Every rank has called `init()`; `knobs` is the setting of version 0, {} if unknown."""

    ranks: tuple[RankAddress, ...]
    knobs: Setting = field(default_factory=dict)


@dataclass(frozen=True)
class StepDone:
    """One optimizer step of all ranks.

    `version` is the setting in force during the whole step, -1 when one was adopted inside it;
    `durations_ns` has one entry per rank; `t_ns` is rank 0's monotonic clock at the step's end.
    """

    step: int
    version: int
    durations_ns: tuple[int, ...]
    t_ns: int


@dataclass(frozen=True)
class Adopted:
    """Every rank has adopted this version."""

    version: int


@dataclass(frozen=True)
class Rejected:
    """The ranks refused this version and stay with the one before."""

    version: int
    reason: str


@dataclass(frozen=True)
class Lost:
    """A rank failed, or start-up did (`rank` is -1 when no single rank is at fault)."""

    rank: int
    message: str


@dataclass(frozen=True)
class Left:
    """A rank has shut down in good order, as all do at the end of a job."""

    rank: int


@dataclass(frozen=True)
class Declared:
    """The script has a knob of its own on every rank; `knobs` is JSON that
    `core.config.knobs.read_declaration` reads."""

    knobs: str


@dataclass(frozen=True)
class Closed:
    """Rank 0 closed the connection: the job is over unless the ranks call `init()` again."""


JobEvent = Formed | StepDone | Adopted | Rejected | Lost | Left | Declared | Closed

# By the core's names; the fields of each have the names of its dictionary's keys.
_KINDS: Final[Mapping[str, type[JobEvent]]] = {
    "formed": Formed,
    "step": StepDone,
    "adopted": Adopted,
    "rejected": Rejected,
    "lost": Lost,
    "left": Left,
    "declared": Declared,
    "closed": Closed,
}


class JobChannel:
    """Listens for the ranks of one job; may be used from any thread.

    Args:
        key: the job's 32-byte secret.
        size: number of ranks.
        bind_host: the address to listen on.
        start_timeout_s: how long the ranks may take to find each other.
        generation: the number of the first job; each that the ranks form later has the next one.
        port: where to listen; 0 for any that is free.
    """

    def __init__(
        self,
        key: bytes,
        size: int,
        bind_host: str = "127.0.0.1",
        start_timeout_s: float = 30.0,
        generation: int = 0,
        port: int = 0,
    ) -> None:
        from hvdtune.core._native import JobServer

        self._server = JobServer(key, size, bind_host, start_timeout_s, generation, port)
        self._bind_host = bind_host
        self._version = 0
        self._propose_lock = threading.Lock()

    @property
    def address(self) -> str:
        """`host:port` for HVDTUNE_RENDEZVOUS; `[host]:port` with an address of IPv6.

        A link-local address has no interface here: ranks elsewhere have other interfaces.
        """
        return endpoint(self._bind_host.partition("%")[0], self._server.port)

    def propose(self, setting: Setting) -> int:
        """Ask all ranks to adopt the setting; returns its version (1, 2, ...; 0 is the start's)."""
        with self._propose_lock:
            self._version += 1
            self._server.propose(self._version, dict(setting))
            return self._version

    def record(self, path: str, max_bytes: int = 0) -> None:
        """Ask all ranks to record from their next cycle on; returns at once.

        A rank that is recording continues its file, with all steps, until the recording is ended.

        Args:
            path: of each rank's file, `%r` for the rank; "" ends the recording.
            max_bytes: of each rank's files together; the oldest records are dropped. 0: no cap.
        """
        self._server.record(path, max_bytes)

    def next_event(self, timeout_s: float) -> JobEvent | None:
        """Return the oldest event not yet taken, or None after the timeout."""
        event = self._server.next_event(timeout_s)
        return None if event is None else event_from_dict(event)

    def await_formed(self, timeout_s: float) -> None:
        """Returns when every rank has joined, or after the timeout.

        Raises RendezvousError if start-up has failed.
        """
        deadline_s = time.monotonic() + timeout_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            match self.next_event(left_s):
                case Formed():
                    return
                case Lost(message=message):
                    raise RendezvousError(message)

    def abort(self, why: str) -> None:
        """Fails the start-up: the ranks, including those that join later, raise `why`.

        For a launcher that sees a rank end before it has joined, or that does not let a rank join
        again. No effect on a formed job.
        """
        self._server.abort(why)

    def close(self) -> None:
        """Close the connections; the ranks keep running with the setting they have."""
        self._server.close()


def event_from_dict(event: Mapping[str, Any]) -> JobEvent:
    """Return the value of one event of the C++ core."""
    kind = _KINDS.get(event["type"])
    if kind is None:
        raise HvdtuneError(f"The ranks sent an event of unknown type {event['type']!r}")
    return msgspec.convert(event, kind)
