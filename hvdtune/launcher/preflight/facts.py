"""What the check of hosts finds out: values that go through JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

# How much of a job is in vain: "fail" will not start or end in an error, "warn" may.
Severity = Literal["fail", "warn"]
WayState = Literal["ok", "unreachable", "unauthenticated", "unknown"]


@dataclass(frozen=True)
class HostFacts:
    """What one host says about itself. Limits are None where there is none, texts "" for nothing.

    `shm_total_bytes` and `shm_free_bytes` are those of /dev/shm, -1 without it; `memory_file_fault`
    says why no memory file can be made. `processors` counts those of the machine, `usable` those
    that a process has at a time, `affinity` names those that it may run on. `container` is what the
    host runs in, "" for none. `native_fault` says why the native core cannot be loaded.
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

    @classmethod
    def of(cls, document: dict[str, Any]) -> HostFacts:
        """The facts in a host's answer."""
        return cls(**{**document, "affinity": tuple(document["affinity"])})


@dataclass(frozen=True)
class HostFailure:
    """Why a host cannot take part: what was tried, what was seen, what to do."""

    check: Literal["name", "route", "ssh", "python", "hvdtune", "version", "answer", "address"]
    seen: str
    advice: str


@dataclass(frozen=True)
class HostReport:
    """One host. `slots` 0: the launcher's own host, which has no rank.

    `address` is the one that ranks there are reached at. Its clock is `clock_offset_ms` ahead of
    this host's, as found by the shortest of `clock_round_trips` round trips, half of which is how
    far that may be off.
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
    """The way from one host to another.

    `state` is "unknown" where one of the hosts could not be asked. Otherwise `seen` says why the
    connection to `address` and `port` could not be made or authenticated, and `others` names
    addresses of the target that can be reached, with their interfaces, as in "10.1.0.2 (ib0)".
    `name_fault` says why the name cannot be resolved there, "" where it can, and `meeting_fault`
    why the target's `meeting_port` cannot be reached. The figures are medians of so many
    `round_trips` and `blocks`; 0 without any.
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
    """What to do something about: where, what was seen, and what to do.

    `target` is "" for a problem of one host, else the other end of the way from it.
    """

    severity: Severity
    check: str
    host: str
    target: str
    seen: str
    advice: str

    def sentence(self) -> str:
        """All of it in one."""
        where = f"{self.host} -> {self.target}" if self.target else self.host
        return f"{where}: {self.seen}: {self.advice}"
