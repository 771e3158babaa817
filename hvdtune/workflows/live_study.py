"""`hvdtune run --trials`: a study on a live run, and what it leaves."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import IO, Any, Final, Self

from hvdtune.cli.display import Display, open_display
from hvdtune.cli.messages import complain, tell, warn
from hvdtune.cli.options import RunOptions
from hvdtune.core.config.environment import read_setting
from hvdtune.core.config.knobs import Setting, default_setting, load_knobs, parse_assignments
from hvdtune.core.job.interrupt import Stopped, stop_signals
from hvdtune.errors import HvdtuneError
from hvdtune.launch.hosts import far_hosts
from hvdtune.launch.output import Writer, file_writer
from hvdtune.launch.rank_files import rank_files
from hvdtune.launch.run import Job, JobOptions, JobPlan
from hvdtune.tuner.measure.host_load import LocalHost
from hvdtune.tuner.process.supervisor import TunerSupervisor
from hvdtune.tuner.results.study_report import verdict_document
from hvdtune.tuner.space.search_space import make_space
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.storage.shared_study import SharedStudy
from hvdtune.tuner.study import RawTraces, Study
from hvdtune.workflows.fingerprint import fingerprint, past_winner
from hvdtune.workflows.rank_traces import Form, write_traces
from hvdtune.workflows.run_folder import RunFolder, RunIdentity, fresh_path, latest_unfinished
from hvdtune.workflows.search_options import search_options, searched
from hvdtune.workflows.shared_study import chosen_share, told

# Per rank; the merged trace is about four times as large.
DEFAULT_TIMELINE_MB: Final = 16.0
_LAST_LINES: Final = 8


class Launches:
    """Starts the script again and again; each launch has its own log and, to `record`, raw traces.

    Leaving it leaves no process.
    """

    def __init__(
        self,
        plan: JobPlan,
        setting: Setting,
        options: JobOptions,
        folder: RunFolder,
        writers: list[Writer],
        *,
        record: bool = True,
    ) -> None:
        self._plan, self._setting, self._options = plan, setting, options
        self._folder, self._writers, self._record = folder, writers, record
        self.number = -1
        self.job: Job | None = None
        self._log: IO[bytes] | None = None

    def start(self, number: int) -> Job:
        """The launch of this number. The one before must have ended."""
        self.close()
        self.number = number
        raw = str(self._folder.ranks(self.number) / "rank-%r.hvt") if self._record else ""
        self._log = self._folder.log(self.number).open("ab", buffering=0)
        self.job = Job.start(
            self._plan,
            self._setting,
            replace(self._options, timeline=raw),
            writers=[*self._writers, file_writer(self._log)],
        )
        return self.job

    @property
    def traces(self) -> RawTraces | None:
        """Where the raw traces of a launch lie, if they are recorded."""
        return RawTraces(self._folder.path, len(self._plan.slots)) if self._record else None

    def close(self) -> None:
        """Ends the launch that runs, if any."""
        if self.job is not None:
            self.job.terminate()
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def tune(options: RunOptions, plan: JobPlan, job_options: JobOptions, setting: Setting) -> int:
    """Runs the study and lets the script go on with its verdict; returns the exit code."""
    default = default_setting() | read_setting() | dict(setting)
    fixed = tuple(parse_assignments(options.fix or ()))
    hosts = {slot.host for slot in plan.slots}
    search = search_options(options)
    make_space(load_knobs(), default, len(hosts), search["tunable"], fixed, search["ranges"])
    tune_options = TuneOptions(
        **search,
        trials=options.trials or 0,
        time_budget_s=options.time_budget or TuneOptions.time_budget_s,
        seed=options.seed,
        fixed=fixed,
        form_timeout_s=form_timeout_s(job_options),
        watch_drift=not options.no_drift,
        keep_timelines=(
            TuneOptions.keep_timelines if options.keep_timelines is None else options.keep_timelines
        ),
    )
    job_options = replace(
        job_options, timeline_max_mb=options.timeline_max_mb or DEFAULT_TIMELINE_MB
    )
    with ExitStack() as stack:
        stack.enter_context(stop_signals())
        study = searched(options, default)
        share = chosen_share(options, plan, job_options, study)
        folder = stack.enter_context(open_folder(options, plan, study | told(share)))
        try:
            return _study(options, plan, job_options, folder, default, tune_options, share)
        except Stopped as stop:
            tell(f"the same command continues this study in {folder.path}")
            complain(str(stop))
            return stop.exit_code


def _study(
    options: RunOptions,
    plan: JobPlan,
    job_options: JobOptions,
    folder: RunFolder,
    default: Setting,
    tune_options: TuneOptions,
    share: SharedStudy | None,
) -> int:
    with ExitStack() as screen:
        display = screen.enter_context(open_display(default))
        writers = study_writers(options, display, len(plan.slots), screen)
        with Launches(plan, default, job_options, folder, writers) as launches:
            known = fingerprint(plan, job_options)
            study = Study(
                start_job=launches.start,
                knobs=load_knobs(),
                default=default,
                hosts=len({slot.host for slot in plan.slots}),
                fingerprint=known,
                # What a run without this user's settings has, and what won before.
                first_settings=[default_setting(), *past_winner(known)],
                host=LocalHost(has_all_ranks=not far_hosts(slot.host for slot in plan.slots)),
                traces=launches.traces,
                share=share,
            )
            with TunerSupervisor(study, folder.path, tune_options, display.show) as supervisor:
                outcome = supervisor.tune()
                screen.close()
                code = _follow(supervisor, launches) if outcome.goes_on else 0
    verdict = outcome.verdict
    document = {**verdict_document(verdict), "script_exit_code": code}
    conclude(options, folder, launches, verdict.text, document)
    # A script that fails is what its owner has to know first.
    return code or verdict.exit_code


def form_timeout_s(options: JobOptions) -> float:
    """How long the tuner waits for a job whose ranks may take their time to find each other."""
    return max(TuneOptions.form_timeout_s, options.start_timeout_s + 30)


def study_writers(
    options: RunOptions, display: Display, ranks: int, stack: ExitStack
) -> list[Writer]:
    """Where the ranks' output goes while a study has the terminal."""
    writers: list[Writer] = []
    if options.verbose and options.as_json:
        writers.append(lambda _, text: display.write("stderr", text))
    elif options.verbose:
        writers.append(display.write)
    if options.output_filename is not None:
        writers.append(stack.enter_context(rank_files(options.output_filename, ranks)))
    return writers


def _follow(supervisor: TunerSupervisor, launches: Launches) -> int:
    try:
        tell("the script goes on with this setting to its end")
        report = supervisor.follow()
    except Stopped as stop:
        launches.close()
        complain(str(stop))
        return stop.exit_code
    if report.reason:
        (complain if report.returncode else warn)(report.reason)
    return report.returncode


def conclude(
    options: RunOptions,
    folder: RunFolder,
    launches: Launches,
    verdict: str,
    document: Mapping[str, Any],
    *,
    ended: bool = False,
) -> None:
    """Merges the last launch's trace and says what came of the study.

    With --json the document is all that stdout gets. `ended`: not the script ended the last launch.
    """
    assert launches.job is not None
    if launches.job.write_error:
        warn(launches.job.write_error)
    target = options.timeline_filename or folder.trace
    try:
        raw = folder.ranks(launches.number)
        write_traces(raw, target, Form.of(options), ended=ended)
    except HvdtuneError as error:
        warn(f"no merged trace: {error}")
    page = sys.stderr if options.as_json else sys.stdout
    if not options.verbose:
        print(f"last lines of rank 0 (launch {launches.number}):", file=page)
        for line in launches.job.tail(0)[-_LAST_LINES:]:
            print(f"    {line}", file=page)
    print(f"verdict: {verdict}", file=page)
    for path, meaning in folder.files():
        print(f"    {path}  {meaning}", file=page)
    if options.as_json:
        print(json.dumps({**document, "run": str(folder.path)}))


def open_folder(options: RunOptions, plan: JobPlan, study: Mapping[str, Any]) -> RunFolder:
    """The folder of -o, else of the latest unfinished run of this study, else a new one."""
    hosts = tuple(slot.host for slot in plan.slots)
    identity = RunIdentity(tuple(options.command), hosts, study)
    found = None if options.output_dir else latest_unfinished(identity)
    if found is not None:
        tell(f"continuing the unfinished study in {found} (another one: -o FOLDER)")
    folder = RunFolder(options.output_dir or found or fresh_path(plan.title), identity)
    tell(f"run folder {folder.path}")
    return folder
