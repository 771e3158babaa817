"""A fixed number of processes: hvdtune's ranks with their job channel, or those of any command."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from hvdtune.core.config.environment import worker_environ
from hvdtune.core.config.script_knobs import is_of_script, start_variables
from hvdtune.core.job.channel import Formed, JobChannel, JobEvent, StepDone
from hvdtune.launcher.control import Control, JobState, JobSteps, StepLog, open_control
from hvdtune.launcher.decisions import Abandon, Finish, FixedMembership, Start
from hvdtune.launcher.job import Job, Workers
from hvdtune.launcher.nodes.way import NodeWay, new_job_key
from hvdtune.launcher.output import Writer
from hvdtune.launcher.plan import Slot, slot_environ
from hvdtune.launcher.relay import relay_command
from hvdtune.launcher.spawn import Processes, sealed_file

if TYPE_CHECKING:
    from hvdtune.core.config.knobs import Setting

# Between the last rank's exit and the arrival of its last message.
_LAST_EVENTS_S: Final = 1.0
_TAIL_LINES: Final = 40
# To report, then to end after SIGTERM. Launchers such as torchrun start sessions of their own,
# which only they can end.
_COMMAND_GRACES_S: Final = (2.0, 10.0)


class Channel(Protocol):
    """The part of core.job.JobChannel that a job uses."""

    @property
    def address(self) -> str: ...
    def propose(self, setting: Setting) -> int: ...
    def record(self, path: str, max_bytes: int = 0) -> None: ...
    def next_event(self, timeout_s: float) -> JobEvent | None: ...
    def abort(self, why: str) -> None: ...
    def close(self) -> None: ...


# (key, number of ranks, start timeout in seconds) -> a listening channel
OpenChannel = Callable[[bytes, int, float], Channel]


@dataclass(frozen=True)
class JobPlan:
    """The command of hvdtune's ranks, and their places.

    Attributes:
        command: the argument vector of every rank.
        slots: the place of each rank; () for ranks that come and go.
        title: the name of the job in messages.
        descriptors: returns the descriptors that a rank inherits; their numbers follow its command.
        remote: hosts whose ranks are started by the host's node, if `nodes` has one, else by ssh.
        ssh: further words for ssh.
    """

    command: tuple[str, ...]
    slots: tuple[Slot, ...]
    title: str
    descriptors: Callable[[int], tuple[int, ...]] = lambda rank: ()
    remote: tuple[str, ...] = ()
    ssh: tuple[str, ...] = ()
    nodes: Mapping[str, NodeWay] = field(default_factory=dict)


@dataclass(frozen=True)
class JobOptions:
    """How a job is run.

    Attributes:
        address: where the ranks find the launcher.
        timeline: path of the raw trace files with `%r` for the rank, "" for none.
        timeline_max_mb: 0 for no limit.
        timeline_when_full: "ring" or "stop"; "": as the environment sets it.
        timeline_steps: the recorded steps (see core.parse.step_window); "": as the environment
            sets it.
        report_grace_s: time for the other ranks to report and exit once a rank has failed.
        terminate_grace_s: time for them to end after SIGTERM.
        environ: variables of the ranks, on top of the launcher's own environment.
    """

    start_timeout_s: float = 30.0
    heartbeat_timeout_s: float = 2.0
    transport: str = "auto"
    address: str = "127.0.0.1"
    timeline: str = ""
    timeline_max_mb: float = 0.0
    timeline_when_full: str = ""
    timeline_steps: str = ""
    report_grace_s: float = 5.0
    terminate_grace_s: float = 3.0
    tail_lines: int = _TAIL_LINES
    environ: Mapping[str, str] = field(default_factory=dict)


def start_ranks(
    plan: JobPlan,
    setting: Setting,
    options: JobOptions,
    *,
    writers: Sequence[Writer] = (),
    open_channel: OpenChannel | None = None,
) -> Job:
    """Start all ranks; `setting` overrides the knobs it names for them.

    Raises LaunchError if a process cannot be started.
    """
    key, nonce = new_job_key(plan.nodes)
    size, wait_s = len(plan.slots), options.start_timeout_s
    if open_channel is None:
        channel: Channel = JobChannel(key, size, options.address, wait_s)
    else:
        channel = open_channel(key, size, wait_s)
    processes = Processes(writers, options.tail_lines)
    ranks = Ranks(RankStarter(plan, options, setting, processes, key, nonce), channel)
    job = Job(ranks, options.terminate_grace_s).start()
    try:
        ranks.open_control()
    except BaseException:
        job.terminate()
        raise
    return job


def start_command(
    command: Sequence[str], environs: Sequence[Mapping[str, str]], writers: Sequence[Writer] = ()
) -> Job:
    """Start a command of another runtime once for each environment.

    Raises LaunchError if a process cannot be started.
    """
    processes = Processes(writers, _TAIL_LINES)

    def start(rank: int) -> None:
        processes.start_worker(rank, command, environs[rank])

    names = _names(len(environs)) if len(environs) > 1 else ["the command"]
    membership = FixedMembership("the command", names, _COMMAND_GRACES_S, has_ranks=False)
    return Job(FixedWorkers(processes, membership, start), _COMMAND_GRACES_S[1]).start()


def _names(size: int) -> list[str]:
    return [f"rank {rank}" for rank in range(size)]


class FixedWorkers(Workers):
    """A fixed number of processes of any command, without a job channel."""

    def __init__(
        self, processes: Processes, membership: FixedMembership, start: Callable[[int], None]
    ) -> None:
        """
        Args:
            start: starts a process, by its number.
        """
        self.processes, self._membership, self._start = processes, membership, start

    def look(self) -> list[JobEvent]:
        exits = self.processes.take_exits()
        events = self.events(0.0)
        for rank, code in exits:
            self._membership.note_exit(rank, code)
        return events

    def decide(self) -> Sequence[Any]:
        return self._membership.decide(time.monotonic())

    def carry_out(self, action: Any) -> None:
        assert isinstance(action, Start)
        self._start(action.worker)

    def verdict(self, finish: Finish | None) -> tuple[int, str, int]:
        return self._membership.verdict(is_stopped=finish is None)


class Ranks(FixedWorkers):
    """A fixed number of hvdtune's ranks, and the channel to them.

    Control clients reach it from their thread: `state`, `steps_since` and `channel`.
    """

    def __init__(self, starter: RankStarter, channel: Channel) -> None:
        plan, options = starter.plan, starter.options
        graces_s = options.report_grace_s, options.terminate_grace_s
        names = _names(len(plan.slots))
        membership = FixedMembership(plan.title, names, graces_s, has_ranks=True)
        super().__init__(starter.processes, membership, self._start_rank)
        self._starter, self.channel = starter, channel
        self._plan, self._options = plan, options
        self._control: Control | None = None
        self._steps = 0
        self._step_log = StepLog()

    def open_control(self) -> None:
        """Let other processes of this user ask for the state and for recordings."""
        self._control = open_control(self)

    @property
    def state(self) -> JobState:
        """The state for control clients; any thread may ask for it."""
        slots, timeline = self._plan.slots, self._options.timeline
        return JobState(
            title=self._plan.title,
            ranks=len(slots),
            remote=sum(slot.host in self._plan.remote for slot in slots),
            timeline=os.path.abspath(timeline) if timeline else "",
            steps=self._steps,
        )

    def steps_since(self, job: int, first: int) -> JobSteps:
        """See `StepLog.since`; any thread may ask for it."""
        return self._step_log.since(job, first)

    def events(self, timeout_s: float) -> list[JobEvent]:
        taken: list[JobEvent] = []
        while (event := self.channel.next_event(0.0 if taken else timeout_s)) is not None:
            taken.append(event)
            self._membership.note_event(event)
            if isinstance(event, StepDone):
                self._steps = event.step + 1
                self._step_log.add(event.step, event.durations_ns)
            elif isinstance(event, Formed):
                self._steps = 0
                self._step_log.begin_job()
        return taken

    def carry_out(self, action: Any) -> None:
        if isinstance(action, Abandon):
            self.channel.abort(action.why)
        else:
            super().carry_out(action)

    def _start_rank(self, rank: int) -> None:
        slot, size = self._plan.slots[rank], len(self._plan.slots)
        place = slot_environ(slot, size) | {"HVDTUNE_RENDEZVOUS": self.channel.address}
        is_remote = slot.host in self._plan.remote
        self._starter.start(rank, slot.host, place, self._options.timeline, is_remote=is_remote)

    def propose(self, setting: Setting) -> int:
        return self.channel.propose(setting)

    def last_events(self, *, is_stopped: bool) -> list[JobEvent]:
        return self.events(0.0 if is_stopped or self._membership.has_formed else _LAST_EVENTS_S)

    def close(self) -> None:
        if self._control is not None:
            self._control.close()
        self.channel.close()


class RankStarter:
    """Starts processes of hvdtune's own ranks, here or on other hosts; `key` is the job's."""

    def __init__(
        self,
        plan: JobPlan,
        options: JobOptions,
        setting: Setting,
        processes: Processes,
        key: bytes,
        nonce: str = "",
    ) -> None:
        """
        Args:
            setting: the knobs of the ranks.
            nonce: see `new_job_key`.
        """
        self.plan, self.options, self.processes = plan, options, processes
        self.key, self._nonce = key, nonce
        self._setting = setting_environ(setting)

    def start(
        self, number: int, host: str, place: Mapping[str, str], timeline: str, *, is_remote: bool
    ) -> None:
        """Start a process.

        Args:
            place: variables with its place in the job.
            timeline: path of its raw trace file, "" for none.

        Raises LaunchError.
        """
        plan, wait_s = self.plan, self.options.start_timeout_s
        with sealed_file("hvdtune-key", self.key) as key_fd:
            variables = self._variables(timeline) | {**place, "HVDTUNE_KEY_FD": str(key_fd)}
            own = plan.descriptors(number)
            inherited, command = (key_fd, *own), (*plan.command, *map(str, own))
            node = plan.nodes.get(host)
            if node is not None:
                node = replace(node, nonce=self._nonce, variables=tuple(variables))
            if is_remote:
                command = relay_command(host, plan.ssh, wait_s, inherited, command, node)
            if node is not None:
                inherited = (*inherited, node.key_fd)
            self.processes.start_worker(number, command, worker_environ(variables), inherited)

    def _variables(self, timeline: str) -> dict[str, str]:
        options = self.options
        variables = {
            "HVDTUNE_START_TIMEOUT_S": f"{options.start_timeout_s:g}",
            "HVDTUNE_HEARTBEAT_TIMEOUT_S": f"{options.heartbeat_timeout_s:g}",
            "HVDTUNE_TRANSPORT": options.transport,
            "PYTHONUNBUFFERED": "1",
        }
        recorded = _timeline_environ(options, timeline)
        return dict(options.environ) | variables | recorded | self._setting


def _timeline_environ(options: JobOptions, path: str) -> dict[str, str]:
    """Return the variables that let ranks record in `path`, {} if it is ""."""
    if not path:
        return {}
    variables = {
        "HVDTUNE_TIMELINE": path,
        "HVDTUNE_TIMELINE_MAX_MB": f"{options.timeline_max_mb:g}",
        "HVDTUNE_TIMELINE_WHEN_FULL": options.timeline_when_full,
        "HVDTUNE_TIMELINE_STEPS": options.timeline_steps,
    }
    return {name: value for name, value in variables.items() if value}


def setting_environ(setting: Setting) -> dict[str, str]:
    """Return the variables that give ranks a setting."""
    own = {
        f"HVDTUNE_{name.upper()}": str(int(value) if isinstance(value, bool) else value)
        for name, value in setting.items()
        if not is_of_script(name)
    }
    return own | start_variables(setting)
