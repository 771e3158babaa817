"""Problems in the results of the check, with their remedies. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hvdtune.launcher.preflight.facts import HostFacts, HostReport, PairReport, Problem
from hvdtune.plural import counted, sized

# torch's DataLoader workers pass batches through it, NCCL's ranks their tensors.
_LEAST_SHM_BYTES: Final = 512 << 20
# Open files of a rank: for itself, and at most for each other rank of the job.
_OWN_FILES: Final = 256
_FILES_FOR_A_RANK: Final = 8
_MOST_CLOCK_OFFSET_MS: Final = 1000.0
# With at least this many pairs, a rate below the median divided by _SLOW is a problem, and a round
# trip above _FAR times the median, if the difference is more than a busy processor explains.
_LEAST_PAIRS: Final = 6
_SLOW: Final = 2.0
_FAR: Final = 4.0
_LEAST_FAR_US: Final = 200.0


@dataclass(frozen=True)
class Expected:
    """The versions of this host, and the number of ranks of the job."""

    version: str
    python: str
    ranks: int


def find_problems(
    hosts: Sequence[HostReport], pairs: Sequence[PairReport], expected: Expected
) -> tuple[Problem, ...]:
    """Return the problems; those that let a job fail come first."""
    found = [problem for host in hosts for problem in _of_host(host, expected)]
    found += [problem for pair in pairs for problem in _of_pair(pair)]
    found += _slow_ways(pairs)
    return tuple(sorted(found, key=lambda problem: problem.severity != "fail"))


def _of_host(host: HostReport, expected: Expected) -> Iterator[Problem]:
    if host.failure is not None:
        failure = host.failure
        yield Problem("fail", failure.check, host.name, "", failure.seen, failure.advice)
        return
    assert host.facts is not None
    facts = host.facts
    if facts.native_fault:
        advice = f"install hvdtune {expected.version} there again, for Python {facts.python}"
        seen = f"hvdtune's native core cannot be loaded ({facts.native_fault})"
        yield Problem("fail", "hvdtune", host.name, "", seen, advice)
    if _minor(facts.python) != _minor(expected.python):
        seen = f"it has Python {facts.python}, this host {expected.python}"
        advice = (
            "install the same version: hvdtune.run() cannot send functions from one to the other"
        )
        yield Problem("warn", "python", host.name, "", seen, advice)
    if host.meeting_fault:
        seen = f"cannot listen on {_meeting(host.meeting_port)} ({host.meeting_fault})"
        advice = "set another port, or find the process that uses it (`ss -ltnp`)"
        yield Problem("fail", "port", host.name, "", seen, advice)
    yield from _clock(host)
    yield from _memory(host.name, facts)
    if host.slots:
        yield from _limits(host, facts, expected.ranks)


def _clock(host: HostReport) -> Iterator[Problem]:
    if host.clock_offset_ms is None or host.clock_round_trip_ms is None:
        return
    certain_ms = abs(host.clock_offset_ms) - host.clock_round_trip_ms / 2
    if certain_ms > _MOST_CLOCK_OFFSET_MS:
        way = "ahead of" if host.clock_offset_ms > 0 else "behind"
        yield Problem(
            "warn",
            "clock",
            host.name,
            "",
            f"its clock is {abs(host.clock_offset_ms) / 1000:.1f} s {way} this host's",
            "run chrony or systemd-timesyncd; hvdtune aligns its timelines itself, but times in "
            "logs, ages of checkpoints and certificates will differ",
        )


def _memory(name: str, facts: HostFacts) -> Iterator[Problem]:
    if facts.memory_file_fault:
        seen = f"cannot create memory files ({facts.memory_file_fault})"
        advice = "run with --transport tcp, or allow memfd_create in the container's seccomp rules"
        yield Problem("fail", "shared memory", name, "", seen, advice)
    if facts.shm_free_bytes < _LEAST_SHM_BYTES:
        seen = "it has no /dev/shm"
        if facts.shm_total_bytes >= 0:
            free, total = sized(facts.shm_free_bytes), sized(facts.shm_total_bytes)
            seen = f"/dev/shm has {free} free of {total}"
        remedy = {
            "Kubernetes": "mount an emptyDir with `medium: Memory` there",
            "": "mount a larger one (`mount -o remount,size=8g /dev/shm`), or start the "
            "container with --shm-size=8g",
        }.get(facts.container, "start the container with --shm-size=8g")
        advice = f"{remedy}; torch's DataLoader workers and NCCL need it, hvdtune does not"
        yield Problem("warn", "shared memory", name, "", seen, advice)


def _limits(host: HostReport, facts: HostFacts, ranks: int) -> Iterator[Problem]:
    needed = _OWN_FILES + _FILES_FOR_A_RANK * ranks
    if facts.open_files is not None and facts.open_files < needed:
        seen = f"a process may open {counted(facts.open_files, 'file')} (ulimit -n)"
        limit = facts.open_files_limit
        advice = f"a rank in a job of {ranks:,} may need {needed:,}: run `ulimit -n {needed}` first"
        if limit is not None and limit < needed:
            advice += ", for which root has to raise the hard limit in /etc/security/limits.conf"
        yield Problem("warn", "open files", host.name, "", seen, advice)
    if host.slots > facts.usable:
        processors = counted(facts.usable, "processor")
        seen = f"{counted(host.slots, 'rank')} for {processors}"
        advice = "give it fewer slots, or the job more processors (--cpus-per-task, --cpuset-cpus)"
        yield Problem("warn", "processors", host.name, "", seen, advice)


def _of_pair(pair: PairReport) -> Iterator[Problem]:
    if pair.state == "unknown":
        return
    if pair.name_fault:
        seen = f"the name {pair.target} cannot be resolved there ({pair.name_fault})"
        advice = (
            "add it to DNS or /etc/hosts there; hvdtune's ranks connect by address, but mpirun and "
            "torch's MASTER_ADDR use names"
        )
        yield Problem("warn", "name", pair.source, pair.target, seen, advice)
    if pair.state != "ok":
        check = "port" if pair.state == "unreachable" else "key"
        seen = f"port {pair.port} of {pair.address}: {_lower(pair.seen)}"
        yield Problem("fail", check, pair.source, pair.target, seen, _advice_for_a_way(pair))
    elif pair.meeting_fault:
        seen = f"{_meeting(pair.meeting_port)} at {pair.address}: {_lower(pair.meeting_fault)}"
        advice = "allow connections from the job's other hosts, or set another port"
        yield Problem("fail", "port", pair.source, pair.target, seen, advice)
    if pair.measure_fault:
        seen = f"the connection broke during the measurement ({pair.measure_fault})"
        advice = "look for network errors in `ip -s link` on both hosts"
        yield Problem("fail", "speed", pair.source, pair.target, seen, advice)


def _advice_for_a_way(pair: PairReport) -> str:
    if pair.others:
        others = ", ".join(pair.others)
        return (
            f"{pair.target} is reachable from there at {others}; set that interface with "
            "--network-interface"
        )
    if pair.state == "unauthenticated":
        return "check who owns that address, and that no proxy or port forwarding is in between"
    return (
        "allow connections between the job's hosts on all ports of net.ipv4."
        "ip_local_port_range, or set another interface with --network-interface"
    )


def _slow_ways(pairs: Sequence[PairReport]) -> Iterator[Problem]:
    measured = [pair for pair in pairs if pair.blocks and pair.round_trips]
    if len(measured) < _LEAST_PAIRS:
        return
    rate = statistics.median(pair.mib_per_s for pair in measured)
    trip_us = statistics.median(pair.round_trip_us for pair in measured)
    for pair in measured:
        seen = ""
        if pair.mib_per_s * _SLOW < rate:
            seen = f"{pair.mib_per_s:,.0f} MiB/s; the median of all pairs is {rate:,.0f}"
        elif pair.round_trip_us > max(_FAR * trip_us, trip_us + _LEAST_FAR_US):
            seen = f"{pair.round_trip_us:,.0f} us per round trip; the median of all pairs is "
            seen += f"{trip_us:,.0f}"
        if seen:
            advice = (
                "the slowest connection limits every allreduce: check the link's speed "
                "(`ethtool`), errors (`ip -s link`) and other traffic, or exclude the host"
            )
            yield Problem("warn", "speed", pair.source, pair.target, seen, advice)


def _meeting(port: int) -> str:
    return f"port {port} (HVDTUNE_RENDEZVOUS_PORT)"


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
