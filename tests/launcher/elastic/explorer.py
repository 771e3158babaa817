"""Every order in which things can happen to a small elastic job, tried on the pure decisions.

Three hosts of one slot each, and at most so many failures: a process is killed or stopped at any
moment, a host goes or is back. What a worker says and that its process has ended reach the
decisions at any later moment, what one worker says in its order. Time passes only when nothing else
can happen: then it is the next deadline.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from dataclasses import dataclass, field, replace

from hvdtune.launcher.decisions import Abandon, Finish, Kill, Start
from hvdtune.launcher.elastic.membership import (
    Action,
    Dismiss,
    ElasticLimits,
    Form,
    JobPhase,
    Membership,
    Notify,
    Readiness,
    Status,
    Worker,
)

HOSTS = ("a", "b", "c")
FAULTS = ("kill", "stop", "lose host")
_PHASES_OF_WORK = ("running", "noticing")


@dataclass
class Process:
    """A worker as it is. `doing`: starting, waiting, joining, running, noticing (its generation has
    failed, and it is to find out), ended."""

    doing: str = "starting"
    generation: int = -1
    has_state: bool = False
    must_sync: bool = True
    is_stopped: bool = False
    accuses: frozenset[int] = frozenset()


@dataclass
class Model:
    """The world and the decisions about it. `sent` are what is on its way to them."""

    membership: Membership
    failures: int
    faults: tuple[str, ...] = FAULTS
    all_hosts: tuple[str, ...] = HOSTS
    now_s: float = 0.0
    hosts: dict[str, int] = field(init=False)
    processes: dict[int, Process] = field(default_factory=dict)
    ready: list[tuple[int, Readiness]] = field(default_factory=list)
    exits: list[tuple[int, int]] = field(default_factory=list)
    formed: int = -1  # the latest generation whose news is on its way; -1: none
    members: tuple[int, ...] = ()
    generation: int = -1
    is_abandoned: bool = False
    is_notified: bool = False
    finish: str | None = None

    def __post_init__(self) -> None:
        self.hosts = dict.fromkeys(self.all_hosts, 1)

    def moves(self) -> list[tuple[str, int]]:
        """What can happen next."""
        if self.finish is not None:
            return []
        found = [("hear ready", at) for at in range(len(self.ready)) if self._is_first(at)]
        found += [("hear exit", at) for at in range(len(self.exits))]
        if self.formed >= 0:
            found.append(("hear formed", self.formed))
        for number, process in self.processes.items():
            if process.doing == "ended":
                continue
            if not process.is_stopped:
                found += self._own_moves(number, process)
            if self.failures and "kill" in self.faults:
                found.append(("kill", number))
            if self.failures and "stop" in self.faults and not process.is_stopped:
                found.append(("stop", number))
        if self.failures and "lose host" in self.faults:
            found += [
                ("lose host", at) for at, host in enumerate(self.all_hosts) if host in self.hosts
            ]
        found += [
            ("return host", at) for at, host in enumerate(self.all_hosts) if host not in self.hosts
        ]
        if not any(move[0] not in ("kill", "stop", "lose host", "return host") for move in found):
            found.append(("wait", 0))
        return found

    def _is_first(self, at: int) -> bool:
        return all(self.ready[before][0] != self.ready[at][0] for before in range(at))

    def _own_moves(self, number: int, process: Process) -> list[tuple[str, int]]:
        if process.doing == "starting":
            return [("call init", number)]
        if process.doing == "joining":
            peers = [self.processes[one] for one in self.members]
            if self.is_abandoned or any(peer.doing == "ended" for peer in peers):
                return [("fail to join", number)]
            if number == self.members[0] and self._all_join():
                return [("join all", number)]
        if process.doing == "running":
            peers = [self.processes[one] for one in self.members]
            if any(peer.doing not in _PHASES_OF_WORK or peer.is_stopped for peer in peers):
                return [("notice", number)]
            if number == self.members[0]:
                found = [("return all", number)]
                if self.failures and "stop" in self.faults:
                    found += [("return all but", one) for one in self.members]
                return [*found, ("interrupt all", number)] if self.is_notified else found
        return []

    def _all_join(self) -> bool:
        peers = [self.processes[one] for one in self.members]
        return all(peer.doing == "joining" and not peer.is_stopped for peer in peers)

    def happen(self, move: tuple[str, int]) -> None:
        """Lets one thing happen, and the decisions that follow be carried out."""
        what, at = move
        getattr(self, "_" + what.replace(" ", "_"))(at)
        for number, worker in list(self.membership.workers.items()):
            is_missing = worker.status is Status.MEMBER and self.processes[number].is_stopped
            if is_missing and self.membership.waits_for_members:
                self.membership.note_silent(number, self.now_s)
        for action in self.membership.decide(self.now_s):
            self._carry_out(action)

    def _hear_ready(self, at: int) -> None:
        number, said = self.ready.pop(at)
        self.membership.note_ready(number, said, self.now_s)

    def _hear_exit(self, at: int) -> None:
        number, code = self.exits.pop(at)
        self.membership.note_exit(number, code, self.now_s)

    def _hear_formed(self, generation: int) -> None:
        self.formed = -1
        self.membership.note_formed(generation, self.now_s)

    def _call_init(self, number: int) -> None:
        process = self.processes[number]
        said = Readiness(
            process.generation, process.has_state, 0, process.must_sync, process.accuses
        )
        process.doing, process.accuses = "waiting", frozenset()
        self.ready.append((number, said))

    def _fail_to_join(self, number: int) -> None:
        self.processes[number].must_sync = True
        self._call_init(number)

    def _join_all(self, _: int) -> None:
        self.formed = self.generation
        for number in self.members:
            process = self.processes[number]
            process.doing, process.has_state, process.must_sync = "running", True, False

    def _notice(self, number: int) -> None:
        peers = {one: self.processes[one] for one in self.members if one != number}
        gone = frozenset(
            one for one, peer in peers.items() if peer.doing == "ended" or peer.is_stopped
        )
        process = self.processes[number]
        process.must_sync, process.accuses = True, frozenset(sorted(gone)[:1])
        self._call_init(number)

    def _interrupt_all(self, _: int) -> None:
        self.is_notified = False
        for number in self.members:
            self._call_init(number)

    def _return_all(self, _: int) -> None:
        for number in self.members:
            self._end(number, 0)

    def _return_all_but(self, stopped: int) -> None:
        for number in self.members:
            if number == stopped:
                self._stop(number)
            else:
                self._end(number, 0)

    def _kill(self, number: int) -> None:
        self.failures -= 1
        self._end(number, -9)

    def _stop(self, number: int) -> None:
        self.failures -= 1
        self.processes[number].is_stopped = True

    def _lose_host(self, at: int) -> None:
        self.failures -= 1
        del self.hosts[self.all_hosts[at]]
        self.membership.note_hosts(self.hosts)

    def _return_host(self, at: int) -> None:
        self.hosts[self.all_hosts[at]] = 1
        self.membership.note_hosts(self.hosts)

    def _wait(self, _: int) -> None:
        if self.membership.phase is JobPhase.FORMING:  # whoever brings them together has a deadline
            self.now_s += self.membership.limits.start_timeout_s
            self.membership.note_failed_to_form(self.generation, "start-up timed out", self.now_s)
            self.is_abandoned = True
            return
        deadline_s = self.membership.next_deadline_s(self.now_s)
        assert deadline_s < math.inf, f"nothing can happen any more: {self}"
        self.now_s = deadline_s

    def _end(self, number: int, code: int) -> None:
        self.processes[number].doing = "ended"
        self.exits.append((number, code))

    def _carry_out(self, action: Action) -> None:
        match action:
            case Start(worker=number):
                self.processes[number] = Process()
            case Kill(worker=number):
                if self.processes[number].doing != "ended":
                    self._end(number, -9)
            case Dismiss(worker=number):
                if self.processes[number].doing != "ended":
                    self._end(number, 0)
            case Form(generation=generation, members=members):
                self._check_form(members)
                self.generation, self.members = generation, members
                self.is_abandoned = self.is_notified = False
                for number in members:
                    process = self.processes[number]
                    if process.doing != "ended":
                        process.doing, process.generation = "joining", generation
            case Abandon():
                self.is_abandoned = True
            case Notify():
                self.is_notified = True
            case Finish(why=why):
                self.finish = why

    def _check_form(self, members: tuple[int, ...]) -> None:
        workers, limits = self.membership.workers, self.membership.limits
        finishing = any(p.doing == "ended" for p in self.processes.values())
        assert finishing or limits.min_ranks <= len(members)
        assert 1 <= len(members) <= limits.max_ranks
        hosts = [workers[number].slot for number in members]
        assert len(set(hosts)) == len(hosts), "two ranks in one slot"
        for number, process in self.processes.items():
            at_work = process.doing in ("joining", "running") and not process.is_stopped
            assert not at_work, f"worker {number} is still in the generation before: {self}"
        holders = [one for one in members if self.processes[one].has_state]
        assert not holders or members[0] in holders, "rank 0 has no state to send"

    def key(self) -> str:
        """The same for states from which the same can happen: times count from now."""
        world = {name: value for name, value in vars(self).items() if name != "membership"}
        decisions = dict(vars(self.membership))
        slots = decisions.pop("slots")
        workers = decisions.pop("workers").values()
        since_s = decisions.pop("_since_s") - self.now_s
        kept_s = decisions.pop("_kept_s") - self.now_s
        del world["now_s"]
        return repr(
            (
                world,
                decisions,
                since_s,
                kept_s,
                [self._relative(worker) for worker in workers],
                slots._hosts,
                {slot: until - self.now_s for slot, until in slots._until.items()},
            )
        )

    def _relative(self, worker: Worker) -> Worker:
        if worker.status is Status.ENDED:
            return replace(worker, since_s=0.0, said=Readiness(), accused_s=0.0, silent_s=0.0)
        since_s, accused_s = worker.since_s - self.now_s, worker.accused_s - self.now_s
        silent_s = worker.silent_s - self.now_s
        return replace(worker, since_s=since_s, accused_s=accused_s, silent_s=silent_s)


def explore(
    limits: ElasticLimits,
    failures: int,
    faults: tuple[str, ...] = FAULTS,
    hosts: tuple[str, ...] = HOSTS,
) -> tuple[int, set[str]]:
    """Tries every order of so many of these faults. Returns the number of states and how the job
    has ended in them.

    Raises AssertionError where a decision is wrong, where nothing can happen any more, and where no
    way leads from a state to the job's end.
    """
    membership = Membership(limits)
    membership.note_hosts(dict.fromkeys(hosts, 1))
    first = Model(membership, failures, faults, all_hosts=hosts)
    for action in membership.decide(0.0):
        first._carry_out(action)
    numbers = {first.key(): 0}
    before: list[list[int]] = [[]]
    ends: list[int] = []
    outcomes: set[str] = set()
    waiting = deque([(0, first)])
    while waiting:
        number, model = waiting.popleft()
        if model.finish is not None:
            ends.append(number)
            outcomes.add(model.finish)
            continue
        assert model.membership.phase in JobPhase
        for move in model.moves():
            after = copy.deepcopy(model)
            after.happen(move)
            key = after.key()
            if key not in numbers:
                numbers[key] = len(numbers)
                before.append([])
                waiting.append((numbers[key], after))
            before[numbers[key]].append(number)
    reaching = set(ends)
    stack = list(ends)
    while stack:
        for number in before[stack.pop()]:
            if number not in reaching:
                reaching.add(number)
                stack.append(number)
    assert len(reaching) == len(numbers), "a state from which the job never ends"
    return len(numbers), outcomes
