"""The tuner's process, which the supervisor starts: `python -m hvdtune.tuner.process.worker FD`."""

from __future__ import annotations

import functools
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from hvdtune.core.config.knobs import Setting
from hvdtune.core.job.channel import Closed, Formed, JobEvent
from hvdtune.errors import HvdtuneError, StudyError
from hvdtune.tuner.controller import AfterVerdict, tune
from hvdtune.tuner.drift_monitor import watch
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.measure.run import (
    MembershipChanged,
    ScriptFailed,
    membership_of,
    study_folder,
)
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
from hvdtune.tuner.results.earlier_studies import past_of
from hvdtune.tuner.results.fingerprint import parse_fingerprint
from hvdtune.tuner.search.known_setting import KnownSetting
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.study import Study

_POLL_S: Final = 0.2


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
    if begin.options.is_elastic:
        _tune_memberships(supervisor, begin)
        return
    study = replace(
        begin.study,
        start_job=supervisor.start,
        attached=None if begin.running is None else begin.running.launch,
    )
    _tune_to_verdict(supervisor, study, begin.run_dir, begin.options)


def _tune_memberships(supervisor: SupervisorConnection, begin: StartStudy) -> None:
    """A study for each membership of an elastic job, until one of them has a verdict."""
    end_s = time.monotonic() + begin.options.time_budget_s
    job = supervisor.start(0)
    formed = _await_ranks(job)
    while True:
        membership = membership_of(formed)
        slots = Counter(rank.host for rank in formed.ranks).values()
        known = {**(begin.study.fingerprint or {}), "slots": sorted(slots, reverse=True)}
        study = replace(
            begin.study,
            start_job=functools.partial(job.again, formed),
            hosts=len(slots),
            fingerprint={**known, "world": len(formed.ranks)},
            membership=membership,
        )
        options = replace(begin.options, time_budget_s=max(0.0, end_s - time.monotonic()))

        def tell(text: str) -> None:
            left_s = max(0.0, end_s - time.monotonic())
            supervisor.tell(
                StudyProgress(
                    "start", trials=begin.options.trials, seconds_left=left_s, message=text
                )
            )

        folder = study_folder(begin.run_dir, membership)
        study = replace(study, known=_known_of(study, begin.run_dir, folder, tell))
        try:
            _tune_to_verdict(supervisor, study, folder, options)
            return
        except MembershipChanged as change:
            formed = change.formed
            text = f"{change}: measuring noise and settings again for these ranks"
        tell(text)


def _known_of(
    study: Study, run_dir: Path, folder: Path, tell: Callable[[str], None]
) -> KnownSetting | None:
    """What earlier runs of the job have ended with on the ranks that there are now."""
    if study.earlier is None:
        return None
    here = parse_fingerprint(study.fingerprint or {})
    run, parents = study.earlier.run, study.earlier.parents
    past = past_of(run, here, parents, run_dir, inside=folder.relative_to(run_dir))
    if past.refused:
        tell(f"{past.refused}; its results are not reused")
    return past.known


def _await_ranks(job: _SupervisedJob) -> Formed:
    while (report := job.poll()) is None:
        if isinstance(event := job.next_event(_POLL_S), Formed):
            return event
    if report.returncode:
        reason = report.reason or f"the script failed with exit code {report.returncode}"
        raise ScriptFailed(f"{reason} before it could be measured", report.returncode)
    raise StudyError("the script ended without calling hvd.init()")


def _tune_to_verdict(
    supervisor: SupervisorConnection, study: Study, run_dir: Path, options: TuneOptions
) -> None:
    def after(training: AfterVerdict) -> None:
        supervisor.send(VerdictMessage(training.verdict, goes_on=True))
        watch(training, lambda setting: supervisor.send(SettingMessage(setting)))

    then = after if options.watch_drift else None
    result = tune(study, run_dir, options, supervisor.tell, after=then)
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
            if running.formed is not None:
                self._job.take(running.formed)
            if running.has_closed:
                self._job.take(Closed())
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
        self._formed = 0  # how often, as far as was read

    def again(self, formed: Formed, launch: int) -> _SupervisedJob:
        """This job, for whoever has yet to hear how it was formed last."""
        del launch
        self._events.appendleft(formed)
        self._formed -= 1
        return self

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
        version: int = self._supervisor.ask(ProposeRequest(setting, self._formed))
        return version

    def next_event(self, timeout_s: float) -> JobEvent | None:
        if not self._events and self._report is None:
            self._supervisor.pump(timeout_s)
        event = self._events.popleft() if self._events else None
        self._formed += isinstance(event, Formed)
        return event

    def poll(self) -> JobExit | None:
        self._supervisor.pump(0.0)
        return self._report if not self._events else None

    def terminate(self) -> None:
        self._supervisor.ask(TerminateRequest())
        self._events.clear()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
