"""Checks every host of a job, and every way from one of them to another."""

from __future__ import annotations

import dataclasses
import os
import platform
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

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
    WayState,
)
from hvdtune.launcher.preflight.probe_link import ProbeError, ProbeLink, probe_command
from hvdtune.launcher.preflight.rounds import rounds

if TYPE_CHECKING:
    from typing_extensions import Self

_CONNECT_S: Final = 5.0
_BUDGET_S: Final = 0.25  # of each of two measurements of a way
_CLOCK_ROUND_TRIPS: Final = 16
_ANSWER_S: Final = 60.0

# What a pair is whose connection ended at this stage
_STATES: Final[Mapping[str, WayState]] = {
    "": "ok",
    "connect": "unreachable",
    "authenticate": "unauthenticated",
}

Answers = Mapping[int, dict[str, Any]]


@dataclass(frozen=True)
class PreflightRequest:
    """What is checked: the hosts of a job (none: those of the allocation, else this host).

    `interface` is the one that the ranks' addresses are to be of, "" for what leads there, and
    `meeting_port` where ranks that a scheduler starts shall meet on the first host, 0 for no
    port in particular.
    """

    hosts: tuple[Host, ...] = ()
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    interface: str = ""
    meeting_port: int = 0


@dataclass(frozen=True)
class PreflightReport:
    """What was found, in the order of the hosts, and what to do about it."""

    hosts: tuple[HostReport, ...]
    pairs: tuple[PairReport, ...]
    problems: tuple[Problem, ...]

    @property
    def is_ready(self) -> bool:
        """Whether nothing was found that would let a job fail."""
        return not any(problem.severity == "fail" for problem in self.problems)

    def document(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {"ready": self.is_ready, **dataclasses.asdict(self)}


def preflight(request: PreflightRequest) -> PreflightReport:
    """Starts a probe on every host, asks all of them, and leaves none.

    Raises UsageError for what cannot be, or where hosts are told of that are not named.
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
    with _Survey(hosts, request) as survey:
        survey.take()
    reports, pairs = survey.hosts, survey.pairs
    expected = Expected(
        __version__, platform.python_version(), sum(report.slots for report in reports)
    )
    return PreflightReport(reports, pairs, find_problems(reports, pairs, expected))


@dataclass
class _Place:
    """One host while it is asked. Ways lead from it unless it is the launcher's alone."""

    report: HostReport
    link: ProbeLink | None = None
    doors: list[dict[str, Any]] = field(default_factory=list)


class _Survey:
    """All hosts, asked together. Used from one thread."""

    def __init__(self, hosts: Sequence[Host], request: PreflightRequest) -> None:
        self._request = request
        names = [(host.name, host.slots) for host in hosts]
        if not any(is_local(host.name) for host in hosts):
            # Every rank reaches the launcher, too.
            names.append((socket.gethostname(), 0))
        self._places = [
            _Place(HostReport(name, slots, is_local(name) or not slots)) for name, slots in names
        ]
        remote = [place.report.name for place in self._places if not place.report.is_local]
        words = checked_ssh_args(remote, request.ssh_port, request.ssh_identity_file)
        self._ssh = (*words, "-o", f"ConnectTimeout={2 * _CONNECT_S:g}")
        variables = {"HVDTUNE_INTERFACE": request.interface} if request.interface else {}
        self._config = launch_defaults(variables=variables)
        self._key = os.urandom(KEY_BYTES)
        self._pairs: dict[tuple[int, int], PairReport] = {
            (a, b): PairReport(self._name(a), self._name(b))
            for a in range(len(names))
            for b in range(len(names))
            if a != b and names[a][1]
        }
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def hosts(self) -> tuple[HostReport, ...]:
        return tuple(place.report for place in self._places)

    @property
    def pairs(self) -> tuple[PairReport, ...]:
        return tuple(self._pairs.values())

    def take(self) -> None:
        """Finds out everything. A host that fails is left out of what follows."""
        launcher = self._own_address()
        self._each(range(len(self._places)), self._start)
        deadline_s = time.monotonic() + self._config.timeouts.start_s
        self._each(self._asked(), lambda index: self._greet(index, deadline_s))
        facts = self._ask_all({index: {"ask": "facts"} for index in self._asked()})
        for index, found in facts.items():
            self._note(index, facts=HostFacts.of(found))
        self._each(self._asked(), self._compare_clock)
        self._listen(launcher)
        self._reach()
        if self._request.meeting_port:
            self._meet(self._request.meeting_port)
        self._measure()

    def _name(self, index: int) -> str:
        return self._places[index].report.name

    def _asked(self) -> list[int]:
        """The hosts that can be asked."""
        places = enumerate(self._places)
        return [index for index, place in places if place.link and not place.report.failure]

    def _link(self, index: int) -> ProbeLink:
        link = self._places[index].link
        assert link is not None
        return link

    def _note(self, index: int, **facts: Any) -> None:
        self._places[index].report = dataclasses.replace(self._places[index].report, **facts)

    def _each(self, indices: Iterable[int], act: Callable[[int], None]) -> None:
        for index in indices:
            try:
                act(index)
            except ProbeError as error:
                self._note(index, failure=error.failure)

    def _ask_all(self, questions: Mapping[int, dict[str, Any]]) -> Answers:
        """Asks hosts at the same time; those that fail have no answer."""
        self._each(questions, lambda index: self._link(index).send(questions[index]))
        found: dict[int, dict[str, Any]] = {}

        def take(index: int) -> None:
            found[index] = self._link(index).answer(_ANSWER_S)

        asked = [index for index in questions if not self._places[index].report.failure]
        self._each(asked, take)
        return found

    def _own_address(self) -> str:
        """This host's address for the others, "" where all are this machine."""
        address = ""
        for index, place in enumerate(self._places):
            if place.report.is_local:
                continue
            name = place.report.name
            try:
                socket.getaddrinfo(name, 22, type=socket.SOCK_STREAM)
                address = address or address_for([name], self._config.rendezvous.own_address)
            except LaunchError as error:
                seen = str(error).partition(";")[0]
                advice = "name the interface that leads there by --network-interface"
                self._note(index, failure=HostFailure("route", seen, advice))
            except OSError as error:
                self._note(index, failure=HostFailure("name", unresolved(error), NAME_ADVICE))
        return address

    def _start(self, index: int) -> None:
        place = self._places[index]
        if place.report.failure is None:
            name, local = place.report.name, place.report.is_local
            place.link = ProbeLink(name, probe_command(name, is_local=local, ssh=self._ssh))
            self._open.callback(place.link.close)

    def _greet(self, index: int, deadline_s: float) -> None:
        version = self._link(index).greet(deadline_s)
        self._note(index, version=version)
        if version != __version__:
            seen = f"it has hvdtune {version}, and this host {__version__}"
            raise ProbeError(HostFailure("version", seen, "install the same on all hosts"))

    def _compare_clock(self, index: int) -> None:
        best_ns, offset_ns = 0, 0
        for _ in range(_CLOCK_ROUND_TRIPS):
            began_ns = time.time_ns()
            there_ns = self._link(index).ask({"ask": "clock"}, _ANSWER_S)["wall_ns"]
            took_ns = time.time_ns() - began_ns
            if not best_ns or took_ns < best_ns:
                best_ns, offset_ns = took_ns, there_ns - began_ns - took_ns // 2
        self._note(
            index,
            clock_offset_ms=offset_ns / 1e6,
            clock_round_trip_ms=best_ns / 1e6,
            clock_round_trips=_CLOCK_ROUND_TRIPS,
        )

    def _listen(self, launcher: str) -> None:
        questions = {}
        for index in self._asked():
            report = self._places[index].report
            address = ""
            if report.is_local:
                address = launcher or self._config.rendezvous.own_address or _loopback(report.name)
            questions[index] = {
                "ask": "listen",
                "name": report.name,
                "key": self._key.hex(),
                "address": address,
                "launcher": launcher,
                "interface": self._request.interface,
            }
        for index, found in self._ask_all(questions).items():
            if fault := found.get("fault"):
                advice = "see that the address or interface is there on every host (`ip address`)"
                seen = f"ranks cannot listen there ({fault})"
                self._note(index, failure=HostFailure("address", seen, advice))
            else:
                self._note(index, address=found["address"])
                self._places[index].doors = found["doors"]

    def _reach(self) -> None:
        asked = self._asked()
        questions = {}
        for source in asked:
            targets = [
                {"name": self._name(target), "doors": self._places[target].doors}
                for target in asked
                if (source, target) in self._pairs
            ]
            if targets:
                questions[source] = {"ask": "reach", "targets": targets, "timeout_s": _CONNECT_S}
        for source, found in self._ask_all(questions).items():
            for target in asked:
                if (pair := self._pairs.get((source, target))) is not None:
                    place = self._places[target]
                    told = with_answer(pair, found, place.report.address, place.doors)
                    self._pairs[source, target] = told

    def _meet(self, port: int) -> None:
        """Whether ranks can meet at this port of the first host. Where nobody can listen, nobody is
        asked to reach it."""
        first = self._places[0]
        question = {"ask": "meet", "name": first.report.name, "port": port}
        for found in self._ask_all(
            {index: question for index in self._asked() if not index}
        ).values():
            self._note(0, meeting_port=port, meeting_fault=found.get("fault", ""))
        if not first.report.meeting_port or first.report.meeting_fault:
            return
        door = {"address": first.report.address, "port": port}
        target = {"name": first.report.name, "doors": [door]}
        question = {"ask": "reach", "targets": [target], "timeout_s": _CONNECT_S}
        reached = [
            source
            for source in self._asked()
            if (pair := self._pairs.get((source, 0))) is not None and pair.state == "ok"
        ]
        for source, found in self._ask_all(dict.fromkeys(reached, question)).items():
            self._pairs[source, 0] = dataclasses.replace(
                self._pairs[source, 0], meeting_port=port, meeting_fault=found["doors"][0]["seen"]
            )

    def _measure(self) -> None:
        for together in rounds(len(self._places)):
            questions = {}
            targets = {}
            for source, target in together:
                pair = self._pairs.get((source, target))
                if pair is not None and pair.state == "ok":
                    targets[source] = target
                    where = {"name": pair.target, "address": pair.address, "port": pair.port}
                    questions[source] = {"ask": "measure", **where, "budget_s": _BUDGET_S}
            for source, found in self._ask_all(questions).items():
                key = source, targets[source]
                if "fault" in found:
                    found = {"measure_fault": found["fault"]}
                self._pairs[key] = dataclasses.replace(self._pairs[key], **found)


def with_answer(
    pair: PairReport, answer: Mapping[str, Any], address: str, doors: Sequence[Mapping[str, Any]]
) -> PairReport:
    """The pair with what its source says of the doors of its target. Pure.

    Args:
        address: the one at which ranks of the target are reached: it decides.
        doors: where the target listens.
    """
    tried = {door["address"]: door for door in answer["doors"] if door["name"] == pair.target}
    own = tried[address]
    others = [
        f"{door['address']} ({door['interface']})"
        for door in doors
        if door["address"] != address and not tried[door["address"]]["stage"]
    ]
    return dataclasses.replace(
        pair,
        state=_STATES[own["stage"]],
        address=address,
        port=next(door["port"] for door in doors if door["address"] == address),
        seen=own["seen"],
        others=tuple(others) if own["stage"] else (),
        name_fault=answer["names"][pair.target],
    )


def _loopback(name: str) -> str:
    """Where a host that is this machine listens, when all others are, too."""
    return name if name.startswith("127.") or name == "::1" else "127.0.0.1"
