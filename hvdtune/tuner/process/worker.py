"""The tuner's process, which the supervisor starts: `python -m hvdtune.tuner.process.worker FD`."""

from __future__ import annotations

import sys
import traceback
from collections import deque
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any

from hvdtune.core.config.knobs import Setting
from hvdtune.core.job.channel import JobEvent
from hvdtune.errors import HvdtuneError, StudyError
from hvdtune.tuner.controller import AfterVerdict, tune
from hvdtune.tuner.drift_monitor import watch
from hvdtune.tuner.measure.progress import StudyProgress
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


def main(descriptor: int) -> int:
    """Runs one study; ends when the launcher hangs up, whatever it is doing."""
    supervisor = SupervisorConnection(Connection(descriptor))
    try:
        _tune(supervisor)
    except EOFError:
        return 0
    except HvdtuneError as error:
        supervisor.send(FailureMessage(error))
    except Exception as error:
        traceback.print_exc()
        supervisor.send(FailureMessage(StudyError(f"the tuner failed: {error!r}")))
    return 0


def _tune(supervisor: SupervisorConnection) -> None:
    begin = supervisor.receive_begin()
    study = replace(
        begin.study,
        start_job=supervisor.start,
        attached=None if begin.running is None else begin.running.launch,
    )

    def after(training: AfterVerdict) -> None:
        supervisor.send(VerdictMessage(training.verdict, goes_on=True))
        watch(training, lambda setting: supervisor.send(SettingMessage(setting)))

    then = after if begin.options.watch_drift else None
    result = tune(study, begin.run_dir, begin.options, supervisor.tell, after=then)
    if result.job is None or then is None:
        supervisor.send(VerdictMessage(result.verdict, goes_on=result.job is not None))


class SupervisorConnection:
    """The connection to the launcher, which does to the job what it is asked for.

    Used from one thread. Raises EOFError when the launcher has hung up.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._job: _SupervisedJob | None = None
        self._running: RunningLaunch | None = None
        self._replies: deque[Reply] = deque()

    def receive_begin(self) -> StartStudy:
        """The first message."""
        begin = self._connection.recv()
        assert isinstance(begin, StartStudy)
        self._running = begin.running
        return begin

    def start(self, launch: int) -> _SupervisedJob:
        """The job that runs already, the first time; else a new one, as this launch."""
        running, self._running = self._running, None
        # Events of the new job come behind the reply.
        number = self.ask(StartRequest(launch)) if running is None else running.job
        self._job = _SupervisedJob(self, number)
        if running is not None:
            self._job.take(running.formed)
        return self._job

    def ask(self, request: StartRequest | ProposeRequest | TerminateRequest) -> Any:
        """Return the supervisor's reply, or raise the error that it met."""
        self.send(request)
        while not self._replies:
            self.pump(None)
        reply = self._replies.popleft()
        if reply.error is not None:
            raise reply.error
        return reply.value

    def pump(self, timeout_s: float | None) -> None:
        """Takes what has arrived; waits for the first of it as long, None for ever."""
        if not self._connection.poll(timeout_s):
            return
        message = self._connection.recv()
        if isinstance(message, Reply):
            self._replies.append(message)
        elif isinstance(message, JobEventMessage) and self._job is not None:
            self._job.happened(message)

    def send(self, message: object) -> None:
        """Raises EOFError when nobody is there."""
        try:
            self._connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            raise EOFError from None

    def tell(self, progress: StudyProgress) -> None:
        """News for the user."""
        self.send(ProgressMessage(progress))


class _SupervisedJob:
    """The launcher's job, as a RunningJob."""

    def __init__(self, supervisor: SupervisorConnection, number: int) -> None:
        self._supervisor, self._number = supervisor, number
        self._events: deque[JobEvent] = deque()
        self._report: JobExit | None = None

    def take(self, event: JobEvent) -> None:
        self._events.append(event)

    def happened(self, message: JobEventMessage) -> None:
        if message.job != self._number:
            return  # of a job before this one
        if isinstance(message.what, JobExit):
            self._report = message.what
        else:
            self._events.append(message.what)

    def propose(self, setting: Setting) -> int:
        version: int = self._supervisor.ask(ProposeRequest(setting))
        return version

    def next_event(self, timeout_s: float) -> JobEvent | None:
        if not self._events and self._report is None:
            self._supervisor.pump(timeout_s)
        return self._events.popleft() if self._events else None

    def poll(self) -> JobExit | None:
        self._supervisor.pump(0.0)
        return self._report if not self._events else None

    def terminate(self) -> None:
        self._supervisor.ask(TerminateRequest())
        self._events.clear()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
