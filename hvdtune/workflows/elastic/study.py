"""A study in an elastic job, which then goes on with the verdict's setting."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

import hvdtune
from hvdtune.core.config.environment import read_setting
from hvdtune.core.config.knobs import Setting, default_setting, load_knobs, parse_assignments
from hvdtune.core.job.child_command import of_ranks
from hvdtune.core.job.interrupt import Stopped, stop_signals
from hvdtune.core.rank.affinity import usable_processors
from hvdtune.errors import StudyError
from hvdtune.launcher.elastic.discovery import Discovery
from hvdtune.launcher.elastic.job import ElasticJob
from hvdtune.launcher.hosts import remote_hosts
from hvdtune.launcher.output import Writer
from hvdtune.launcher.rank_files import worker_files
from hvdtune.tuner.measure.host_load import LocalHost
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.measure.run import RunningJob, ScriptFailed, study_folder
from hvdtune.tuner.process.supervisor import TunerSupervisor, no_job
from hvdtune.tuner.space.tune_options import ONE_RUN, TuneOptions
from hvdtune.tuner.study import EarlierRuns, Study
from hvdtune.workflows.elastic.launch import discovery_of, make_job
from hvdtune.workflows.elastic.records import JobRecords
from hvdtune.workflows.fingerprint import installed_frameworks
from hvdtune.workflows.launch import finish_traces
from hvdtune.workflows.requests import (
    ElasticRequest,
    OutputRequest,
    ProgressView,
    StatusReporter,
    StudyRequest,
    TraceRequest,
    report_exit,
)
from hvdtune.workflows.results import StudyResult
from hvdtune.workflows.run_folder import RUNS, fresh_path
from hvdtune.workflows.studies import search_options, searched

# Hosts may come, and with several of them more knobs can be searched.
_HOSTS_AT_MOST: Final = 2


def tune_elastic(
    request: ElasticRequest,
    study: StudyRequest,
    trace: TraceRequest,
    output: OutputRequest,
    reporter: StatusReporter,
) -> StudyResult:
    """Runs the job to its end and tunes it meanwhile, with each membership by itself. Its ranks
    record where a trace is asked for, which is merged at the end.

    Raises as a job without a study does, Stopped for a signal before the verdict, and StudyError
    when nothing can be measured; the job has ended then, too.
    """
    default = default_setting() | read_setting() | request.values.core_setting()
    options = elastic_options(_options(request, study), default)
    searches = {**searched(study, request, default), "objectives": list(study.objectives)}
    with ExitStack() as stack:
        stack.enter_context(stop_signals())
        path = output.folder or fresh_path(request.words[0])
        records = JobRecords(request, path, searches, reporter.warning, stack)
        reporter.info(f"run folder {path}")
        view = stack.enter_context(ExitStack())
        shown = view.enter_context(reporter.progress(default))
        raw = records.ranks() if trace.path is not None else None
        writers = [records.log_writer(), *([shown.write] if output.verbose else [])]
        if output.rank_files is not None:
            writers.append(stack.enter_context(worker_files(output.rank_files)))

        def say(text: str) -> None:
            shown.write("stderr", f"hvdtune: {text}\n".encode())

        tuned = tuned_job(request, default, options, records, writers, say, raw, stack)
        try:
            result = tuned.to_end(shown, view, reporter)
        except Stopped:
            view.close()
            reporter.info(f"the same command with -o {path} continues this study")
            raise
        for sentence in tuned.job.account.sentences():
            reporter.info(sentence)
        if raw is not None and trace.path is not None:
            kept = replace(output, folder=path)
            result = replace(result, traces=finish_traces(raw, trace.path, trace, kept, reporter))
    return result


def elastic_options(options: TuneOptions, default: Setting) -> TuneOptions:
    """The options for an elastic job. Raises UsageError for what cannot be searched."""
    options = replace(options, is_elastic=True, keep_timelines=0)
    options.space(load_knobs(), default, _HOSTS_AT_MOST)
    return options


def tuned_job(
    request: ElasticRequest,
    default: Setting,
    options: TuneOptions,
    records: JobRecords,
    writers: list[Writer],
    say: Callable[[str], None],
    raw: Path | None,
    stack: ExitStack,
) -> TunedJob:
    """The job, which ends with the stack at the latest; its ranks record in `raw`.

    Raises as a job without a study does.
    """
    discovery = discovery_of(request, say)
    stack.callback(discovery.close)
    job = make_job(request, default, discovery, writers, say, records, raw)
    stack.callback(records.keep, job)
    stack.enter_context(job)
    path = records.folder.path
    earlier = EarlierRuns(records.identity.to_json(), (RUNS, path.parent))
    tuned = _study(request, default, discovery)
    if options.use_earlier:
        tuned = replace(tuned, earlier=earlier)
    return TunedJob(job, tuned, path, options)


class TunedJob:
    """The job as the tuner starts it: once."""

    def __init__(self, job: ElasticJob, study: Study, folder: Path, options: TuneOptions) -> None:
        self.job, self._folder, self._options = job, folder, options
        self._study = replace(study, start_job=self._start)
        self.has_started = False

    def _start(self, launch: int) -> RunningJob:
        del launch
        self.has_started = True
        return self.job

    def supervisor(self, show: Callable[[StudyProgress], None]) -> TunerSupervisor:
        """Of its study, which shows how far that has come."""
        return TunerSupervisor(self._study, self._folder, self._options, show)

    def to_end(self, shown: ProgressView, view: ExitStack, reporter: StatusReporter) -> StudyResult:
        """The verdict, when the job has ended."""
        with self.supervisor(shown.show) as supervisor:
            try:
                outcome = supervisor.tune()
            except StudyError as error:
                view.close()
                raise self._failure(error, reporter) from None
            view.close()
            code, tail, rank = self._follow(supervisor, reporter)
        if self.job.write_error:
            reporter.warning(self.job.write_error)
        return StudyResult(
            verdict=outcome.verdict,
            exit_code=code,
            run_dir=study_folder(self._folder, outcome.verdict.membership),
            tail=tail,
            tail_rank=rank,
        )

    def _failure(self, error: StudyError, reporter: StatusReporter) -> StudyError:
        """How the job ended whose study did: a script that fails is what its owner has to know."""
        if not self.has_started:
            return error
        if self.job.poll() is None:
            reporter.warning(f"the study has ended: {error}; the training goes on")
        report = self.job.wait()
        return ScriptFailed(report.reason, report.returncode) if report.returncode else error

    def _follow(
        self, supervisor: TunerSupervisor, reporter: StatusReporter
    ) -> tuple[int, tuple[str, ...], int]:
        """How the job ends: its exit code, and the last lines of which rank."""
        try:
            supervisor.follow()
            report = self.job.wait()
        except Stopped as stop:
            self.job.terminate()
            reporter.error(str(stop))
            return stop.exit_code, (), 0
        report_exit(reporter, report.returncode, report.reason)
        return report.returncode, report.tail, report.rank


def _options(request: ElasticRequest, study: StudyRequest) -> TuneOptions:
    return replace(
        ONE_RUN,
        **search_options(study),
        trials=study.trials or TuneOptions.trials,
        time_budget_s=study.time_budget_s or TuneOptions.time_budget_s,
        seed=study.seed,
        fixed=tuple(parse_assignments(request.values.fix)),
        watch_drift=study.watch_drift,
        use_earlier=study.use_earlier,
    )


def _study(request: ElasticRequest, default: Setting, discovery: Discovery) -> Study:
    """What is tuned, but for what the tuner learns when ranks have come: who they are."""
    python = of_ranks()
    frameworks = installed_frameworks() if python.frameworks is None else python.frameworks
    known = {
        "cores": usable_processors(),
        "hvdtune": hvdtune.__version__,
        "python": python.version,
        "frameworks": dict(frameworks),
        "command": list(request.command),
    }
    has_all_ranks = discovery.is_fixed and not remote_hosts(discovery.found)
    return Study(
        start_job=no_job,
        knobs=load_knobs(),
        default=default,
        fingerprint=known,
        first_settings=[default_setting()],  # what the job has without this user's settings
        host=LocalHost(has_all_ranks=has_all_ranks),
    )
