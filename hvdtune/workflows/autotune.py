"""A study that goes along with one run of the script, as Horovod's autotune does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hvdtune.core.config.environment import read_setting
from hvdtune.core.config.knobs import default_setting, load_knobs
from hvdtune.core.job.interrupt import Stopped, stop_signals
from hvdtune.errors import StudyError, UsageError
from hvdtune.launcher.run import Job
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.measure.run import ExitStatus
from hvdtune.tuner.process.supervisor import TunerSupervisor
from hvdtune.tuner.results.horovod_csv import write_table
from hvdtune.tuner.space.tune_options import ONE_RUN, TuneOptions
from hvdtune.tuner.storage.study_store import read_study
from hvdtune.tuner.study import Study
from hvdtune.workflows.fingerprint import warn_of_profile
from hvdtune.workflows.launches import Launches, output_writers
from hvdtune.workflows.requests import (
    JobRequest,
    OutputRequest,
    SettingRequest,
    StatusReporter,
    StudyRequest,
    TraceRequest,
    report_exit,
)
from hvdtune.workflows.results import LaunchResult
from hvdtune.workflows.run_folder import RunFolder, fresh_path
from hvdtune.workflows.studies import (
    compose,
    known_of_job,
    live_parts,
    run_identity,
    search_options,
    searched,
)
from hvdtune.workflows.traces import write_traces

if TYPE_CHECKING:
    from hvdtune.core.config.knobs import Setting
    from hvdtune.tuner.stats.verdict import Verdict
    from hvdtune.tuner.storage.study_store import TrialView

# Horovod's default.
_TRIALS: Final = 20
# Training goes on meanwhile, so that only the number of trials is a limit unless one is asked for.
_TIME_BUDGET_S: Final = 86400.0


def autotune(
    job: JobRequest,
    study: StudyRequest,
    trace: TraceRequest,
    output: OutputRequest,
    reporter: StatusReporter,
) -> LaunchResult:
    """Runs the script once and tunes it meanwhile; its output is not touched."""
    warn_of_profile(job, reporter)
    default, options = autotune_options(job.values, study)
    # Refuses what cannot be searched.
    options.space(load_knobs(), default, len(job.hosts), awaits_script=True)
    identity = {**searched(study, job, default), "objectives": list(study.objectives)}
    with ExitStack() as stack:
        stack.enter_context(stop_signals())
        writers = output_writers(output, reporter, len(job.plan.slots), stack)
        path = output.folder or fresh_path(job.plan.title)
        own = run_identity(job, identity)
        folder = stack.enter_context(RunFolder(path, own))
        log = TrialLog(study.log_file, lambda: read_study(folder.path).trials, reporter)
        _tell(f"run folder {folder.path}", reporter)
        record = trace.path is not None or output.folder is not None
        parts = live_parts(job, default, identity)
        launches = stack.enter_context(Launches(parts.starter, folder, writers, record=record))
        tuned = compose(parts, job, launches)
        if options.use_earlier:
            known = known_of_job(tuned, folder.path, own, lambda text: _tell(text, reporter))
            tuned = replace(tuned, known=known)
        run = _TunedLaunch(launches, tuned, folder, options, log, reporter)
        result = run.to_end()
        if record:
            raw, target = folder.ranks(launches.number), trace.path or folder.trace
            result = replace(result, traces=write_traces(raw, target, trace, reporter))
            for written in result.traces:
                reporter.info(f"trace: {written}")
    return result


def autotune_options(values: SettingRequest, study: StudyRequest) -> tuple[Setting, TuneOptions]:
    """What the script starts with, and how it is tuned."""
    named = {**read_setting(), **values.core_setting()}
    options = replace(
        ONE_RUN,
        trials=study.trials or _TRIALS,
        time_budget_s=study.time_budget_s or _TIME_BUDGET_S,
        seed=study.seed,
        fixed=tuple(named),  # as with Horovod, a knob whose value the user names is fixed
        watch_drift=study.watch_drift,
        use_earlier=study.use_earlier,
        **search_options(study),
    )
    return default_setting() | named, options


def tell_verdict(verdict: Verdict, reporter: StatusReporter) -> None:
    """Says it, and what is in use."""
    _tell(verdict.text, reporter)
    _tell(verdict.in_use, reporter)


def _tell(text: str, reporter: StatusReporter) -> None:
    reporter.info(f"autotune: {text}")


def tell_failure(error: StudyError, reporter: StatusReporter) -> None:
    """Says why a script that goes on is not tuned."""
    reporter.warning(f"autotune: nothing was tuned: {error}")


@dataclass(frozen=True)
class _TunedLaunch:
    launches: Launches[Job]
    study: Study
    folder: RunFolder
    options: TuneOptions
    log: TrialLog
    reporter: StatusReporter

    def to_end(self) -> LaunchResult:
        """Tunes the script, then waits for its end."""
        try:
            report = self._tune()
            code, reason, tail = report.returncode, report.reason, tuple(report.tail)
        except Stopped as stop:
            self.launches.close()
            code, reason, tail = stop.exit_code, str(stop), ()
        self.log.write()
        report_exit(self.reporter, code, reason)
        job = self.launches.latest
        if job is not None and job.write_error:
            self.reporter.warning(job.write_error)
        return LaunchResult(code, reason, tail, self.folder.path)

    def _tune(self) -> ExitStatus:
        folder = self.folder.path
        with TunerSupervisor(self.study, folder, self.options, self.log.show) as supervisor:
            try:
                outcome = supervisor.tune()
                tell_verdict(outcome.verdict, self.reporter)
                if outcome.goes_on:
                    return supervisor.follow()
            except StudyError as error:
                if self.launches.latest is None:
                    raise
                self.folder.keep_failure(str(error))
                tell_failure(error, self.reporter)
        assert self.launches.latest is not None
        return self.launches.latest.wait()


class TrialLog:
    """Says what phase the study is in, and keeps the table of --autotune-log-file up to date."""

    def __init__(
        self,
        path: Path | None,
        trials: Callable[[], Sequence[TrialView]],
        reporter: StatusReporter,
    ) -> None:
        """
        Args:
            path: of the table, None for none.
            trials: reads those that there are; may raise StudyError.

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

    def show(self, progress: StudyProgress) -> None:
        """The study has come so far."""
        if progress.message and progress.phase not in ("start", "done"):
            self._reporter.info(f"autotune: {progress.phase}: {progress.message}")
        if progress.trial != self._trial:
            self._trial = progress.trial
            self.write()

    def write(self) -> None:
        """Replaces the table."""
        if self._path is None:
            return
        try:
            write_table(self._trials(), self._path)
        except (OSError, StudyError) as error:
            self._reporter.warning(f"autotune: the log was not written: {error}")
            self._path = None
