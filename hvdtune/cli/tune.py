"""`hvdtune run --trials`: a study on a live run, and what it leaves."""

from __future__ import annotations

import os
import platform
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import IO, Any, Final, Self

import hvdtune
from hvdtune.cli.display import open_display
from hvdtune.cli.folder import RunFolder, RunIdentity, fresh_path, latest_unfinished
from hvdtune.cli.messages import complain, tell, warn
from hvdtune.cli.options import RunOptions
from hvdtune.cli.share import chosen_share
from hvdtune.cli.trace import write_traces
from hvdtune.core.config import read_setting
from hvdtune.core.knobs import Setting, default_setting, load_knobs, parse_assignments
from hvdtune.errors import HvdtuneError
from hvdtune.launch.interrupt import Stopped, stop_signals
from hvdtune.launch.output import Writer, file_writer
from hvdtune.launch.rank_files import rank_files
from hvdtune.launch.run import Job, JobOptions, JobPlan
from hvdtune.tuner.controller import Study
from hvdtune.tuner.controller import tune as run_study
from hvdtune.tuner.database import shown_url
from hvdtune.tuner.options import TuneOptions
from hvdtune.tuner.pairs import read_pairs
from hvdtune.tuner.share import Share
from hvdtune.tuner.space import make_space
from hvdtune.tuner.store import PAIRS_FILE

# Per rank; the merged trace is about four times as large.
_DEFAULT_TIMELINE_MB: Final = 16.0
_LAST_LINES: Final = 8


class Launches:
    """Starts the script again and again; each launch has its own log and, to `record`, raw traces.

    Leaving it leaves no process. Launches are numbered as the tuner numbers them.
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
        pairs = read_pairs(folder.path / PAIRS_FILE)
        self.number = max((pair.launch for pair in pairs), default=-1)
        self.job: Job | None = None
        self._log: IO[bytes] | None = None

    def start(self) -> Job:
        """The next launch. The one before must have ended."""
        self.close()
        self.number += 1
        raw = str(self._folder.ranks(self.number) / "rank-%r.hvt") if self._record else ""
        self._log = self._folder.log(self.number).open("ab", buffering=0)
        self.job = Job.start(
            self._plan,
            self._setting,
            replace(self._options, timeline=raw),
            writers=[*self._writers, file_writer(self._log)],
        )
        return self.job

    def close(self) -> None:
        """Ends the launch that runs, if any."""
        if self.job is not None:
            self.job.terminate()
        if self._log is not None:
            self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def tune(options: RunOptions, plan: JobPlan, job_options: JobOptions, setting: Setting) -> int:
    """Runs the study and lets the script go on with its verdict; returns the exit code."""
    default = default_setting() | read_setting() | dict(setting)
    tunable = options.knobs.split(",") if options.knobs else None
    fixed = tuple(parse_assignments(options.fix or ()))
    hosts = {slot.host for slot in plan.slots}
    make_space(load_knobs(), default, len(hosts), tunable, fixed)
    tune_options = TuneOptions(
        trials=options.trials or 0,
        time_budget_s=options.time_budget or TuneOptions.time_budget_s,
        seed=options.seed,
        tunable=None if tunable is None else tuple(tunable),
        fixed=fixed,
        form_timeout_s=max(TuneOptions.form_timeout_s, job_options.start_timeout_s + 30),
        keep_timelines=(
            TuneOptions.keep_timelines if options.keep_timelines is None else options.keep_timelines
        ),
    )
    share = chosen_share(options, plan, job_options, default)
    job_options = replace(
        job_options, timeline_max_mb=options.timeline_max_mb or _DEFAULT_TIMELINE_MB
    )
    with ExitStack() as stack:
        stack.enter_context(stop_signals())
        folder = stack.enter_context(_open_folder(options, plan, default, share))
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
    share: Share | None,
) -> int:
    with ExitStack() as screen:
        display = screen.enter_context(open_display(default))
        writers: list[Writer] = [display.write] if options.verbose else []
        if options.output_filename is not None:
            ranks = len(plan.slots)
            writers.append(screen.enter_context(rank_files(options.output_filename, ranks)))
        with Launches(plan, default, job_options, folder, writers) as launches:
            study = Study(
                start_job=launches.start,
                knobs=load_knobs(),
                default=default,
                hosts=len({slot.host for slot in plan.slots}),
                fingerprint=fingerprint(plan),
                share=share,
            )
            result = run_study(study, folder.path, tune_options, display.show)
            screen.close()
            code = _follow(launches) if result.job is not None else 0
    _conclude(options, folder, launches, result.verdict.text)
    return code


def _follow(launches: Launches) -> int:
    assert launches.job is not None
    try:
        tell("the script goes on with this setting to its end")
        report = launches.job.wait()
    except Stopped as stop:
        launches.close()
        complain(str(stop))
        return stop.exit_code
    if report.reason:
        (complain if report.returncode else warn)(report.reason)
    return report.returncode


def _conclude(options: RunOptions, folder: RunFolder, launches: Launches, verdict: str) -> None:
    assert launches.job is not None
    if launches.job.write_error:
        warn(launches.job.write_error)
    target = options.timeline_filename or folder.trace
    try:
        write_traces(folder.ranks(launches.number), target)
    except HvdtuneError as error:
        warn(f"no merged trace: {error}")
    if not options.verbose:
        print(f"last lines of rank 0 (launch {launches.number}):")
        for line in launches.job.tail(0)[-_LAST_LINES:]:
            print(f"    {line}")
    print(f"verdict: {verdict}")
    for path, meaning in folder.files():
        print(f"    {path}  {meaning}")


def _open_folder(
    options: RunOptions, plan: JobPlan, default: Setting, share: Share | None
) -> RunFolder:
    study: dict[str, Any] = {
        "default": dict(default),
        "knobs": options.knobs,
        "fix": sorted(options.fix or ()),
    }
    if share is not None:
        study |= {"storage": shown_url(share.url), "name": share.study}
    hosts = tuple(slot.host for slot in plan.slots)
    identity = RunIdentity(tuple(options.command), hosts, study)
    found = None if options.output_dir else latest_unfinished(identity)
    if found is not None:
        tell(f"continuing the unfinished study in {found} (another one: -o FOLDER)")
    folder = RunFolder(options.output_dir or found or fresh_path(plan.title), identity)
    tell(f"run folder {folder.path}")
    if share is not None:
        tell(f"study {share.study} in {shown_url(share.url)}")
    return folder


def fingerprint(plan: JobPlan) -> dict[str, Any]:
    """What a profile says of where it was measured."""
    return {
        "hvdtune": hvdtune.__version__,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "command": list(plan.command),
    }
