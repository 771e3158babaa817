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
        history: the members of each generation.
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
            former: the journal of the job to continue.
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
        self._given_up: dict[int, str] = {}  # reasons for which the launcher ended workers
        self._raised: dict[int, str] = {}  # errors of training functions, by worker
        self._ends: dict[int, tuple[int, str]] = {}  # of failed workers: exit code and words
        self._failures: list[int] = []  # since the last generation
        self._left: set[int] = set()  # failed members of it
        self._reason = ""  # for leaving the generation before, as the end of a sentence
        self._ways: dict[str, str | None] = {}
        self._exit_code: int | None = None

    @property
    def members(self) -> tuple[int, ...]:
        """The workers of the latest generation, in the order of their ranks."""
        return self._membership.members

    @property
    def why_no_chaos(self) -> str:
        """The reason why no fault was made, "" if one was, or none was planned."""
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
        exits, messages = self.processes.take_exits(), self._coordinator.take()
        events = self.events(0.0)
        now_s = self._now_s()
        for came_s, message in messages:
            if isinstance(message, Arrival):
                self._note_ready(message, now_s)
            elif isinstance(message, Progress):
                self._note_progress(message, came_s - self._began_s)
            elif isinstance(message, Training) and message.worker in self._membership.workers:
                self._membership.note_training(message.worker, is_on=message.is_on)
            elif isinstance(message, Raised):
                self._raised[message.worker] = f"raised {message.why}"
        for worker, code in exits:
            if code != 0:  # the other workers stay, its own children must not
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
        """Return the members of each generation and the cost of the changes: see `history`."""
        return document(self.history, self.account, self._now_s())

    def journal(self) -> Journal:
        """Return the journal with which another launcher can continue the job."""
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
        """Return the hosts that can reach this launcher, with their slots."""
        found = self._discovery.found
        workers = self._membership.workers
        in_use = {workers[number].slot.host for number in self.processes.running}
        for name in self._ways.keys() - found.keys() - in_use:
            del self._ways[name]  # it may be reached when it is back
        for name in found.keys() - self._ways.keys():
            self._ways[name] = self._way_to(name)
        return {name: slots for name, slots in found.items() if self._ways[name] is not None}

    def _way_to(self, name: str) -> str | None:
        """Return this machine's address for a host, None if the host cannot reach it.

        A job of this machine's hosts listens on loopback until another one comes.
        """
        address = self._options.address
        if is_local(name) or not is_loopback(address):
            return address
        try:
            config = launch_defaults(variables=self._options.environ)
            return address_for([name], config.rendezvous.own_address)
        except (LaunchError, UsageError) as error:
            self._say(f"host {name} is not used: {error}")
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

    def _note_progress(self, message: Progress, came_s: float) -> None:
        self.account.note_progress(
            came_s, message.samples, message.commits, is_commit=message.is_commit
        )
        if self._former is not None:
            self._say(_taken_over(self._former, message.all_commits))
            self._former = None
        self._commits = message.all_commits
        self._is_changed |= came_s - self._noted_s >= _NOTE_EVERY_S

    def _note_ready(self, message: Arrival, now_s: float) -> None:
        members = self._membership.members
        is_current = message.generation == self._membership.generation
        lost = [rank for rank in message.lost if is_current and rank < len(members)]
        readiness = Readiness(
            message.generation,
            message.has_state,
            message.commits,
            message.must_sync,
            frozenset(members[rank] for rank in lost),
        )
        # A worker that lost another rank is only a consequence of that rank's failure.
        if is_current and message.why and not (message.lost or self._reason):
            self._reason = f", as {self._name(message.worker)} raised {message.why}"
        if message.worker in self._membership.workers:
            self._membership.note_ready(message.worker, readiness, now_s)
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
        """Return the reason for the new generation, as the end of a sentence."""
        names = [self._name(each) for each in self._failures if each in self._left]
        reason = f", without {' and '.join(names)}" if names else self._reason
        self._reason, self._failures, self._left = "", [], set()
        return reason

    def _note_silent(self) -> None:
        """Note which of the missing members are stopped or cut off."""
        if not self._membership.waits_for_members:
            return
        # A worker that ends by itself may hang up long before its process has ended.
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
        """Make the fault that is due."""
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
                # Rank 0 informs the others, so that all end at the same commit.
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
        """Return this machine's address for the host of a worker."""
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
        """Return the name of a process: its number, as in its output, and its place."""
        slot = self._membership.workers[worker].slot
        return f"worker {worker} (slot {slot.number} of {slot.host})"


def _taken_over(former: Journal, commits: int) -> str:
    """Describe where the training of a former launcher's job continues."""
    if commits >= former.commits:
        return f"Training continues after {counted(commits, 'commit')} of the former launcher."
    of = f"of the {counted(former.commits, 'commit')} of the former launcher"
    if commits == 0:
        return f"Training restarts from the beginning: none {of} was written to disk."
    return f"Training continues after {commits} {of}: the others were not written to disk."


def _is_stopped(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False  # it has ended
    return stat.rpartition(")")[2].split()[0] in ("T", "t")
