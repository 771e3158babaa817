"""A job whose ranks come and go: its processes, its generations and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hvdtune.core.config.environment import launch_defaults, worker_environ
from hvdtune.core.config.key_source import KEY_BYTES
from hvdtune.core.job.interrupt import check_signals, defer_signals, resume_signals
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
from hvdtune.launcher.elastic.account import Account
from hvdtune.launcher.elastic.chaos import Chaos
from hvdtune.launcher.elastic.coordinator import Coordinator
from hvdtune.launcher.elastic.discovery import Discovery
from hvdtune.launcher.elastic.history import History, document
from hvdtune.launcher.elastic.journal import Journal, mark_of
from hvdtune.launcher.elastic.membership import (
    Abandon,
    Action,
    Dismiss,
    ElasticLimits,
    Finish,
    Form,
    JobPhase,
    Kill,
    Membership,
    Notify,
    Readiness,
    Remark,
    Start,
    Status,
)
from hvdtune.launcher.elastic.slots import SlotName
from hvdtune.launcher.hosts import address_for, is_local
from hvdtune.launcher.output import Output, Writer
from hvdtune.launcher.plan import elastic_environ, slot_of
from hvdtune.launcher.relay import relay_command
from hvdtune.launcher.run import (
    ExitReport,
    JobOptions,
    describe_exit,
    setting_environ,
    shell_code,
    timeline_environ,
    wait_for_end,
)
from hvdtune.launcher.spawn import ProcessGroup, sealed_file
from hvdtune.plural import counted

if TYPE_CHECKING:
    from typing_extensions import Self

    from hvdtune.core.config.knobs import Setting
    from hvdtune.core.job.channel import JobChannel, JobEvent

# Between two looks at the ranks' processes and at the job channel.
_TURN_S: Final = 0.02
_LAST_OUTPUT_S: Final = 2.0
# Between two notes of how far the training is
_NOTE_EVERY_S: Final = 1.0
_SIGNALS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
_DONE_TO: Final = {"kill": "killed", "stop": "stopped"}

Say = Callable[[str], None]


@dataclass(frozen=True)
class ElasticPlan:
    """What runs, and on which hosts; `ssh` are further words for ssh to those elsewhere, `chaos`
    are faults that are made. `descriptors` returns those that a worker inherits besides, whose
    numbers are then the last words of its command."""

    command: tuple[str, ...]
    title: str
    discovery: Discovery
    limits: ElasticLimits
    ssh: tuple[str, ...] = ()
    chaos: Chaos | None = None
    descriptors: Callable[[int], tuple[int, ...]] = lambda worker: ()


class ElasticJob:
    """A running elastic job. A context manager: leaving it leaves no process.

    Thread rule: one thread. `_woken` is an Event, which any may set.

    Attributes:
        account: what the changes of ranks have cost so far.
        history: who has been in the job when.
    """

    def __init__(
        self,
        plan: ElasticPlan,
        setting: Setting,
        options: JobOptions,
        writers: Sequence[Writer],
        say: Say,
        formed: Callable[[ElasticJob], None] = lambda job: None,
        changed: Callable[[ElasticJob], None] = lambda job: None,
        former: Journal | None = None,
    ) -> None:
        """Starts nothing yet.

        Args:
            say: takes a sentence about each change of the job.
            formed: is called when a generation has formed.
            changed: is called when `journal` has changed.
            former: of the job that this one takes over.
        """
        self._formed, self._changed = formed, changed
        self._former = former  # until it is known how far its training is
        self._began_unix = time.time() if former is None else former.began_unix
        began_s = 0.0 if former is None else max(time.time() - self._began_unix, former.at_s)
        self._began_s = time.monotonic() - began_s
        self._commits = 0 if former is None else former.commits
        self._noted_s = began_s
        self._is_changed = False
        self._plan, self._options, self._say = plan, options, say
        self._setting = setting_environ(setting)
        self._key = os.urandom(KEY_BYTES)
        self._woken = threading.Event()
        self._membership = Membership(
            plan.limits, None if former is None else former.former, began_s
        )
        self.account = Account()
        self.history = History(former.stays if former is not None else ())
        self._group = ProcessGroup()
        self._output = Output(writers, options.tail_lines)
        self._coordinator = Coordinator(self._key, self._woken.set, options.heartbeat_timeout_s)
        self._coordinator.listen(options.address)  # what cannot be is found before anything starts
        self._channel: JobChannel | None = None
        self._events: deque[JobEvent] = deque()
        self._is_told = False  # by the events: that a generation trains
        self._looked_s = -_TURN_S
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._ended: set[int] = set()
        self._given_up: dict[int, str] = {}  # which workers this launcher has ended, and why
        self._raised: dict[int, str] = {}  # which workers' training functions have, and what
        self._ends: dict[int, tuple[int, str]] = {}  # how workers have failed: exit code and words
        self._failures: list[int] = []  # who has failed since the last generation
        self._left: set[int] = set()  # those of them that were members
        self._reason = ""  # why the generation before was left, as the end of a sentence
        self._report: ExitReport | None = None
        self._ways: dict[str, str | None] = {}
        defer_signals(self)
        self._output.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    @property
    def write_error(self) -> str:
        """Why the ranks' output could not be passed on, "" when it was."""
        return self._output.write_error

    @property
    def members(self) -> tuple[int, ...]:
        """The workers of the latest generation, in the order of their ranks."""
        return self._membership.members

    @property
    def why_no_chaos(self) -> str:
        """Why no fault was made, "" where one was, or none was to be."""
        return "" if self._plan.chaos is None else self._plan.chaos.why_none()

    def wait(self) -> ExitReport:
        """Runs the job to its end. Raises LaunchError when a process cannot be started."""
        while self._report is None:
            check_signals()
            self._turn()
            self._events.clear()
            if self._woken.wait(_TURN_S):
                self._woken.clear()
        return self._report

    def next_event(self, timeout_s: float) -> JobEvent | None:
        """The oldest event of the ranks not yet taken, None when none comes in time; the job only
        goes on where this is called.

        A generation begins with Formed and ends with Closed, whatever has ended it.
        """
        check_signals()
        if not self._events and self._report is None:
            self._look(min(timeout_s, _TURN_S))
        return self._events.popleft() if self._events else None

    def poll(self) -> ExitReport | None:
        """How the job ended; None while it runs, or has events that were not taken."""
        return None if self._events else self._report

    def propose(self, setting: Setting) -> int:
        """Asks the ranks of the generation to adopt a setting, which goes with it; returns its
        version. Where no generation trains nobody hears it."""
        from hvdtune.core.job.channel import NEVER_ADOPTED

        if self._channel is None or self._membership.phase is not JobPhase.RUNNING:
            return NEVER_ADOPTED
        return self._channel.propose(setting)

    def terminate(self) -> None:
        """Ends the job, if it runs."""
        self._stop()
        self._events.clear()

    def _look(self, timeout_s: float) -> None:
        if time.monotonic() - self._looked_s >= _TURN_S:
            self._turn()
            self._looked_s = time.monotonic()
        if self._events or self._report is not None:
            return
        if self._channel is not None and self._membership.phase is JobPhase.RUNNING:
            if (event := self._channel.next_event(timeout_s)) is not None:
                self._note_event(event, self._now_s())
        elif self._woken.wait(timeout_s):
            self._woken.clear()
            self._looked_s = -_TURN_S

    def _turn(self) -> None:
        now_s = self._now_s()
        self._membership.note_hosts(self._hosts())
        if remark := self._plan.discovery.take_remark():
            self._say(remark)
        # That a generation has formed is noted before what its members did in it, so what is noted
        # first is asked for last.
        exits, said_by_workers = self._take_exits(), self._coordinator.take()
        self._note_channel(now_s)
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
                self._group.kill_left_by("HVDTUNE_WORKER", str(worker))
            self._note_exit(worker, code, now_s)
            self.history.note_exit(worker, now_s)
            self._is_changed = True
        if self._membership.phase is not JobPhase.RUNNING:
            self.history.note_ended(now_s)
        self._note_silent()
        self._strike(now_s)
        # What one decision changes may call for the next.
        while actions := self._membership.decide(now_s):
            for action in actions:
                self._carry_out(action)
        self._tell_end()
        if self._is_changed:
            self._is_changed, self._noted_s = False, now_s
            self._changed(self)

    def _tell_end(self) -> None:
        from hvdtune.core.job.channel import Closed

        if self._is_told and self._membership.phase is not JobPhase.RUNNING:
            self._events.append(Closed())
            self._is_told = False

    def document(self) -> dict[str, Any]:
        """Who has been in the job when, and what that has cost: see `history`."""
        return document(self.history, self.account, self._now_s())

    def journal(self) -> Journal:
        """What another launcher can take over."""
        now_s = self._now_s()
        running = (mark_of(self._children[number].pid) for number in self._running())
        return Journal(
            began_unix=self._began_unix,
            at_s=now_s,
            former=self._membership.former,
            commits=self._commits,
            stays=self.history.until(now_s),
            processes=[mark for mark in running if mark is not None],
            exit_code=None if self._report is None else self._report.returncode,
        )

    def _now_s(self) -> float:
        return time.monotonic() - self._began_s

    def _hosts(self) -> Mapping[str, int]:
        """The hosts, less those that this launcher cannot be reached from."""
        found = self._plan.discovery.found
        workers = self._membership.workers
        in_use = {workers[number].slot.host for number in self._running()}
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

    def _take_exits(self) -> list[tuple[int, int]]:
        """The workers whose processes have ended since the last turn, with their exit codes."""
        codes = {worker: child.poll() for worker, child in self._children.items()}
        exits = [(worker, code) for worker, code in codes.items() if code is not None]
        new = [(worker, code) for worker, code in exits if worker not in self._ended]
        self._ended |= {worker for worker, _ in new}
        return new

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

    def _note_channel(self, now_s: float) -> None:
        while self._channel is not None and (event := self._channel.next_event(0.0)) is not None:
            self._note_event(event, now_s)

    def _note_event(self, event: JobEvent, now_s: float) -> None:
        from hvdtune.core.job.channel import Closed, Formed, Lost

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
        if self._is_told and not isinstance(event, Closed):
            self._events.append(event)

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
        for number, worker in list(self._membership.workers.items()):
            if worker.status is not Status.MEMBER:
                continue
            is_stopped = _is_stopped(self._children[number].pid)
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
        chaos, training_s = self._plan.chaos, self.account.training_s(now_s)
        if chaos is None or training_s is None or not self._membership.is_training:
            return
        workers = self._membership.workers
        members = [n for n in self._membership.members if workers[n].status is Status.MEMBER]
        here = [n for n in members if is_local(workers[n].slot.host)]
        fault = chaos.strike(training_s, self._membership.generation, members, here)
        if fault is not None:
            self._membership.note_struck(fault.worker)
            self._say(f"{self._name(fault.worker)} is {_DONE_TO[fault.kind]} on purpose")
            self._children[fault.worker].send_signal(_SIGNALS[fault.kind])

    def _carry_out(self, action: Action) -> None:
        match action:
            case Start(worker=worker, slot=slot):
                self._start(worker, slot)
            case Kill(worker=worker, why=why):
                self._given_up[worker] = why
                self._children[worker].kill()
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
            case Finish(why=why, failed=failed):
                self._finish(why, failed)

    def _start(self, worker: int, slot: SlotName) -> None:
        told = {
            "HVDTUNE_RENDEZVOUS": self._coordinator.listen(self._way_of(worker)),
            "HVDTUNE_START_TIMEOUT_S": f"{self._options.start_timeout_s:g}",
            "HVDTUNE_HEARTBEAT_TIMEOUT_S": f"{self._options.heartbeat_timeout_s:g}",
            "HVDTUNE_TRANSPORT": self._options.transport,
            "HVDTUNE_WORKER": str(worker),
            "PYTHONUNBUFFERED": "1",
        }
        # As its first generation is expected to be. `init` corrects it (`set_place`).
        expected = self._membership.expected
        hosts = [self._membership.workers[number].slot.host for number in expected]
        told |= elastic_environ(slot_of(hosts, expected.index(worker)), len(hosts))
        # A worker keeps its number; each generation that it is in adds its own to the name.
        path = self._options.timeline.replace("%r", str(worker))
        shared = dict(self._options.environ) | self._setting | timeline_environ(self._options, path)
        with sealed_file("hvdtune-key", self._key) as key_fd:
            environ = worker_environ(shared | told | {"HVDTUNE_KEY_FD": str(key_fd)})
            more = self._plan.descriptors(worker)
            inherited, command = (key_fd, *more), (*self._plan.command, *map(str, more))
            if not is_local(slot.host):
                wait_s = self._options.start_timeout_s
                command = relay_command(slot.host, self._plan.ssh, wait_s, inherited, command)
            child = self._group.start(command, environ, inherited)
        self._children[worker] = child
        self._is_changed = True
        self._output.watch(worker, child)

    def _form(self, form: Form) -> None:
        from hvdtune.core.job.channel import JobChannel

        self._close_channel("another generation forms")
        self.account.note_forming(self._now_s())
        size = len(form.members)
        wait_s = self._options.start_timeout_s
        ways = dict.fromkeys(map(self._way_of, form.members))
        # This machine's ranks reach what others reach, too.
        way = next((way for way in ways if not is_loopback(way)), self._options.address)
        channel = JobChannel(self._key, size, way, wait_s, form.generation)
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

    def _finish(self, why: str, failed: int | None) -> None:
        dismissed = [n for n, w in self._membership.workers.items() if w.status is Status.DISMISSED]

        def leaving() -> list[int]:
            return [n for n in dismissed if self._children[n].poll() is None]

        wait_for_end(self._output, leaving, self._options.terminate_grace_s)
        code, rank = 0, None
        if why and not self._failures:
            why += self._reason
        if why:
            rank = failed if failed is not None else next(iter(self._failures), None)
            code, how = (1, "") if rank is None else self._ends[rank]
            if rank is not None:
                why = f"{self._name(rank)} {how}: {why}"
        self._end(ExitReport(code, why, (), rank or 0))

    def _stop(self) -> None:
        """Ends the job, if it runs: SIGTERM to the ranks, SIGKILL to all that is left."""
        if self._report is None:
            self._group.signal_children(signal.SIGTERM)
            try:
                wait_for_end(self._output, self._running, self._options.terminate_grace_s)
            finally:
                code = 128 + signal.SIGTERM
                self._end(ExitReport(code, f"{self._plan.title} was stopped", ()))

    def _running(self) -> list[int]:
        return [number for number, child in self._children.items() if child.poll() is None]

    def _end(self, report: ExitReport) -> None:
        """Leaves no process, thread or descriptor."""
        if self._report is None:
            self._report = report
            try:
                self._plan.discovery.close()
                self._group.kill()
                self._output.close(_LAST_OUTPUT_S)
                self._close_channel("the job is over")
                self._coordinator.close()
                # Only now all that they have written is there.
                tail = self._output.tail(report.rank)
                self._report = replace(report, tail=tail)
            finally:
                resume_signals(self)

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
