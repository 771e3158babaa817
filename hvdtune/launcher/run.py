"""One job: its ranks, its channel and how it ends."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from hvdtune.core.config.environment import worker_environ
from hvdtune.core.config.script_knobs import is_of_script, start_variables
from hvdtune.core.job.interrupt import check_signals, defer_signals, resume_signals
from hvdtune.launcher.control import Control, JobState, JobSteps, StepLog, open_control
from hvdtune.launcher.nodes.way import NodeWay, new_job_key
from hvdtune.launcher.output import Output, Writer
from hvdtune.launcher.plan import Slot, slot_environ
from hvdtune.launcher.relay import relay_command
from hvdtune.launcher.spawn import ProcessGroup, sealed_file

if TYPE_CHECKING:
    from typing_extensions import Self

    from hvdtune.core.config.knobs import Setting
    from hvdtune.core.job.channel import JobEvent

# Between the last rank's exit and the arrival of what it last sent.
_LAST_EVENTS_S: Final = 1.0
_LAST_OUTPUT_S: Final = 2.0


class Channel(Protocol):
    """What a job needs of core.job.JobChannel."""

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
    """What runs: the argument vector of every rank, the place of each, and how to name it.

    The ranks inherit `descriptors` under their numbers. Those on `remote` hosts are started by the
    host's node, if `nodes` has one, else by ssh, which is given the words `ssh`.
    """

    command: tuple[str, ...]
    slots: tuple[Slot, ...]
    title: str
    descriptors: tuple[int, ...] = ()
    remote: tuple[str, ...] = ()
    ssh: tuple[str, ...] = ()
    nodes: Mapping[str, NodeWay] = field(default_factory=dict)


@dataclass(frozen=True)
class JobOptions:
    """How a job is run.

    The ranks find the launcher at `address`. `timeline` is the path of the raw trace files with
    `%r` for the rank, "" for none; `timeline_max_mb` 0 means no cap, `timeline_when_full` what
    happens there ("ring", "stop"), `timeline_steps` which steps are recorded (as
    core.parse.step_window reads them); "": as the environment says. Once a rank has failed the
    others have `report_grace_s` to report and exit, then `terminate_grace_s` to end after SIGTERM.
    `environ` goes to the ranks on top of the launcher's own environment.
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
    tail_lines: int = 40
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ExitReport:
    """How a job ended.

    `returncode` is that of the first rank to fail (128 + N when signal N killed it), 1 when the
    job was never formed, 0 when all went well. `reason` is one line, "" when there is nothing to
    say; with returncode 0 it is a remark.
    `rank` is the one that failed, else 0, and `tail` holds its last lines.
    """

    returncode: int
    reason: str
    tail: tuple[str, ...]
    rank: int = 0


@dataclass(frozen=True)
class JobOutcome:
    """What is known when all ranks have ended.

    `codes` are the ranks' return codes (-N: killed by signal N), `order` the ranks in the order
    of their ends, `signalled` those that the launcher itself ended. `gone` are the ranks in the
    order in which the job lost them, `loss` what was said of a lost one. `left_behind` are those
    that the others gave up and that had not ended when all others had.
    """

    codes: tuple[int, ...]
    order: tuple[int, ...]
    signalled: frozenset[int]
    formed: bool
    start_failure: str
    stopped: bool
    gone: tuple[int, ...] = ()
    loss: str = ""
    left_behind: frozenset[int] = frozenset()


def exit_report(outcome: JobOutcome, title: str) -> tuple[int, str, int]:
    """The job's return code, its reason in one line ("" for none) and the rank to quote."""
    places = {rank: place for place, rank in enumerate(outcome.order)}
    failed = [
        (places.get(rank, len(places)), rank)
        for rank, code in enumerate(outcome.codes)
        if code != 0 and rank not in outcome.signalled
    ]
    if outcome.stopped and not failed:
        return 128 + signal.SIGTERM, f"{title} was stopped", 0
    no_job = f"{title} ended without calling hvd.init(): its processes never formed a job"
    if not outcome.formed and not any(outcome.codes):
        return 0, no_job, 0
    if outcome.start_failure and (failed or not outcome.formed):
        rank = min(failed)[1] if failed else 0
        return (shell_code(outcome.codes[rank]) if failed else 1), outcome.start_failure, rank
    if failed:
        return _first_failure([rank for _, rank in sorted(failed)], outcome)
    if outcome.left_behind:
        rank = min(outcome.left_behind)
        return 1, f"rank {rank} had not ended when all others had: {outcome.loss}", rank
    return (0, "", 0) if outcome.formed else (1, no_job, 0)


def _first_failure(failed: list[int], outcome: JobOutcome) -> tuple[int, str, int]:
    """The rank that failed first is the one the job lost first: the others fail because of it,
    and may well end before it."""
    rank = next((rank for rank in outcome.gone if rank in failed), failed[0])
    code = outcome.codes[rank]
    reason = f"rank {rank} {describe_exit(code)}"
    if outcome.loss and rank not in outcome.gone:
        reason = f"{reason} because {outcome.loss}"
    return shell_code(code), reason, rank


class Job:
    """A running job. A context manager: leaving it leaves no process. Used from one thread."""

    def __init__(
        self, plan: JobPlan, options: JobOptions, channel: Channel, writers: Sequence[Writer]
    ) -> None:
        self._plan, self._options = plan, options
        self.channel = channel
        self._group = ProcessGroup()
        self._output = Output(writers, options.tail_lines)
        self._children: list[subprocess.Popen[bytes]] = []
        self._pending: deque[JobEvent] = deque()
        self._gone: list[int] = []
        self._loss = ""
        self._given_up: set[int] = set()  # by the ranks of the latest job
        self._formed = self._stopped = self._aborted = False
        self._gathering = True  # no job yet, or none any more
        self._start_failure = ""
        self._failed_at_s: float | None = None
        self._signalled: frozenset[int] = frozenset()
        self._report: ExitReport | None = None
        self._control: Control | None = None
        self._steps = 0
        self._step_log = StepLog()
        defer_signals(self)

    @classmethod
    def start(
        cls,
        plan: JobPlan,
        setting: Setting,
        options: JobOptions,
        *,
        writers: Sequence[Writer] = (),
        open_channel: OpenChannel | None = None,
    ) -> Job:
        """Starts all ranks; `setting` overrides the knobs it names for them.

        Raises LaunchError when a process cannot be started.
        """
        key, nonce = new_job_key(plan.nodes)
        open_channel = open_channel or functools.partial(_open_channel, options.address)
        channel = open_channel(key, len(plan.slots), options.start_timeout_s)
        job = cls(plan, options, channel, writers)
        try:
            job._spawn(key, nonce, setting)
        except BaseException:
            job._end()
            raise
        return job

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()

    @property
    def write_error(self) -> str:
        """Why the ranks' output could not be passed on, "" when it was."""
        return self._output.write_error

    @property
    def state(self) -> JobState:
        """The state that control clients see; may be asked from any thread."""
        return JobState(
            title=self._plan.title,
            ranks=len(self._plan.slots),
            remote=sum(slot.host in self._plan.remote for slot in self._plan.slots),
            timeline=os.path.abspath(self._options.timeline) if self._options.timeline else "",
            steps=self._steps,
        )

    def steps_since(self, job: int, first: int) -> JobSteps:
        """See `StepLog.since`; may be asked from any thread."""
        return self._step_log.since(job, first)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids by rank."""
        return tuple(child.pid for child in self._children)

    def tail(self, rank: int = 0) -> tuple[str, ...]:
        """The last lines of a rank."""
        return self._output.tail(rank)

    def propose(self, setting: Setting) -> int:
        """Asks all ranks to adopt `setting`; returns its version."""
        return self.channel.propose(setting)

    def next_event(self, timeout_s: float) -> JobEvent | None:
        """The oldest event of the ranks not yet taken, None when none comes in time."""
        check_signals()
        self._supervise()
        if self._pending:
            return self._pending.popleft()
        return self._take(timeout_s)

    def poll(self) -> ExitReport | None:
        """How the job ended; None while it runs. Events stay for `next_event`."""
        self._supervise()
        return self._report

    def wait(self) -> ExitReport:
        """Waits for the end. Drops the events that nobody takes."""
        while (report := self.poll()) is None:
            self._drain(0.0)
            self._pending.clear()
            self.wait_for_change(0.25)
        return report

    def wait_for_change(self, timeout_s: float) -> bool:
        """Returns when a rank has ended since the last call, or after the timeout: whether any
        still runs."""
        check_signals()
        self._output.wait_for_change(timeout_s)
        return bool(self._running())

    def terminate(self, grace_s: float | None = None) -> None:
        """Ends the job: SIGTERM to the ranks, SIGKILL to all that is left after the grace.

        The default grace is that of the options.
        """
        if self.poll() is None:
            grace_s = self._options.terminate_grace_s if grace_s is None else grace_s
            self._stopped = True
            self._signal_ranks()
            try:
                wait_for_end(self._output, self._running, grace_s)
            finally:
                self._end()

    def _spawn(self, key: bytes, nonce: str, setting: Setting) -> None:
        shared = self._shared_environ(setting)
        with sealed_file("hvdtune-key", key) as key_fd:
            for slot in self._plan.slots:
                place = slot_environ(slot, len(self._plan.slots))
                variables = shared | place | {"HVDTUNE_KEY_FD": str(key_fd)}
                environ = worker_environ(variables)
                inherited = (key_fd, *self._plan.descriptors)
                command, node = self._plan.command, self._plan.nodes.get(slot.host)
                if node is not None:
                    node = replace(node, nonce=nonce, variables=tuple(variables))
                if slot.host in self._plan.remote:
                    wait_s, ssh = self._options.start_timeout_s, self._plan.ssh
                    command = relay_command(slot.host, ssh, wait_s, inherited, command, node)
                if node is not None:
                    inherited = (*inherited, node.key_fd)
                child = self._group.start(command, environ, inherited)
                self._children.append(child)
                self._output.watch(slot.rank, child)
        self._output.start()
        self._control = open_control(self)

    def _shared_environ(self, setting: Setting) -> dict[str, str]:
        options = self._options
        variables = {
            "HVDTUNE_RENDEZVOUS": self.channel.address,
            "HVDTUNE_START_TIMEOUT_S": f"{options.start_timeout_s:g}",
            "HVDTUNE_HEARTBEAT_TIMEOUT_S": f"{options.heartbeat_timeout_s:g}",
            "HVDTUNE_TRANSPORT": options.transport,
            "PYTHONUNBUFFERED": "1",
        }
        recorded = timeline_environ(options, options.timeline)
        return dict(options.environ) | variables | recorded | setting_environ(setting)

    def _take(self, timeout_s: float) -> JobEvent | None:
        from hvdtune.core.job.channel import Closed, Formed, Left, Lost, StepDone

        event = self.channel.next_event(timeout_s)
        match event:
            case StepDone(step=step, durations_ns=durations_ns):
                self._steps = step + 1
                self._step_log.add(step, durations_ns)
            case Formed():
                self._formed, self._gathering = True, False
                self._given_up.clear()
                self._steps = 0
                self._step_log.begin_job()
            case Closed():
                self._gathering = True
            case Lost(message=message) if self._gathering:
                self._start_failure = self._start_failure or message
            case Lost(rank=rank, message=message):
                self._gone.append(rank)
                self._given_up.add(rank)
                self._loss = self._loss or message
            case Left(rank=rank):
                self._gone.append(rank)
        return event

    def _drain(self, timeout_s: float) -> None:
        while (event := self._take(timeout_s)) is not None:
            self._pending.append(event)
            timeout_s = 0.0

    def _running(self) -> list[int]:
        return [rank for rank, child in enumerate(self._children) if child.poll() is None]

    def _signal_ranks(self) -> None:
        self._signalled |= frozenset(self._running())
        self._group.signal_children(signal.SIGTERM)

    def _supervise(self) -> None:
        if self._report is not None:
            return
        if not self._running():
            self._end()
            return
        self._abort_if_it_cannot_form()
        if self._failed_at_s is None:
            never_formed = self._start_failure and not self._formed
            has_failed = any(child.returncode for child in self._children)
            if never_formed or has_failed or self._left_behind():
                self._failed_at_s = time.monotonic()
            return
        failed_for_s = time.monotonic() - self._failed_at_s
        if failed_for_s > self._options.report_grace_s + self._options.terminate_grace_s:
            self._end()
        elif failed_for_s > self._options.report_grace_s and not self._signalled:
            self._signal_ranks()

    def _left_behind(self) -> frozenset[int]:
        """The ranks that run where all others have ended and have given up these; a stopped
        process would never end."""
        running = self._running()
        has_others = len(running) < len(self._children)
        return frozenset(running) if has_others and self._given_up >= {*running} else frozenset()

    def _abort_if_it_cannot_form(self) -> None:
        ended = [rank for rank, child in enumerate(self._children) if child.poll() is not None]
        if self._aborted or not ended:
            return
        self._drain(0.0)
        if not self._gathering:
            return
        # Nobody else can know: the rank may never have connected to anything.
        self._aborted = True
        how = describe_exit(self._children[ended[0]].returncode)
        self.channel.abort(f"rank {ended[0]} {how} before all ranks had called hvd.init()")

    def _end(self) -> None:
        try:
            self._end_all()
        finally:
            resume_signals(self)

    def _end_all(self) -> None:
        """Leaves no process and no descriptor, whatever the state."""
        if self._report is not None:
            return
        left_behind = self._left_behind()
        self._signalled |= frozenset(self._running())
        if self._control is not None:
            self._control.close()
        self._group.kill()
        self._output.close(_LAST_OUTPUT_S)
        self._drain(0.0 if self._formed or self._stopped else _LAST_EVENTS_S)
        self.channel.close()
        outcome = JobOutcome(
            codes=tuple(child.wait() for child in self._children),
            order=self._output.ended(),
            signalled=self._signalled,
            formed=self._formed,
            start_failure=self._start_failure,
            stopped=self._stopped,
            gone=tuple(self._gone),
            loss=self._loss,
            left_behind=left_behind,
        )
        code, reason, rank = exit_report(outcome, self._plan.title)
        self._report = ExitReport(code, reason, self._output.tail(rank), rank)


def timeline_environ(options: JobOptions, path: str) -> dict[str, str]:
    """The variables that let ranks record in `path` as the options say, {} where it is ""."""
    if not path:
        return {}
    told = {"HVDTUNE_TIMELINE": path, "HVDTUNE_TIMELINE_MAX_MB": f"{options.timeline_max_mb:g}"}
    for name, value in (
        ("HVDTUNE_TIMELINE_WHEN_FULL", options.timeline_when_full),
        ("HVDTUNE_TIMELINE_STEPS", options.timeline_steps),
    ):
        if value:
            told[name] = value
    return told


def setting_environ(setting: Setting) -> dict[str, str]:
    """The variables that give ranks a setting."""
    own = {
        f"HVDTUNE_{name.upper()}": str(int(value) if isinstance(value, bool) else value)
        for name, value in setting.items()
        if not is_of_script(name)
    }
    return own | start_variables(setting)


def _open_channel(address: str, key: bytes, ranks: int, start_timeout_s: float) -> Channel:
    from hvdtune.core.job.channel import JobChannel

    return JobChannel(key, ranks, address, start_timeout_s)


def shell_code(code: int) -> int:
    """The exit code that a shell gives a process of this return code."""
    return 128 - code if code < 0 else code


def describe_exit(code: int) -> str:
    """How a process of this return code ended."""
    if code >= 0:
        return f"exited with code {code}"
    known = -code in set(signal.Signals)
    return f"was killed by {signal.Signals(-code).name if known else f'signal {-code}'}"


def wait_for_end(output: Output, running: Callable[[], object], grace_s: float) -> None:
    """Returns when nothing is `running` any more, or after the grace; a signal ends it at once."""
    deadline_s = time.monotonic() + grace_s
    while running() and (left_s := deadline_s - time.monotonic()) > 0:
        output.wait_for_change(min(left_s, 0.1))
        check_signals()  # asked again: no more grace
