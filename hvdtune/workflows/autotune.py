"""`hvdtune run --autotune`: a study that goes along with one run of the script."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from hvdtune.cli.messages import complain, tell, warn
from hvdtune.cli.options import RunOptions
from hvdtune.core.config.environment import read_setting
from hvdtune.core.config.knobs import Setting, default_setting, load_knobs
from hvdtune.core.job.interrupt import Stopped, stop_signals
from hvdtune.errors import StudyError, UsageError
from hvdtune.launch.hosts import far_hosts
from hvdtune.launch.run import JobOptions, JobPlan
from hvdtune.tuner.measure.host_load import LocalHost
from hvdtune.tuner.measure.live_run import ExitStatus
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.process.supervisor import TunerSupervisor
from hvdtune.tuner.results.horovod_csv import write_table
from hvdtune.tuner.space.search_space import make_space
from hvdtune.tuner.space.tune_options import TuneOptions, one_run
from hvdtune.tuner.storage.study_store import read_study
from hvdtune.tuner.study import Study
from hvdtune.workflows.fingerprint import fingerprint
from hvdtune.workflows.live_study import Launches
from hvdtune.workflows.output import output_writers
from hvdtune.workflows.rank_traces import Form, write_traces
from hvdtune.workflows.run_folder import RunFolder, RunIdentity, fresh_path
from hvdtune.workflows.search_options import search_options, searched

# Horovod's default.
_TRIALS: Final = 20
# Training goes on meanwhile, so that only the number of trials is a limit unless one is asked for.
_TIME_BUDGET_S: Final = 86400.0


def autotune(options: RunOptions, plan: JobPlan, job_options: JobOptions, setting: Setting) -> int:
    """Runs the script once, tuning it; returns its exit code. Its output is not touched."""
    named = {**read_setting(), **setting}
    search = search_options(options)
    tune_options = one_run(
        options.autotune_bayes_opt_max_samples or _TRIALS,
        time_budget_s=options.time_budget or _TIME_BUDGET_S,
        seed=options.seed,
        # As with Horovod, who names a knob's value has fixed it.
        fixed=tuple(named),
    )
    tune_options = replace(tune_options, **search, watch_drift=not options.no_drift)
    default = default_setting() | named
    hosts = tuple(slot.host for slot in plan.slots)
    tunable, fixed = tune_options.tunable, tune_options.fixed
    make_space(load_knobs(), default, len({*hosts}), tunable, fixed, tune_options.ranges)
    path = options.output_dir or fresh_path(plan.title)
    with ExitStack() as stack:
        stack.enter_context(stop_signals())
        writers = output_writers(options, len(plan.slots), stack)
        identity = RunIdentity(tuple(options.command), hosts, searched(options, default))
        folder = stack.enter_context(RunFolder(path, identity))
        log = _Log(options.autotune_log_file, folder.path)
        tell(f"autotune: run folder {folder.path}")
        record = options.timeline_filename is not None or options.output_dir is not None
        launches = Launches(plan, default, job_options, folder, writers, record=record)
        stack.enter_context(launches)
        study = Study(
            launches.start,
            load_knobs(),
            default,
            len({*hosts}),
            fingerprint(plan, job_options, probe=False),
            host=LocalHost(has_all_ranks=not far_hosts(slot.host for slot in plan.slots)),
            traces=launches.traces,
        )
        try:
            report = _run(launches, study, folder.path, tune_options, log)
            code, reason = report.returncode, report.reason
        except Stopped as stop:
            launches.close()
            code, reason = stop.exit_code, str(stop)
        log.write()
        if reason:
            (complain if code else warn)(reason)
        if launches.job is not None and launches.job.write_error:
            warn(launches.job.write_error)
        if record:
            target = options.timeline_filename or folder.trace
            raw = folder.ranks(launches.number)
            for trace in write_traces(raw, target, Form.of(options)):
                tell(f"trace: {trace}")
    return code


def _run(
    launches: Launches, study: Study, folder: Path, options: TuneOptions, log: _Log
) -> ExitStatus:
    with TunerSupervisor(study, folder, options, log.show) as supervisor:
        try:
            outcome = supervisor.tune()
            tell(f"autotune: {outcome.verdict.text}")
            if outcome.goes_on:
                return supervisor.follow()
        except StudyError as error:
            if launches.job is None:
                raise
            warn(f"autotune: nothing was tuned: {error}")
    assert launches.job is not None
    return launches.job.wait()


class _Log:
    """Says what phase the study is in, and keeps the table of --autotune-log-file up to date."""

    def __init__(self, path: Path | None, folder: Path) -> None:
        self._path, self._folder = path, folder
        self._phase, self._trial = "", 0
        if path is not None:
            try:
                path.touch()
            except OSError as error:
                raise UsageError(f"--autotune-log-file {path}: {error.strerror}") from None

    def show(self, progress: StudyProgress) -> None:
        if progress.message and progress.phase not in ("start", "done"):
            tell(f"autotune: {progress.phase}: {progress.message}")
        if progress.trial != self._trial:
            self._trial = progress.trial
            self.write()

    def write(self) -> None:
        if self._path is None:
            return
        try:
            write_table(read_study(self._folder).trials, self._path)
        except (OSError, StudyError) as error:
            warn(f"autotune: the log was not written: {error}")
            self._path = None
