"""A study in a live run, which then goes on with the verdict's setting."""

from __future__ import annotations

from dataclasses import replace

from hvdtune.core.config.environment import read_setting
from hvdtune.core.config.knobs import Setting, default_setting, load_knobs, parse_assignments
from hvdtune.core.job.interrupt import Stopped, stop_signals
from hvdtune.tuner.measure.run import ExitStatus
from hvdtune.tuner.process.supervisor import TunerSupervisor
from hvdtune.tuner.space.search_space import describe
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.study import Study
from hvdtune.workflows.fingerprint import past_winner, warn_of_profile
from hvdtune.workflows.requests import (
    JobRequest,
    OutputRequest,
    StatusReporter,
    StudyRequest,
    TraceRequest,
    report_exit,
)
from hvdtune.workflows.results import StudyResult
from hvdtune.workflows.run_folder import RunIdentity
from hvdtune.workflows.studies import (
    StudyRun,
    chosen_share,
    describe_share,
    form_timeout_s,
    known_of_job,
    live_parts,
    merge_last_launch,
    open_study,
    recorded,
    run_identity,
    search_options,
    searched,
)


def tune(
    job: JobRequest,
    study: StudyRequest,
    trace: TraceRequest,
    output: OutputRequest,
    reporter: StatusReporter,
) -> StudyResult:
    """Runs the study and lets the script go on with its verdict to its end.

    Raises Stopped for a signal before the verdict, StudyError when nothing can be measured.
    """
    warn_of_profile(job, reporter)
    default = default_setting() | read_setting() | job.values.core_setting()
    options = tune_options(job, study, default)
    job = recorded(job)
    identity = {**searched(study, job, default), "objectives": list(study.objectives)}

    with stop_signals():
        share = chosen_share(study, job, identity, reporter)
        parts = live_parts(job, default, identity | describe_share(share), reporter)
        parts = replace(parts, share=share)
        with open_study(parts, job, output, reporter) as run:
            past = run_identity(job, identity) if study.use_earlier else None
            begun = _with_past(run, past, reporter)
            with TunerSupervisor(begun, run.folder.path, options, run.show) as supervisor:
                outcome = supervisor.tune()
                run.close_view()
                code = _follow(supervisor, run, reporter) if outcome.goes_on else 0
            run.launches.close()
            left = merge_last_launch(run, trace, reporter)
    return StudyResult(verdict=outcome.verdict, exit_code=code, **left)


def tune_options(job: JobRequest, study: StudyRequest, default: Setting) -> TuneOptions:
    """The options of a study in a live run. Raises UsageError for what cannot be."""
    keep = study.keep_timelines
    options = TuneOptions(
        **search_options(study),
        trials=study.trials or TuneOptions.trials,
        time_budget_s=study.time_budget_s or TuneOptions.time_budget_s,
        seed=study.seed,
        fixed=tuple(parse_assignments(job.values.fix)),
        form_timeout_s=form_timeout_s(job),
        watch_drift=study.watch_drift,
        use_earlier=study.use_earlier,
        keep_timelines=TuneOptions.keep_timelines if keep is None else keep,
    )
    # Refuses what cannot be searched.
    options.space(load_knobs(), default, len(job.hosts), awaits_script=True)
    return options


def _with_past(run: StudyRun, job: RunIdentity | None, reporter: StatusReporter) -> Study:
    """The study with what earlier ones have come to, where `job` says of which.

    Right after the default comes the one without this user's settings, then what a study like this
    ended with; the same job's setting comes before any search.
    """
    study, folder = run.study, run.folder.path
    plain = default_setting()
    if job is None:
        return replace(study, first_settings=[plain])
    known = study.fingerprint or {}
    earlier = known_of_job(study, folder, job, reporter.info)
    near = past_winner(known)
    if near is None:
        return replace(study, first_settings=[plain], known=earlier)
    source = str(near.path.parent) if earlier is None else ""
    first = [plain, near.profile.setting]
    return replace(study, first_settings=first, near=source, known=earlier)


def _follow(supervisor: TunerSupervisor, run: StudyRun, reporter: StatusReporter) -> int:
    try:
        reporter.info("the script goes on with this setting to its end")
        report = supervisor.follow()
    except Stopped as stop:
        run.launches.close()
        reporter.error(str(stop))
        return stop.exit_code
    report_exit(reporter, report.returncode, _reason(report, supervisor.setting, run))
    return report.returncode


def _reason(report: ExitStatus, setting: Setting, run: StudyRun) -> str:
    """Why the script ended; if it failed, also under which setting."""
    if not report.returncode:
        return report.reason
    default = run.study.default
    under = "the default setting" if setting == default else describe(setting, default)
    return f"the script failed under {under}: {report.reason}"
