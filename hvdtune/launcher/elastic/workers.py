"""Ranks that come and go: their processes, their connections and the account of the changes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hvdtune.core.config.environment import launch_defaults
from hvdtune.core.config.key_source import KEY_BYTES
from hvdtune.core.job.channel import NEVER_ADOPTED, Closed, Formed, JobChannel, JobEvent, Lost
from hvdtune.core.job.route import is_loopback
from hvdtune.core.job.worker_messages import (
    Arrival,
    Placement,
    Progress,
    Raised,
    Removed,
    Training,
    Update,
)
from hvdtune.errors import LaunchError, UsageError
from hvdtune.launcher.decisions import (
    Abandon,
    Finish,
    Kill,
    Start,
    describe_exit,
    shell_code,
)
from hvdtune.launcher.elastic.account import Account
from hvdtune.launcher.elastic.chaos import Chaos
from hvdtune.launcher.elastic.coordinator import Coordinator
from hvdtune.launcher.elastic.discovery import Discovery
from hvdtune.launcher.elastic.history import History, document
from hvdtune.launcher.elastic.journal import Journal, mark_of
from hvdtune.launcher.elastic.membership import (
    Action,
    Dismiss,
    ElasticLimits,
    Form,
    JobPhase,
    Membership,
    Notify,
    Readiness,
    Remark,
    Status,
)
from hvdtune.launcher.hosts import address_for, is_local
from hvdtune.launcher.job import Workers
from hvdtune.launcher.output import Writer
from hvdtune.launcher.plan import elastic_environ, slot_of
from hvdtune.launcher.ranks import JobOptions, JobPlan, RankStarter
from hvdtune.launcher.spawn import Processes
from hvdtune.plural import counted

if TYPE_CHECKING:
    from hvdtune.core.config.knobs import Setting

_TURN_S: Final = 0.02
# Between two notes of how far the training is
_NOTE_EVERY_S: Final = 1.0
_SIGNALS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_DONE_TO: Final = {"kill": "killed", "stop": "stopped"}

Say = Callable[[str], None]


class ElasticWorkers(Workers):
    """The processes of an elastic job; `Membership` decides about them.

    Thread rule: one thread.

    Attributes:
        processes: one for each worker.
        account: what the changes of ranks have cost so far.
        history: who has been in the job when.
    """

    turn_s = _TURN_S

    def __init__(
        self,
        plan: JobPlan,
        setting: Setting,
        options: JobOptions,
        limits: ElasticLimits,
        discovery: Discovery,
        say: Say,
        *,
        writers: Sequence[Writer] = (),
        chaos: Chaos | None = None,
        former: Journal | None = None,
        formed: Callable[[ElasticWorkers], None] = lambda workers: None,
        changed: Callable[[ElasticWorkers], None] = lambda workers: None,
    ) -> None:
        """Starts no process yet.

        Args:
            limits: those that `options` and `discovery` do not contain.
            discovery: finds the hosts.
            say: takes a sentence about each change of the job.
            chaos: faults to inject.
            former: of the job that this one takes over.
            formed: is called when a generation has formed.
            changed: is called when `journal` has changed.
        """
        self._plan, self._options = plan, options
        self._discovery, self._chaos = discovery, chaos
        self._say, self._formed, self._changed = say, formed, changed
        self._former = former  # until it is known how far its training is
        self._began_unix = time.time() if former is None else former.began_unix
        began_s = 0.0 if former is None else max(time.time() - self._began_unix, former.at_s)
        self._began_s = time.monotonic() - began_s
        self._commits = 0 if former is None else former.commits
        self._noted_s = began_s
        self._is_changed = False
        limits = replace(
            limits,
            start_timeout_s=options.start_timeout_s,
            heartbeat_timeout_s=options.heartbeat_timeout_s,
            hosts_are_fixed=discovery.is_fixed,
        )
        self._membership = Membership(limits, None if former is None else former.former, began_s)
        self.account = Account()
        self.history = History(former.stays if former is not None else ())
        key, wait_s = os.urandom(KEY_BYTES), options.heartbeat_timeout_s
        self._coordinator = Coordinator(key, lambda: self.processes.output.wake(), wait_s)
        self._coordinator.listen(options.address)  # an impossible address fails before the start
        self.processes = Processes(writers, options.tail_lines)
        self._starter = RankStarter(plan, options, setting, self.processes, key)
        self._channel: JobChannel | None = None
        self._is_told = False  # by the events: that a generation trains
        self._given_up: dict[int, str] = {}  # which workers this launcher has ended, and why
        self._raised: dict[int, str] = {}  # which workers' training functions have, and what
        self._ends: dict[int, tuple[int, str]] = {}  # how workers have failed: exit code and words
        self._failures: list[int] = []  # who has failed since the last generation
        self._left: set[int] = set()  # those of them that were members
        self._reason = ""  # why the generation before was left, as the end of a sentence
        self._ways: dict[str, str | None] = {}
        self._exit_code: int | None = None

    @property
    def members(self) -> tuple[int, ...]:
        """The workers of the latest generation, in the order of their ranks."""
        return self._membership.members

    @property
    def why_no_chaos(self) -> str:
        """Why no fault was made, "" where one was, or none was to be."""
        return "" if self._chaos is None else self._chaos.why_none()

    def events(self, timeout_s: float) -> list[JobEvent]:
        """Return the events of generations that train, each from Formed to Closed."""
        taken = self._closed()
        if self._membership.phase is not JobPhase.RUNNING and timeout_s > 0:
            self.processes.output.wait_for_change(timeout_s)
            timeout_s = 0.0
        while self._channel is not None and (event := self._channel.next_event(timeout_s)):
            taken += self._note_event(event, self._now_s())
            timeout_s = 0.0
        return taken

    def _closed(self) -> list[JobEvent]:
        """Return Closed if a generation that trained has ended since the last call."""
        if not self._is_told or self._membership.phase is JobPhase.RUNNING:
            return []
        self._is_told = False
        return [Closed()]

    def look(self) -> list[JobEvent]:
        self._membership.note_hosts(self._hosts())
        if remark := self._discovery.take_remark():
            self._say(remark)
        exits, said_by_workers = self.processes.take_exits(), self._coordinator.take()
        events = self.events(0.0)
        now_s = self._now_s()
        for came_s, said in said_by_workers:
            if isinstance(said, Arrival):
                self._note_ready(said, now_s)
            elif isinstance(said, Progress):
                self._note_progress(said, came_s - self._began_s)
            elif isinstance(said, Training) and said.worker in self._membership.workers:
                self._membership.note_training(said.worker, is_on=said.is_on)
            elif isinstance(said, Raised):
                self._raised[said.worker] = f"raised {said.why}"
        for worker, code in exits:
            if code != 0:  # the others go on, and what it has started with them
                self.processes.kill_left_by("HVDTUNE_WORKER", str(worker))
            self._note_exit(worker, code, now_s)
            self.history.note_exit(worker, now_s)
            self._is_changed = True
        if self._membership.phase is not JobPhase.RUNNING:
            self.history.note_ended(now_s)
        self._note_silent()
        self._strike(now_s)
        return events

    def decide(self) -> list[Action]:
        now_s = self._now_s()
        actions = self._membership.decide(now_s)
        if self._is_changed and not actions:
            self._is_changed, self._noted_s = False, now_s
            self._changed(self)
        return actions

    def propose(self, setting: Setting) -> int:
        """See `Job.propose`. The setting ends with the generation."""
        if self._channel is None or self._membership.phase is not JobPhase.RUNNING:
            return NEVER_ADOPTED
        return self._channel.propose(setting)

    def document(self) -> dict[str, Any]:
        """Who has been in the job when, and what that has cost: see `history`."""
        return document(self.history, self.account, self._now_s())

    def journal(self) -> Journal:
        """What another launcher can take over."""
        now_s, pids = self._now_s(), self.processes.pids
        running = (mark_of(pids[number]) for number in self.processes.running)
        return Journal(
            began_unix=self._began_unix,
            at_s=now_s,
            former=self._membership.former,
            commits=self._commits,
            stays=self.history.until(now_s),
            processes=[mark for mark in running if mark is not None],
            exit_code=self._exit_code,
        )

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s

    def _hosts(self) -> Mapping[str, int]:
        """The hosts, less those that this launcher cannot be reached from."""
        found = self._discovery.found
        workers = self._membership.workers
        in_use = {workers[number].slot.host for number in self.processes.running}
        for name in self._ways.keys() - found.keys() - in_use:
            del self._ways[name]  # it may be reached when it is back
        for name in found.keys() - self._ways.keys():
            self._ways[name] = self._way_to(name)
        return {name: slots for name, slots in found.items() if self._ways[name] is not None}

    def _way_to(self, name: str) -> str | None:
        """This machine's address by which a host reaches it, None where there is none.

        A job of this machine's hosts listens on loopback until another one comes.
        """
        address = self._options.address
        if is_local(name) or not is_loopback(address):
            return address
        try:
            config = launch_defaults(variables=self._options.environ)
            return address_for([name], config.rendezvous.own_address)
        except (LaunchError, UsageError) as error:
            self._say(f"host {name} is left out: {error}")
            return None

    def _note_exit(self, worker: int, code: int, now_s: float) -> None:
        one = self._membership.workers[worker]
        unwanted = one.status is Status.KILLED and not one.is_failure
        if code != 0 and one.status is not Status.DISMISSED and not unwanted:
            raised = self._raised.get(worker, "")
            self._ends[worker] = shell_code(code), raised or describe_exit(code)
            if code == -signal.SIGKILL and (why := self._given_up.get(worker)):
                self._ends[worker] = 1, f"{raised and f'{raised}; it '}{why}: it was ended"
            self._failures.append(worker)
            if worker in self._membership.members:
                self._left.add(worker)
            self._say(f"{self._name(worker)} {self._ends[worker][1]}")
        self._membership.note_exit(worker, code, now_s)

    def _note_progress(self, said: Progress, came_s: float) -> None:
        self.account.note_progress(came_s, said.samples, said.commits, is_commit=said.is_commit)
        if self._former is not None:
            self._say(_taken_over(self._former, said.all_commits))
            self._former = None
        self._commits = said.all_commits
        self._is_changed |= came_s - self._noted_s >= _NOTE_EVERY_S

    def _note_ready(self, said: Arrival, now_s: float) -> None:
        members = self._membership.members
        is_current = said.generation == self._membership.generation
        lost = [rank for rank in said.lost if is_current and rank < len(members)]
        readiness = Readiness(
            said.generation,
            said.has_state,
            said.commits,
            said.must_sync,
            frozenset(members[rank] for rank in lost),
        )
        # Who has lost another rank only follows from what has happened to that one.
        if is_current and said.why and not (said.lost or self._reason):
            self._reason = f", as {self._name(said.worker)} raised {said.why}"
        if said.worker in self._membership.workers:
            self._membership.note_ready(said.worker, readiness, now_s)
        if self._membership.phase is JobPhase.GATHERING:
            self.account.note_gathering(now_s)

    def _note_event(self, event: JobEvent, now_s: float) -> list[JobEvent]:
        """Return the event if it belongs to a generation that trains."""
        generation = self._membership.generation
        if isinstance(event, Formed):
            self._membership.note_formed(generation, now_s)
            self.account.note_formed(now_s)
            workers = self._membership.workers
            members = [(one, workers[one].slot) for one in self._membership.members]
            self.history.note_formed(generation, members, now_s)
            hosts = counted(len({rank.host for rank in event.ranks}), "host")
            size = counted(len(event.ranks), "rank")
            self._say(f"generation {generation} has {size} on {hosts}{self._take_reason()}")
            self._formed(self)
            self._is_told = self._is_changed = True
        elif isinstance(event, Lost) and self._membership.phase is JobPhase.FORMING:
            self._membership.note_failed_to_form(generation, event.message, now_s)
        return [event] if self._is_told and not isinstance(event, Closed) else []

    def _take_reason(self) -> str:
        """Why the generation has formed, to be said after that it has."""
        names = [self._name(each) for each in self._failures if each in self._left]
        reason = f", without {' and '.join(names)}" if names else self._reason
        self._reason, self._failures, self._left = "", [], set()
        return reason

    def _note_silent(self) -> None:
        """Members that are waited for may show that they are stopped, or cut off."""
        if not self._membership.waits_for_members:
            return
        # Whoever ends by itself may hang up long before its process has ended.
        is_gathering = self._membership.phase is JobPhase.GATHERING
        has_lost = self._coordinator.has_lost if is_gathering else self._coordinator.is_cut_off
        pids = self.processes.pids
        for number, worker in list(self._membership.workers.items()):
            if worker.status is not Status.MEMBER:
                continue
            is_stopped = _is_stopped(pids[number])
            is_accused = 0 <= worker.accused_s < float("inf")
            if is_accused:
                self._coordinator.probe(number)
            if is_accused and (is_stopped or self._coordinator.is_cut_off(number)):
                self._membership.note_unable(number)
            elif is_stopped or has_lost(number):
                self._membership.note_silent(number, self._now_s())
            else:
                self._membership.note_heard(number)

    def _strike(self, now_s: float) -> None:
        """Makes the fault that is due."""
        chaos, training_s = self._chaos, self.account.training_s(now_s)
        if chaos is None or training_s is None or not self._membership.is_training:
            return
        workers = self._membership.workers
        members = [n for n in self._membership.members if workers[n].status is Status.MEMBER]
        here = [n for n in members if is_local(workers[n].slot.host)]
        fault = chaos.strike(training_s, self._membership.generation, members, here)
        if fault is not None:
            self._membership.note_struck(fault.worker)
            self._say(f"{self._name(fault.worker)} is {_DONE_TO[fault.kind]} on purpose")
            self.processes.send_signal(fault.worker, _SIGNALS[fault.kind])

    def carry_out(self, action: Action) -> None:
        match action:
            case Start(worker=worker):
                self._start(worker)
            case Kill(worker=worker, why=why):
                self._given_up[worker] = why
                self.processes.send_signal(worker, signal.SIGKILL)
            case Dismiss(worker=worker):
                self._coordinator.tell(worker, Removed())
            case Notify(added=added):
                self._reason = ", as new ranks are ready"
                if not added:
                    self._reason = ", as hosts are no longer listed"
                # Rank 0 tells the others, so that all end at the same commit.
                self._coordinator.tell(self._membership.members[0], Update(added))
            case Abandon(why=why):
                self._close_channel(why)
            case Form():
                self._form(action)
            case Remark(sentence=sentence):
                self._say(sentence)

    def _start(self, worker: int) -> None:
        workers = self._membership.workers
        host = workers[worker].slot.host
        # As its first generation is expected to be. `init` corrects it (`set_place`).
        expected = self._membership.expected
        hosts = [workers[number].slot.host for number in expected]
        place = elastic_environ(slot_of(hosts, expected.index(worker)), len(hosts)) | {
            "HVDTUNE_RENDEZVOUS": self._coordinator.listen(self._way_of(worker)),
            "HVDTUNE_WORKER": str(worker),
        }
        # A worker keeps its number; each generation that it is in adds its own to the name.
        timeline = self._options.timeline.replace("%r", str(worker))
        self._starter.start(worker, host, place, timeline, is_remote=not is_local(host))
        self._is_changed = True

    def _form(self, form: Form) -> None:
        self._close_channel("another generation forms")
        self.account.note_forming(self._now_s())
        size = len(form.members)
        wait_s = self._options.start_timeout_s
        ways = dict.fromkeys(map(self._way_of, form.members))
        # This machine's ranks reach what others reach, too.
        way = next((way for way in ways if not is_loopback(way)), self._options.address)
        channel = JobChannel(self._starter.key, size, way, wait_s, form.generation)
        self._channel = channel
        for rank, worker in enumerate(form.members):
            place = Placement(form.generation, rank, size, channel.address, form.must_sync)
            self._coordinator.tell(worker, place)

    def _way_of(self, worker: int) -> str:
        """This machine's address by which a worker's host reaches it."""
        slot = self._membership.workers[worker].slot
        return self._ways.get(slot.host) or self._options.address

    def _close_channel(self, why: str) -> None:
        if self._channel is not None:
            self._channel.abort(why)
            self._channel.close()
            self._channel = None

    def last_events(self, *, is_stopped: bool) -> list[JobEvent]:
        return self._closed()

    def verdict(self, finish: Finish | None) -> tuple[int, str, int]:
        found = 128 + signal.SIGTERM, f"{self._plan.title} was stopped", 0
        if finish is not None:
            found = self._failure(finish) if finish.why else (0, "", 0)
        self._exit_code = found[0]
        return found

    def _failure(self, finish: Finish) -> tuple[int, str, int]:
        why = finish.why if self._failures else finish.why + self._reason
        failed = finish.failed
        if failed is None:
            failed = next(iter(self._failures), None)
        if failed is None:
            return 1, why, 0
        code, how = self._ends[failed]
        return code, f"{self._name(failed)} {how}: {why}", failed

    def close(self) -> None:
        self._discovery.close()
        self._close_channel("the job is over")
        self._coordinator.close()

    def _name(self, worker: int) -> str:
        """How a process is called: as its output is marked, and where it is."""
        slot = self._membership.workers[worker].slot
        return f"worker {worker} (slot {slot.number} of {slot.host})"


def _taken_over(former: Journal, commits: int) -> str:
    """How far the training of a former launcher's job is."""
    if commits >= former.commits:
        return f"the job is taken over, after {counted(commits, 'commit')}"
    left = f"{counted(former.commits, 'commit')} of the job before"
    if commits == 0:
        return f"the training begins anew: of {left} none is on a disk that the script resumes from"
    return f"the job is taken over, after {counted(commits, 'commit')} of {left}: those on the disk"


def _is_stopped(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False  # it has ended
    return stat.rpartition(")")[2].split()[0] in ("T", "t")
