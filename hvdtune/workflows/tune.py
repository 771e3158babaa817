"""`hvdtune.tune`, `hvdtune run --trials` and `--autotune`: a study of a job in live runs.

Studies that restart the command are in `restart_study.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hvdtune.core.config.knobs import Setting, default_setting
from hvdtune.errors import StudyError, UsageError
from hvdtune.tuner.measure.run import ExitStatus, ScriptFailed, studies_folder, study_folder
from hvdtune.tuner.process.supervisor import TunerSupervisor
from hvdtune.tuner.results.horovod_csv import write_table
from hvdtune.tuner.space.search_space import describe
from hvdtune.tuner.storage.study_reader import STUDY_FILE
from hvdtune.tuner.storage.study_store import read_study
from hvdtune.tuner.study import Study
from hvdtune.workflows.fingerprint import past_winner, warn_of_profile
from hvdtune.workflows.launches import DDP
from hvdtune.workflows.requests import (
    MpiRequest,
    RunRequest,
    StatusReporter,
    StudyRequest,
)
from hvdtune.workflows.results import LaunchResult, StudyResult
from hvdtune.workflows.session import Session
from hvdtune.workflows.studies import (
    RECORDING_MB,
    chosen_share,
    describe_share,
    live_options,
    live_study,
    named_knobs,
    searched,
    start_setting,
)

if TYPE_CHECKING:
    from hvdtune.tuner.measure.progress import StudyProgress
    from hvdtune.tuner.space.tune_options import TuneOptions
    from hvdtune.tuner.storage.study_store import TrialView


def tune(request: RunRequest, reporter: StatusReporter) -> StudyResult | LaunchResult:
    """Run the study that the request asks for; a study in the background has a LaunchResult.

    Raises Stopped for a signal before the verdict, StudyError if nothing can be measured.
    """
    job, study = request.job, request.measurement
    assert isinstance(study, StudyRequest) and not isinstance(job, MpiRequest)
    if job.restart is not None:
        from hvdtune.workflows.restart_study import tune_by_restarting

        return tune_by_restarting(request, job, study, reporter)
    if study.in_background:
        return _tune_in_background(request, study, reporter)
    if job.elastic is None and any(map(_is_of_ddp, named_knobs(study) or ())):
        from hvdtune.workflows.restart_study import tune_in_two_scopes

        part = functools.partial(_tune_live, follows=False)
        return tune_in_two_scopes(request, job, study, reporter, part)
    return _tune_live(request, study, reporter)


def _is_of_ddp(knob: str) -> bool:
    return knob.startswith(DDP)


def _tune_live(
    request: RunRequest, study: StudyRequest, reporter: StatusReporter, *, follows: bool = True
) -> StudyResult:
    """Tune the script and, if `follows`, let it run to its end with the verdict's setting.

    A script of fixed size is started as often as the study needs. An elastic job is started once,
    and each of its memberships is tuned separately.
    """
    with Session(request, reporter) as session:
        default, options, identity = _begin(session, study)
        job, share, is_elastic = session.job, None, session.job.elastic is not None
        session.records = session.output.trace.path is not None or not is_elastic
        if not is_elastic:
            share = chosen_share(study, job, identity, reporter)
        session.open_folder(identity | describe_share(share), continues=not is_elastic)
        session.open_output(default)
        session.open_job(RECORDING_MB)
        tuned = live_study(session, study, default, identity, reporter, share)
        if not is_elastic:
            tuned = _with_first_settings(tuned, study)
        path = session.folder.path
        with TunerSupervisor(tuned, path, options, session.show) as supervisor:
            try:
                outcome = supervisor.tune()
            except StudyError as error:
                session.close_view()
                raise (_failure(session, error) if is_elastic else error) from None
            session.close_view()
            code = 0
            if follows and (outcome.goes_on or is_elastic):
                code = _follow(supervisor, session, default)
        found = session.measured(ended=not follows)
    if is_elastic:
        found["run_dir"] = study_folder(path, outcome.verdict.membership)
    return StudyResult(verdict=outcome.verdict, exit_code=code, **found)


def _begin(session: Session, study: StudyRequest) -> tuple[Setting, TuneOptions, dict[str, Any]]:
    """Return the start setting, the options and the identity of a study in a live run."""
    job, default = session.job, start_setting(session.job)
    options = live_options(job, study, default)
    if job.elastic is None:
        warn_of_profile(job, session.reporter)
    return (
        default,
        options,
        {**searched(study, job, default), "objectives": list(study.objective)},
    )


def _with_first_settings(tuned: Study, study: StudyRequest) -> Study:
    """Return the study that first tries the default without this user's settings.

    Then it tries the result of the nearest other study. A known setting comes before both.
    """
    plain = default_setting()
    near = None if study.ignore_earlier else past_winner(tuned.fingerprint or {})
    if near is None:
        return replace(tuned, first_settings=[plain])
    source = str(near.path.parent) if tuned.known is None else ""
    return replace(tuned, first_settings=[plain, near.profile.setting], near=source)


def _failure(session: Session, error: StudyError) -> StudyError:
    """Wait for the end of an elastic job whose study failed; return the error to report.

    A failure of the script comes first.
    """
    job = session.latest
    if job is None:
        return error
    if job.poll() is None:
        session.reporter.warning(f"the study has ended: {error}; the training continues")
    report = job.wait()
    return ScriptFailed(report.reason, report.returncode) if report.returncode else error


def _follow(supervisor: TunerSupervisor, session: Session, default: Setting) -> int:
    """Let the script run to its end; return its exit code."""
    session.reporter.info("the script continues with this setting to its end")

    def wait() -> Any:
        report: Any = supervisor.follow()
        if not report.returncode or session.job.elastic is not None:
            return report
        setting = supervisor.setting
        under = "the default setting" if setting == default else describe(setting, default)
        return replace(report, reason=f"the script failed under {under}: {report.reason}")

    return session.wait_for_end(wait).returncode


def _tune_in_background(
    request: RunRequest, study: StudyRequest, reporter: StatusReporter
) -> LaunchResult:
    """Run the script once and tune it meanwhile, as Horovod's autotune; its output is untouched."""
    with Session(request, reporter) as session:
        default, options, identity = _begin(session, study)
        session.open_output()
        session.open_folder(identity)
        path = session.folder.path
        is_elastic = session.job.elastic is not None
        trials = functools.partial(_trials_of_memberships if is_elastic else _trials, path)
        log = _TrialLog(study.log_file, trials, reporter)
        session.open_job()
        tuned = live_study(session, study, default, identity)
        try:
            return session.finish(lambda: _to_end(session, tuned, options, log))
        finally:
            log.write()


def _to_end(session: Session, tuned: Study, options: TuneOptions, log: _TrialLog) -> ExitStatus:
    """Tune the script and wait for its end."""
    folder = session.folder
    with TunerSupervisor(tuned, folder.path, options, log.show) as supervisor:
        try:
            outcome = supervisor.tune()
            log.say(outcome.verdict.text)
            log.say(outcome.verdict.in_use)
            if outcome.goes_on:
                return supervisor.follow()
        except StudyError as error:
            if session.latest is None:
                raise
            folder.keep_failure(str(error))
            session.reporter.warning(f"autotune: nothing was tuned: {error}")
    report: ExitStatus = session.latest.wait()
    return report


def _trials(path: Path) -> Sequence[TrialView]:
    return read_study(path).trials


def _trials_of_memberships(path: Path) -> Sequence[TrialView]:
    files = studies_folder(path).glob(f"*/{STUDY_FILE}")
    by_age = sorted(files, key=lambda file: file.stat().st_mtime)
    return [trial for file in by_age for trial in _trials(file.parent)]


class _TrialLog:
    """Reports the progress of a study in the background and writes `--autotune-log-file`."""

    def __init__(
        self,
        path: Path | None,
        trials: Callable[[], Sequence[TrialView]],
        reporter: StatusReporter,
    ) -> None:
        """
        Args:
            path: the table; None: no table is written.
            trials: reads the trials so far; may raise StudyError.

        Raises:
            UsageError: the table cannot be written.
        """
        self._path, self._trials, self._reporter = path, trials, reporter
        self._trial = 0
        if path is not None:
            try:
                path.touch()
            except OSError as error:
                raise UsageError(f"--autotune-log-file {path}: {error.strerror}") from None

    def say(self, text: str) -> None:
        """Report a sentence about the study."""
        self._reporter.info(f"autotune: {text}")

    def show(self, progress: StudyProgress) -> None:
        """Report the phase, and write the table after each trial."""
        if progress.message and progress.phase not in ("start", "done"):
            self.say(f"{progress.phase}: {progress.message}")
        if progress.trial != self._trial:
            self._trial = progress.trial
            self.write()

    def write(self) -> None:
        """Replace the table."""
        if self._path is None:
            return
        try:
            write_table(self._trials(), self._path)
        except (OSError, StudyError) as error:
            self._reporter.warning(f"autotune: the log was not written: {error}")
            self._path = None
