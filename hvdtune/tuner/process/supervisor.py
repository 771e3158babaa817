"""The launcher's side of a tuner in a process of its own, so that its death is not the training's.

Whatever becomes of a tuner, the job runs on under the last good setting: the default until the
verdict, then the verdict's. A tuner that dies or freezes before the verdict is followed by another,
which goes on with the study on the job that runs.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hvdtune.core.config.environment import own_environ
from hvdtune.core.config.knobs import Setting
from hvdtune.core.job.channel import NEVER_ADOPTED, Closed, Formed, JobEvent
from hvdtune.core.job.child_command import module_command, process_group
from hvdtune.core.job.interrupt import check_signals, defer_signals, resume_signals
from hvdtune.errors import HvdtuneError, StudyError
from hvdtune.plural import counted
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.measure.run import ExitStatus, RunningJob, membership_of
from hvdtune.tuner.process.messages import (
    FailureMessage,
    JobEventMessage,
    JobExit,
    ProgressMessage,
    ProposeRequest,
    Reply,
    RunningLaunch,
    SettingMessage,
    StartRequest,
    StartStudy,
    TerminateRequest,
    VerdictMessage,
)
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.tuner.study import Study

if TYPE_CHECKING:
    from typing_extensions import Self

# Between looks for what the tuner asks; while the job takes steps, each of them is a look.
_POLL_S: Final = 0.02
# A tuner that leaves its messages unread for so long has stopped; a database may be busy for 60 s.
_FROZEN_S: Final = 120.0
_START_TIMEOUT_S: Final = 120.0
_EXIT_WAIT_S: Final = 2.0
# Threads of linear algebra would take processors from the ranks, and its matrices are small.
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# So many in a row without a pair between them, and there is no other.
_MAX_WORKER_EXITS: Final = 3


@dataclass(frozen=True)
class TuneOutcome:
    """`goes_on`: the job still runs, under the verdict's setting."""

    verdict: Verdict
    goes_on: bool


class TunerSupervisor:
    """A tuner, and the next one when it dies. Used from one thread.

    A context manager: leaving it leaves no tuner; the job is the caller's.

    Args:
        study: what is tuned; all but its `start_job` travels to the tuner.
        progress: is given the tuner's news.
    """

    def __init__(
        self,
        study: Study,
        run_dir: Path,
        options: TuneOptions,
        progress: Callable[[StudyProgress], None],
    ) -> None:
        self._study, self._run_dir, self._options = study, run_dir, options
        self._progress = progress
        self._latest = StudyProgress("start", trials=options.trials)
        self._good: Setting = study.default
        self._good_for = ""  # the membership, of an elastic job
        self._job: RunningJob | None = None
        self._running: RunningLaunch | None = None
        self._jobs, self._launch = 0, -1
        self._formed = 0  # how often, of which the tuner has been told
        self._report: ExitStatus | None = None
        self._tuner: _Tuner | None = None
        self._worker_exits = 0
        self._end_s = time.monotonic() + options.time_budget_s

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._tuner is not None:
            self._tuner.end()

    @property
    def pid(self) -> int | None:
        """Process number of the running tuner, None while there is none."""
        return None if self._tuner is None else self._tuner.pid

    @property
    def setting(self) -> Setting:
        """The good setting, under which the job goes on."""
        return self._good

    def tune(self) -> TuneOutcome:
        """Serves tuners until there is a verdict. Raises what `controller.tune` does."""
        while True:
            if self._tuner is None:
                self._start_worker()
            for message in self._serve():
                if isinstance(message, VerdictMessage):
                    if message.goes_on:
                        self._good = message.verdict.setting
                        self._good_for = message.verdict.membership
                        if self._good_for:
                            self._propose_good()  # other ranks may train by now
                    return TuneOutcome(message.verdict, message.goes_on)
                if isinstance(message, FailureMessage):
                    raise message.error
            if self._tuner is None:
                self._on_worker_exit()

    def follow(self) -> ExitStatus:
        """Serves the tuner that watches over the setting until the job has ended."""
        while self._report is None:
            for message in self._serve():
                if isinstance(message, SettingMessage):
                    self._good = message.setting
            if self._tuner is None:
                self._propose_good()
                self._let_run()
        return self._report

    def _start_worker(self) -> None:
        study = replace(self._study, start_job=no_job)
        running = self._running if self._report is None else None
        self._formed = 0 if running is None or running.formed is None else 1
        # A tuner that follows another has what is left of the time, not all of it once more.
        left_s = max(0.0, self._end_s - time.monotonic())
        options = replace(self._options, time_budget_s=left_s)
        self._tuner = _Tuner(StartStudy(study, self._run_dir, options, running))

    def _serve(self) -> Iterator[Any]:
        """One look at the job and at the tuner; what it says beyond its requests."""
        tuner = self._tuner
        if tuner is None:
            return
        check_signals()
        try:
            self._forward_events(tuner)
            while (message := tuner.next()) is not None:
                if isinstance(message, StartRequest | ProposeRequest | TerminateRequest):
                    tuner.send(self._answer(message))
                elif isinstance(message, ProgressMessage):
                    self._on_progress(message.progress)
                else:
                    yield message
        except _WorkerGone:
            tuner.end()
            self._tuner = None

    def _forward_events(self, tuner: _Tuner) -> None:
        if self._job is None or self._report is not None:
            tuner.wait(_POLL_S)
            return
        event = self._job.next_event(_POLL_S)
        if event is not None:
            self._note_membership(event)
            tuner.send(JobEventMessage(self._jobs, event))
            return
        self._report = self._job.poll()
        if self._report is not None:
            report = self._report
            tuner.send(
                JobEventMessage(
                    self._jobs, JobExit(report.returncode, report.reason, tuple(report.tail))
                )
            )

    def _note_membership(self, event: JobEvent) -> None:
        if isinstance(event, Formed):
            self._running = RunningLaunch(self._jobs, self._launch, event)
            self._formed += 1
            # Ranks begin with the default.
            if self._good_for and self._setting_now() != self._study.default:
                self._propose_good()
        elif isinstance(event, Closed) and self._running is not None:
            self._running = replace(self._running, has_closed=True)

    def _setting_now(self) -> Setting:
        """The good setting where it is known to be good: with the ranks of the verdict."""
        if self._good_for and self._running is not None:
            formed = self._running.formed
            is_known = formed is not None and membership_of(formed) == self._good_for
            return self._good if is_known else self._study.default
        return self._good

    def _answer(self, request: StartRequest | ProposeRequest | TerminateRequest) -> Reply:
        try:
            match request:
                case StartRequest(launch=launch):
                    self._running = self._report = None
                    self._formed = 0
                    self._jobs += 1
                    self._launch = launch
                    assert callable(self._study.start_job), "start_job is missing"
                    self._job = self._study.start_job(launch)
                    self._running = RunningLaunch(self._jobs, launch)
                    return Reply(self._jobs)
                case ProposeRequest(setting=setting, formed=formed):
                    assert self._job is not None
                    if formed != self._formed:
                        return Reply(NEVER_ADOPTED)
                    return Reply(self._job.propose(setting))
                case TerminateRequest():
                    if self._job is not None:
                        self._job.terminate()
                        self._report = self._report or self._job.poll()
                    self._running = None
                    return Reply()
        except HvdtuneError as error:
            return Reply(error=error)

    def _on_progress(self, progress: StudyProgress) -> None:
        if progress.pairs > 0:
            self._worker_exits = 0
        self._latest = progress
        self._progress(progress)

    def _on_worker_exit(self) -> None:
        self._worker_exits += 1
        self._propose_good()
        if self._worker_exits >= _MAX_WORKER_EXITS:
            self._notice(
                f"the tuner died {counted(self._worker_exits, 'time')}; training continues with "
                "the default"
            )
            while self._job is not None and self._report is None:
                self._let_run()
            raise StudyError(f"the tuner died {self._worker_exits} times in a row")
        self._notice(
            "the tuner died; training continues with the default, and a new tuner resumes the study"
        )

    def _propose_good(self) -> None:
        if self._job is not None and self._report is None:
            with contextlib.suppress(HvdtuneError):  # it has just ended
                self._job.propose(self._setting_now())

    def _let_run(self) -> None:
        assert self._job is not None
        while (report := self._job.poll()) is None:
            if (event := self._job.next_event(0.5)) is not None:
                self._note_membership(event)
        self._report = report

    def _notice(self, text: str) -> None:
        self._latest = replace(self._latest, message=text, lines=())
        self._progress(self._latest)


def no_job(launch: int) -> RunningJob:
    """Stand in for what only the launcher can do."""
    raise StudyError(f"launch {launch}: only the launcher starts jobs")


class _WorkerGone(Exception):
    """The tuner has ended, or reads nothing any more."""


class _Tuner:
    """The process and the connection to it. What is sent waits in a queue, so that a tuner that
    reads nothing holds nobody up."""

    def __init__(self, begin: StartStudy) -> None:
        defer_signals(self)
        here, there = socket.socketpair()
        with there:
            try:
                self._process = subprocess.Popen(
                    [*module_command("hvdtune.tuner.process.worker"), str(there.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=2,  # what it says is no part of the launcher's result
                    pass_fds=(there.fileno(),),
                    # Ctrl-C is for the launcher, which then sees to everybody.
                    **process_group(0),
                    env=own_environ() | _ONE_THREAD,
                )
            except OSError as error:
                here.close()
                resume_signals(self)
                raise StudyError(f"cannot start the tuner: {error.strerror}") from None
        # Nothing else ends the wait for the rest of a message that was begun.
        patience = struct.pack("@ll", int(_FROZEN_S), int(_FROZEN_S % 1 * 1e6))
        here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, patience)
        self._connection = Connection(here.detach())
        self._outbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._waiting_since_s = time.monotonic()  # the queue was last seen empty
        self._has_sent = False
        self._gone = threading.Event()
        self._sender = threading.Thread(target=self._send_all, name="hvdtune-tuner", daemon=True)
        self._sender.start()
        self.send(begin)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: object) -> None:
        """Raises _WorkerGone."""
        if self._outbox.empty():
            self._waiting_since_s = time.monotonic()
        timeout_s = _FROZEN_S if self._has_sent else _START_TIMEOUT_S
        if self._gone.is_set() or time.monotonic() - self._waiting_since_s > timeout_s:
            raise _WorkerGone
        self._outbox.put(message)

    def next(self) -> Any:
        """The next message, None if there is none yet.

        Raises _WorkerGone, also when the rest of a message does not come.
        """
        try:
            if not self._connection.poll(0):
                return None
            self._has_sent = True
            return self._connection.recv()
        except (EOFError, OSError):
            raise _WorkerGone from None

    def wait(self, timeout_s: float) -> None:
        """Wait until there is a message, or for the time given. Raises _WorkerGone."""
        try:
            self._connection.poll(timeout_s)
        except OSError:
            raise _WorkerGone from None

    def end(self) -> None:
        """Leaves no process and no thread."""
        try:
            self._end()
        finally:
            resume_signals(self)

    def _end(self) -> None:
        # The tuner sees that nobody is there any more, closes its database and ends.
        with (
            contextlib.suppress(OSError),
            socket.socket(fileno=os.dup(self._connection.fileno())) as wire,
        ):
            wire.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_EXIT_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process.wait()
        self._outbox.put(None)
        self._sender.join()
        self._connection.close()

    def _send_all(self) -> None:
        while (message := self._outbox.get()) is not None:
            try:
                self._connection.send(message)
            except OSError:
                self._gone.set()
                return
