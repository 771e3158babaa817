"""A study that goes along with an elastic job, as `hvdtune.workflows.autotune` does with others."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from hvdtune.core.job.interrupt import Stopped, stop_signals
from hvdtune.errors import StudyError
from hvdtune.tuner.measure.run import studies_folder
from hvdtune.tuner.storage.study_reader import STUDY_FILE
from hvdtune.tuner.storage.study_store import TrialView, read_study
from hvdtune.workflows.autotune import TrialLog, autotune_options, tell_failure, tell_verdict
from hvdtune.workflows.elastic.records import JobRecords
from hvdtune.workflows.elastic.study import TunedJob, elastic_options, tuned_job
from hvdtune.workflows.launch import finish_traces
from hvdtune.workflows.launches import output_writers
from hvdtune.workflows.requests import (
    ElasticRequest,
    OutputRequest,
    StatusReporter,
    StudyRequest,
    TraceRequest,
    report_exit,
)
from hvdtune.workflows.results import LaunchResult
from hvdtune.workflows.run_folder import fresh_path
from hvdtune.workflows.studies import searched


def autotune_elastic(
    request: ElasticRequest,
    study: StudyRequest,
    trace: TraceRequest,
    output: OutputRequest,
    reporter: StatusReporter,
) -> LaunchResult:
    """Runs the job to its end and tunes each membership meanwhile; its output is not touched.

    Raises as `launch_elastic` does, and UsageError for what cannot be searched.
    """
    default, options = autotune_options(request.values, study)
    options = elastic_options(options, default)
    searches = {**searched(study, request, default), "objectives": list(study.objectives)}
    with ExitStack() as stack:
        stack.enter_context(stop_signals())
        writers = output_writers(output, reporter, None, stack)
        path = output.folder or fresh_path(request.words[0])
        records = JobRecords(request, path, searches, reporter.warning, stack)
        log = TrialLog(study.log_file, lambda: _trials(path), reporter)
        reporter.info(f"autotune: run folder {path}")
        is_recorded = trace.path is not None or output.folder is not None
        raw = records.ranks() if is_recorded else None
        writers.append(records.log_writer())
        tuned = tuned_job(request, default, options, records, writers, reporter.info, raw, stack)
        result = _to_end(tuned, log, reporter)
        if tuned.job.write_error:
            reporter.warning(tuned.job.write_error)
        for sentence in tuned.job.account.sentences():
            reporter.info(sentence)
        report_exit(reporter, result.exit_code, result.reason)
        if raw is not None:
            target = trace.path or records.folder.trace
            kept = replace(output, folder=path)
            result = replace(result, traces=finish_traces(raw, target, trace, kept, reporter))
    return replace(result, run_dir=path)


def _to_end(tuned: TunedJob, log: TrialLog, reporter: StatusReporter) -> LaunchResult:
    try:
        with tuned.supervisor(log.show) as supervisor:
            try:
                tell_verdict(supervisor.tune().verdict, reporter)
                supervisor.follow()
            except StudyError as error:
                if not tuned.has_started:
                    raise
                tell_failure(error, reporter)
        report = tuned.job.wait()
    except Stopped as stop:
        tuned.job.terminate()
        return LaunchResult(stop.exit_code, str(stop))
    finally:
        log.write()
    return LaunchResult(report.returncode, report.reason, report.tail)


def _trials(path: Path) -> list[TrialView]:
    """Those of all memberships; of the one that was measured last at the end."""
    files = sorted(
        studies_folder(path).glob(f"*/{STUDY_FILE}"), key=lambda file: file.stat().st_mtime
    )
    return list(itertools.chain.from_iterable(read_study(file.parent).trials for file in files))
