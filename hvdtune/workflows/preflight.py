"""Checks of every host of a job, and of every way from one of them to another."""

from __future__ import annotations

import dataclasses
import os
import platform
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from hvdtune import __version__
from hvdtune.core.config.environment import launch_defaults, node_meeting, own_environ
from hvdtune.core.config.key_source import KEY_BYTES
from hvdtune.errors import LaunchError, UsageError
from hvdtune.launcher.allocation import read_allocation
from hvdtune.launcher.hosts import (
    NAME_ADVICE,
    Host,
    address_for,
    checked_ssh_args,
    is_local,
    this_host,
    unresolved,
)
from hvdtune.launcher.preflight.advice import Expected, find_problems
from hvdtune.launcher.preflight.facts import (
    HostFacts,
    HostFailure,
    HostReport,
    PairReport,
    Problem,
)
from hvdtune.launcher.preflight.probe_link import ProbeError, ProbeLink, probe_command
from hvdtune.launcher.preflight.rounds import rounds

_CONNECT_S: Final = 5.0
_BUDGET_S: Final = 0.25  # of each of two measurements of a way
_CLOCK_ROUND_TRIPS: Final = 16
_ANSWER_S: Final = 60.0


@dataclass(frozen=True)
class PreflightRequest:
    """The hosts to check, and the options of the job.

    Attributes:
        hosts: those of the job; () for those of the allocation, else this host.
        interface: network interface of the ranks' addresses; "" for the one towards the others.
        meeting_port: port where ranks that a scheduler starts meet on the first host; 0 for none.
    """

    hosts: tuple[Host, ...] = ()
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    interface: str = ""
    meeting_port: int = 0


@dataclass(frozen=True)
class PreflightReport:
    """The results in the order of the hosts, and the problems with their remedies."""

    hosts: tuple[HostReport, ...]
    pairs: tuple[PairReport, ...]
    problems: tuple[Problem, ...]

    @property
    def is_ready(self) -> bool:
        """Return whether no problem lets a job fail."""
        return not any(problem.severity == "fail" for problem in self.problems)

    def document(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {"ready": self.is_ready, **dataclasses.asdict(self)}


def preflight(request: PreflightRequest) -> PreflightReport:
    """Start a probe on every host, ask all of them, and end them.

    Raises UsageError for invalid options, or if a platform names hosts but not the way to them.
    """
    allocation = None
    if not request.hosts:
        if (point := node_meeting()) is not None:
            raise UsageError(
                f"{point.place.title} reports {point.place.size} hosts ({point.place.source}), "
                "but not how to reach the others. List all of them with -H HOST:SLOTS,HOST:SLOTS."
            )
        allocation = read_allocation(own_environ())
    hosts = request.hosts or (allocation.hosts if allocation else this_host(1))
    with ExitStack() as probes:
        reports, pairs = _Survey(hosts, request, probes).take()
    ranks = sum(report.slots for report in reports)
    expected = Expected(__version__, platform.python_version(), ranks)
    return PreflightReport(reports, pairs, find_problems(reports, pairs, expected))


@dataclass
class HostCheck:
    """One host during the check.

    Attributes:
        number: its position among the hosts.
        report: the results.
        link: to the probe there; set when that is started.
        doors: address, port and interface of each listener: first the address that ranks there
            have, last the port where ranks meet, if it could be opened.
    """

    number: int
    report: HostReport
    link: ProbeLink = field(init=False)
    doors: list[dict[str, Any]] = field(default_factory=list)

    def note(self, **facts: Any) -> None:
        """Add results to the report."""
        self.report = dataclasses.replace(self.report, **facts)

    @contextmanager
    def noting_failure(self) -> Iterator[None]:
        """Add a ProbeError of the block to the report."""
        try:
            yield
        except ProbeError as error:
            self.note(failure=error.failure)


_Questions = list[tuple[HostCheck, dict[str, Any]]]
_Answers = list[tuple[HostCheck, dict[str, Any]]]


class _Survey:
    """All hosts, asked at the same time. Used from one thread."""

    def __init__(self, hosts: Sequence[Host], request: PreflightRequest, probes: ExitStack) -> None:
        self._request, self._probes = request, probes
        names = [(host.name, host.slots) for host in hosts]
        if not any(is_local(host.name) for host in hosts):
            # Every rank connects to the launcher, too.
            names.append((socket.gethostname(), 0))
        self._places = [
            HostCheck(number, HostReport(name, slots, is_local(name) or not slots))
            for number, (name, slots) in enumerate(names)
        ]
        remote = [place.report.name for place in self._places if not place.report.is_local]
        words = checked_ssh_args(remote, request.ssh_port, request.ssh_identity_file)
        self._ssh = (*words, "-o", f"ConnectTimeout={2 * _CONNECT_S:g}")
        variables = {"HVDTUNE_INTERFACE": request.interface} if request.interface else {}
        self._config = launch_defaults(variables=variables)
        self._key = os.urandom(KEY_BYTES)
        self._pairs = {
            (a.number, b.number): PairReport(a.report.name, b.report.name)
            for a in self._places
            for b in self._places
            if a is not b and a.report.slots
        }

    def take(self) -> tuple[tuple[HostReport, ...], tuple[PairReport, ...]]:
        """Return the reports on hosts and pairs. Later checks skip a failed host."""
        launcher = self._own_address()
        self._each(self._start)
        deadline_s = time.monotonic() + self._config.timeouts.start_s
        self._each(lambda place: self._greet(place, deadline_s))
        for place, facts in self._ask([(place, {"ask": "facts"}) for place in self._sound()]):
            place.note(facts=msgspec.convert(facts, HostFacts))
        self._each(self._compare_clock)
        self._listen(launcher)
        self._reach()
        self._measure()
        return tuple(place.report for place in self._places), tuple(self._pairs.values())

    def _sound(self) -> list[HostCheck]:
        """Return the hosts without a failure."""
        return [place for place in self._places if place.report.failure is None]

    def _each(self, act: Callable[[HostCheck], None]) -> None:
        for place in self._sound():
            with place.noting_failure():
                act(place)

    def _ask(self, questions: _Questions) -> _Answers:
        """Ask hosts at the same time; return the answers of those that do not fail."""
        found: _Answers = []
        for place, question in questions:
            with place.noting_failure():
                place.link.send(question)
        for place, _ in questions:
            if place.report.failure is None:
                with place.noting_failure():
                    found.append((place, place.link.answer(_ANSWER_S)))
        return found

    def _own_address(self) -> str:
        """Return this host's address for the others, "" if all are this machine."""
        address = ""
        for place in self._places:
            if place.report.is_local:
                continue
            name = place.report.name
            try:
                socket.getaddrinfo(name, 22, type=socket.SOCK_STREAM)
                address = address or address_for([name], self._config.rendezvous.own_address)
            except LaunchError as error:
                seen = str(error).partition(";")[0]
                advice = "set the interface that leads there with --network-interface"
                place.note(failure=HostFailure("route", seen, advice))
            except OSError as error:
                place.note(failure=HostFailure("name", unresolved(error), NAME_ADVICE))
        return address

    def _start(self, place: HostCheck) -> None:
        name, local = place.report.name, place.report.is_local
        place.link = ProbeLink(name, probe_command(name, is_local=local, ssh=self._ssh))
        self._probes.callback(place.link.close)

    def _greet(self, place: HostCheck, deadline_s: float) -> None:
        version = place.link.greet(deadline_s)
        place.note(version=version)
        if version != __version__:
            seen = f"it has hvdtune {version}, this host {__version__}"
            raise ProbeError(HostFailure("version", seen, "install the same version on all hosts"))

    def _compare_clock(self, place: HostCheck) -> None:
        best_ns, offset_ns = 0, 0
        for _ in range(_CLOCK_ROUND_TRIPS):
            began_ns = time.time_ns()
            place.link.send({"ask": "clock"})
            there_ns = place.link.answer(_ANSWER_S)["wall_ns"]
            took_ns = time.time_ns() - began_ns
            if not best_ns or took_ns < best_ns:
                best_ns, offset_ns = took_ns, there_ns - began_ns - took_ns // 2
        place.note(
            clock_offset_ms=offset_ns / 1e6,
            clock_round_trip_ms=best_ns / 1e6,
            clock_round_trips=_CLOCK_ROUND_TRIPS,
        )

    def _listen(self, launcher: str) -> None:
        questions = []
        for place in self._sound():
            address = ""
            if place.report.is_local:
                address = (
                    launcher or self._config.rendezvous.own_address or _loopback(place.report.name)
                )
            question = {
                "ask": "listen",
                "number": place.number,
                "key": self._key.hex(),
                "address": address,
                "launcher": launcher,
                "interface": self._request.interface,
                "meeting_port": 0 if place.number else self._request.meeting_port,
            }
            questions.append((place, question))
        for place, found in self._ask(questions):
            if fault := found.get("fault"):
                advice = "check that the address or interface exists on every host (`ip address`)"
                seen = f"ranks cannot listen there ({fault})"
                place.note(failure=HostFailure("address", seen, advice))
            else:
                place.doors = found.pop("doors")
                place.note(**found)

    def _reach(self) -> None:
        questions, targets, sound = [], {}, self._sound()
        for position, source in enumerate(sound):
            # Each source begins with its successor, so that few dial a host at the same time.
            others = sound[position + 1 :] + sound[:position]
            wanted = [other for other in others if (source.number, other.number) in self._pairs]
            targets[source.number] = wanted
            asked = [
                {"number": place.number, "name": place.report.name, "doors": place.doors}
                for place in wanted
            ]
            question = {"ask": "reach", "targets": asked, "timeout_s": _CONNECT_S}
            questions += [(source, question)] if wanted else []
        for source, answer in self._ask(questions):
            for target, found in zip(targets[source.number], answer["targets"], strict=True):
                pair = source.number, target.number
                self._pairs[pair] = with_answer(self._pairs[pair], target, found)

    def _measure(self) -> None:
        for together in rounds(len(self._places)):
            questions, targets = [], {}
            for source, target in together:
                pair = self._pairs.get((source, target))
                if pair is not None and pair.state == "ok":
                    targets[source] = target
                    where = {"number": target, "address": pair.address, "port": pair.port}
                    question = {"ask": "measure", **where, "budget_s": _BUDGET_S}
                    questions.append((self._places[source], question))
            for place, found in self._ask(questions):
                key = place.number, targets[place.number]
                if "fault" in found:
                    found = {"measure_fault": found["fault"]}
                self._pairs[key] = dataclasses.replace(self._pairs[key], **found)


def with_answer(pair: PairReport, target: HostCheck, answer: Mapping[str, Any]) -> PairReport:
    """Return the pair with what its source found at the doors of its target. Pure."""
    (door, own), *others = zip(target.doors, answer["doors"], strict=True)
    report, meeting = target.report, dict[str, Any]()
    if report.meeting_port and not report.meeting_fault:
        _, tried = others.pop()
        if own["state"] == "ok":
            meeting = {"meeting_port": report.meeting_port, "meeting_fault": tried["seen"]}
    reached = [
        f"{other['address']} ({other['interface']})"
        for other, tried in others
        if tried["state"] == "ok"
    ]
    return dataclasses.replace(
        pair,
        **own,
        **meeting,
        address=door["address"],
        port=door["port"],
        others=() if own["state"] == "ok" else tuple(reached),
        name_fault=answer["name_fault"],
    )


def _loopback(name: str) -> str:
    """Return the address of a host that is this machine, as all others are."""
    return name if name.startswith("127.") or name == "::1" else "127.0.0.1"
