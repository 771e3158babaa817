"""Results of the check of hosts: values that go through JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# "fail": a job will not start, or end in an error; "warn": it may.
Severity = Literal["fail", "warn"]
WayState = Literal["ok", "unreachable", "unauthenticated", "unknown"]


@dataclass(frozen=True)
class HostFacts:
    """The facts of one host. A limit of None is no limit.

    Attributes:
        container: the container or pod that the host runs in; "" for none.
        shm_total_bytes: size of /dev/shm; -1 without it.
        shm_free_bytes: free part of /dev/shm; -1 without it.
        memory_file_fault: why no memory file can be made; "" if it can.
        processors: those of the machine.
        usable: the number that a process has at a time.
        affinity: those that a process may run on.
        native_fault: why the native core cannot be loaded; "" if it can.
    """

    python: str
    hostname: str
    container: str
    shm_total_bytes: int
    shm_free_bytes: int
    memory_file_fault: str
    open_files: int | None
    open_files_limit: int | None
    locked_bytes: int | None
    processors: int
    usable: int
    affinity: tuple[int, ...]
    native_fault: str


@dataclass(frozen=True)
class HostFailure:
    """A host that cannot take part: the failed check, the symptom and the remedy."""

    check: Literal["name", "route", "ssh", "python", "hvdtune", "version", "answer", "address"]
    seen: str
    advice: str


@dataclass(frozen=True)
class HostReport:
    """The results for one host.

    Attributes:
        slots: 0 for the launcher's own host if it has no rank.
        address: where ranks there are reached.
        clock_offset_ms: how far its clock is ahead of this host's, by the shortest round trip.
        clock_round_trip_ms: that round trip; half of it is the error of the offset.
        meeting_port: a further port where ranks meet; 0 if it was not checked.
        meeting_fault: why the host cannot listen there; "" if it can.
    """

    name: str
    slots: int
    is_local: bool
    failure: HostFailure | None = None
    facts: HostFacts | None = None
    version: str = ""
    address: str = ""
    clock_offset_ms: float | None = None
    clock_round_trip_ms: float | None = None
    clock_round_trips: int = 0
    meeting_port: int = 0
    meeting_fault: str = ""


@dataclass(frozen=True)
class PairReport:
    """The results for the way from one host to another.

    Attributes:
        state: "unknown" if one of the hosts failed before.
        seen: the symptom at `address` and `port` if the state is not "ok".
        others: addresses of the target that can be reached instead, as in "10.1.0.2 (ib0)".
        name_fault: why the source cannot resolve the target's name; "" if it can.
        meeting_fault: why the target's `meeting_port` cannot be reached; "" if it can.
        round_trip_us: median of `round_trips` measurements; 0 without any.
        mib_per_s: median of `blocks` measurements; 0 without any.
        measure_fault: why the measurement broke; "" if it did not.
    """

    source: str
    target: str
    state: WayState = "unknown"
    address: str = ""
    port: int = 0
    seen: str = ""
    others: tuple[str, ...] = ()
    name_fault: str = ""
    meeting_port: int = 0
    meeting_fault: str = ""
    round_trip_us: float = 0.0
    round_trips: int = 0
    mib_per_s: float = 0.0
    blocks: int = 0
    measure_fault: str = ""


@dataclass(frozen=True)
class Problem:
    """A problem: its place, its symptom and its remedy.

    Attributes:
        target: the other end of the way from `host`; "" for a problem of one host.
    """

    severity: Severity
    check: str
    host: str
    target: str
    seen: str
    advice: str

    def sentence(self) -> str:
        """Return place, symptom and remedy in one line."""
        where = f"{self.host} -> {self.target}" if self.target else self.host
        return f"{where}: {self.seen}: {self.advice}"
