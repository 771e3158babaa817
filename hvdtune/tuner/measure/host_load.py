"""What else happens on the launcher's host, and what the ranks there cost. Linux's /proc."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hvdtune.errors import StudyError
from hvdtune.tuner.measure.blocks import Interference

_CPUCLOCK_SCHED = 2
_NOT_HERE = "CPU time is measured only if every rank runs on the launcher's host"


@dataclass(frozen=True)
class HostCounters:
    """Counted since the host started, so that only differences mean something.

    `steal_s` is time that the hypervisor gave to others, averaged over the processors;
    `pressure_s` time in which some task waited for a processor; `retransmits` TCP segments sent
    again. What the kernel does not tell stays 0.
    """

    steal_s: float = 0.0
    pressure_s: float = 0.0
    retransmits: int = 0


@dataclass(frozen=True)
class HostSample:
    """What the clock and the host's counters say at one moment; `cpu_s` is that of the ranks."""

    at_s: float
    host: HostCounters
    cpu_s: float


class HostProbe(Protocol):
    """Read before and after blocks, from the tuner's thread."""

    def counters(self) -> HostCounters: ...
    def cpu_s(self, pids: Sequence[int]) -> float: ...


class UnwatchedHost:
    """A host of which nothing is known."""

    def counters(self) -> HostCounters:
        """Always the same."""
        return HostCounters()

    def cpu_s(self, pids: Sequence[int]) -> float:
        """Raises StudyError."""
        raise StudyError("this system does not report CPU time")


class LocalHost:
    """The one this process runs on.

    Args:
        has_all_ranks: a process number of another host's rank would name a stranger here.
        proc: for tests.
    """

    def __init__(self, *, has_all_ranks: bool = True, proc: Path = Path("/proc")) -> None:
        self._has_all_ranks = has_all_ranks
        self._proc = proc

    def counters(self) -> HostCounters:
        """As they stand."""
        return HostCounters(
            steal_s=steal_s(self._text("stat")),
            pressure_s=pressure_s(self._text("pressure/cpu")),
            retransmits=retransmits(self._text("net/snmp")),
        )

    def cpu_s(self, pids: Sequence[int]) -> float:
        """Processor time the processes have used, all their threads, without their children.

        Raises StudyError when one of them is not a process of this host.
        """
        if not self._has_all_ranks:
            raise StudyError(_NOT_HERE)
        try:
            # The clock of another process, as clock_getcpuclockid(3) numbers it; /proc/PID/stat
            # counts in hundredths of a second, which is too coarse for a block.
            return sum(time.clock_gettime(~pid << 3 | _CPUCLOCK_SCHED) for pid in pids)
        except OSError as error:
            raise StudyError(_NOT_HERE) from error

    def _text(self, name: str) -> str:
        try:
            return (self._proc / name).read_text()
        except OSError:
            return ""  # not in this kernel, or not in this container


def steal_s(stat: str) -> float:
    """Read stolen time from /proc/stat, in seconds, averaged over the processors."""
    lines = [line.split() for line in stat.splitlines() if line.startswith("cpu")]
    processors = sum(line[0] != "cpu" for line in lines)
    ticks = [int(line[8]) for line in lines if line[0] == "cpu" and len(line) > 8]
    return ticks[0] / 100 / processors if ticks and processors else 0.0


def pressure_s(pressure: str) -> float:
    """Read the time of the line `some` of /proc/pressure/cpu, in seconds."""
    for line in pressure.splitlines():
        if line.startswith("some") and "total=" in line:
            return int(line.rpartition("total=")[2]) / 1e6
    return 0.0


def retransmits(snmp: str) -> int:
    """Read the number of repeated TCP segments from /proc/net/snmp."""
    rows = [line.split() for line in snmp.splitlines() if line.startswith("Tcp:")]
    named = dict(zip(*rows, strict=False)) if len(rows) == 2 else {}
    return int(named.get("RetransSegs", 0))


def interference_between(
    before: HostSample, after: HostSample, longest_step: float
) -> Interference:
    """The interference with a block that was measured between two samples."""
    lasted_s = max(after.at_s - before.at_s, 1e-9)
    return Interference(
        # Booked in ticks, of which a short block may get those of before.
        steal=min((after.host.steal_s - before.host.steal_s) / lasted_s, 1.0),
        pressure=(after.host.pressure_s - before.host.pressure_s) / lasted_s,
        retransmits_per_s=(after.host.retransmits - before.host.retransmits) / lasted_s,
        longest_step=longest_step,
    )
