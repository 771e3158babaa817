"""`hvdtune.launch`, `tune`, `verify` and `load_trace`: the workflows with plain arguments."""

from __future__ import annotations

import contextlib
import inspect
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hvdtune import workbench
from hvdtune.core.job.interrupt import Stopped
from hvdtune.errors import UsageError
from hvdtune.launcher.hosts import parse_hosts, this_host
from hvdtune.launcher.jobs import check_variables, plan_job, rank_options
from hvdtune.streams import open_missing_streams
from hvdtune.workflows.arguments import check_arguments
from hvdtune.workflows.requests import (
    ComparisonRequest,
    JobRequest,
    OutputRequest,
    RunRequest,
    SettingRequest,
    StudyRequest,
    TraceRequest,
)

if TYPE_CHECKING:
    from hvdtune.core.config.knobs import Setting
    from hvdtune.timeline.model.trace import Trace
    from hvdtune.tuner.measure.progress import StudyProgress
    from hvdtune.tuner.space.tune_options import SamplerName
    from hvdtune.workflows.results import ComparisonResult, LaunchResult, StudyResult

Script = str | Path | Sequence[str | Path]
File = str | Path


def launch(
    script: Script,
    *,
    ranks: int | None = None,
    hosts: str | None = None,
    profile: File | None = None,
    setting: Setting | None = None,
    env: Mapping[str, str] | None = None,
    trace: File | None = None,
    run_dir: File | None = None,
    verbose: bool = False,
) -> LaunchResult:
    """Run a script on several processes and wait for its end, as `hvdtune run` does.

    A failing script raises nothing: see `exit_code`, `reason` and `tail` of the result.

    Args:
        script: a script, or a command as a list of words: `["train.py", "--lr", "0.1"]`.
        ranks: number of processes; None: all slots of `hosts`, else one. More than 64 ranks that
            are also more than 16 per processor need `hosts`, as in "localhost:100".
        hosts: hosts and their slots, as in "a:2,b:2"; None: this host.
        profile: a profile.yaml whose setting the job uses.
        setting: values of knobs by name, as in `{"cycle_time_ms": 2.0}`; they replace those of
            the profile.
        env: variables for the ranks, in addition to this process's environment.
        trace: a file for the timeline of all ranks; None: no trace, unless `run_dir` is given.
        run_dir: a folder for logs and the trace.
        verbose: prints the ranks' output and process ids; False prints nothing.

    Raises:
        UsageError: an argument is invalid.
        LaunchError: a process could not be started.
        KeyboardInterrupt: Ctrl-C or SIGTERM; the ranks have ended.
    """
    from hvdtune.workflows.launch import launch as run

    check_arguments(profile=profile, setting=setting, trace=trace, run_dir=run_dir)
    values = _values(profile, setting)
    job = _job(script, ranks, hosts, values, env)
    values.core_setting()
    output = OutputRequest(_path(run_dir), verbose=verbose, trace=TraceRequest(_path(trace)))
    with _interruptible():
        return run(RunRequest(job, None, output), CallerReporter(verbose=verbose))


def tune(
    script: Script,
    *,
    ranks: int | None = None,
    hosts: str | None = None,
    trials: int = 40,
    time_budget_s: float = 480.0,
    knobs: Sequence[str] | None = None,
    setting: Setting | None = None,
    space: File | None = None,
    objectives: Sequence[str] = ("step_time",),
    sampler: SamplerName | None = None,
    seed: int = 0,
    ignore_earlier: bool = False,
    env: Mapping[str, str] | None = None,
    run_dir: File | None = None,
    verbose: bool = False,
) -> StudyResult:
    """Search for a faster setting while a script runs, and verify it on fresh pairs.

    As with `hvdtune run --trials`, the script is started as often as the study needs. The last
    launch runs to its end with the verdict's setting. An unfinished study of the same kind in
    `run_dir` is continued.

    Args:
        script: as for `launch`, like `ranks`, `hosts` and `env`.
        trials: number of settings to try.
        time_budget_s: most seconds of the study, including the verification.
        knobs: names of the knobs to search; None: all that can change in a live run.
        setting: values of knobs that the job starts with and that are not searched.
        space: a YAML file with the range or the choices of knobs.
        objectives: "step_time", "samples_per_s", "exposed_communication" or "cpu_time"; with
            several, the improvement of the first is verified.
        sampler: the algorithm that proposes settings; None: chosen by the number of objectives.
        seed: seed of the search.
        ignore_earlier: ignore results of earlier launches of this job.
        run_dir: the run folder; None: the folder of the latest unfinished study of this script,
            else runs/SCRIPT-TIME.
        verbose: prints progress and the ranks' output; False prints nothing.

    Raises:
        UsageError: an argument is invalid, or `run_dir` contains the run of another command.
        StudyError: the script cannot be measured, or the study cannot be stored.
        LaunchError: a process could not be started.
        KeyboardInterrupt: Ctrl-C or SIGTERM; the same call continues the study.
    """
    workbench.require("hvdtune.tune")
    from hvdtune.workflows.results import StudyResult
    from hvdtune.workflows.tune import tune as run

    check_arguments(
        trials=trials,
        time_budget_s=time_budget_s,
        knobs=knobs,
        setting=setting,
        space=space,
        objectives=objectives,
        sampler=sampler,
        seed=seed,
        run_dir=run_dir,
    )
    job = _job(script, ranks, hosts, _values(None, setting), env)
    study = StudyRequest(
        trials=trials,
        time_budget_s=time_budget_s,
        seed=seed,
        knobs=None if knobs is None else tuple(knobs),
        space=_path(space),
        objective=tuple(objectives),
        sampler=sampler,
        ignore_earlier=ignore_earlier,
    )
    output = OutputRequest(_path(run_dir), verbose=verbose)
    with _interruptible():
        result = run(RunRequest(job, study, output), CallerReporter(verbose=verbose))
    assert isinstance(result, StudyResult)
    return result


def verify(
    script: Script,
    *,
    b: File | Setting | None = None,
    a: File | Setting | None = None,
    ranks: int | None = None,
    hosts: str | None = None,
    pairs: int | None = None,
    time_budget_s: float | None = None,
    setting: Setting | None = None,
    seed: int = 0,
    env: Mapping[str, str] | None = None,
    run_dir: File | None = None,
    verbose: bool = False,
) -> ComparisonResult:
    """Compare a script's speed with settings A and B, as `hvdtune verify` does.

    Without `b`, A is compared with itself, as `hvdtune aa` does. The verdict is then a NoiseFloor:
    the difference between A and itself on this machine. The script is ended after the last pair.

    Args:
        script: as for `launch`, like `ranks`, `hosts` and `env`.
        b: setting B: values of knobs by name, or the file of a profile, a verdict.json or lines of
            `knob: value`; None: A against itself.
        a: setting A, like `b`; None: the default setting.
        pairs: number of pairs, at least 6; None: enough to detect a gain of 1 %, 20 to 120.
        time_budget_s: most seconds of the measurement; None: no limit.
        setting: values of knobs that A and B do not name.
        seed: seed of the order of the pairs.
        run_dir: as for `tune`.
        verbose: as for `tune`.

    Raises:
        As `tune` does.
    """
    workbench.require("hvdtune.verify")
    from hvdtune.workflows.compare import compare

    check_arguments(
        a=a, b=b, pairs=pairs, time_budget_s=time_budget_s, setting=setting, seed=seed,
        run_dir=run_dir,
    )  # fmt: skip
    job = _job(script, ranks, hosts, _values(None, setting), env)
    first, second = (Path(each) if isinstance(each, str) else each for each in (a, b))
    request = ComparisonRequest(first, second, None, pairs, time_budget_s, seed)
    output = OutputRequest(_path(run_dir), verbose=verbose)
    with _interruptible():
        return compare(RunRequest(job, request, output), CallerReporter(verbose=verbose))


def load_trace(*paths: File) -> Trace:
    """Load files of any format, folders of recordings and run folders into one trace.

    `events` of the result is a DataFrame with one row per event; times are in nanoseconds. Data
    that could not be read is listed in `warnings` of the result; each is also a UserWarning.

    Raises:
        UsageError: a path does not exist, or two files are of the same rank.
        TraceFormatError: a file is not a trace.
    """
    workbench.require("hvdtune.load_trace")
    from hvdtune.workflows.traces import load_trace as load

    if not paths:
        raise UsageError("hvdtune.load_trace needs the path of a trace")
    for path in paths:
        check_arguments(path=path)
    trace = load([Path(path) for path in paths])
    for text in trace.warnings:
        warnings.warn(text, stacklevel=2)
    return trace


def _job(
    script: Script,
    ranks: int | None,
    hosts: str | None,
    values: SettingRequest,
    env: Mapping[str, str] | None,
) -> JobRequest:
    check_arguments(script=script, ranks=ranks, hosts=hosts)
    check_variables(env)
    open_missing_streams()  # before files are opened, which the ranks inherit
    words = [script] if isinstance(script, str | Path) else list(script)
    places = this_host(ranks or 1) if hosts is None else parse_hosts(hosts)
    plan = plan_job([str(word) for word in words], places, ranks)
    options = rank_options(plan.slots, env or {})
    return JobRequest(tuple(str(word) for word in words), plan, options, values)


def _values(profile: File | None, setting: Setting | None) -> SettingRequest:
    fix = tuple(f"{name}={value}" for name, value in (setting or {}).items())
    return SettingRequest(_path(profile), fix=fix)


def _path(path: File | None) -> Path | None:
    return None if path is None else Path(path)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except Stopped as stop:
        # IPython and Python's own exit handle only this class.
        raise KeyboardInterrupt(str(stop)) from None


class CallerReporter:
    """Issues Python warnings; prints everything else if it is `verbose`.

    The warnings point at the line that called the function which makes this reporter.
    """

    def __init__(self, *, verbose: bool) -> None:
        self._verbose = verbose
        # Warnings come from any depth and from other threads, whose stacks lack the caller.
        frame = inspect.currentframe()
        for _ in range(2):
            frame = frame.f_back if frame is not None else None
        self._file = "<unknown>" if frame is None else frame.f_code.co_filename
        self._line = 0 if frame is None else frame.f_lineno
        self._globals = {} if frame is None else frame.f_globals

    def info(self, text: str) -> None:
        if self._verbose:
            print(f"hvdtune: {text}", file=sys.stderr, flush=True)

    error = info  # the result or an exception contains it

    def warning(self, text: str) -> None:
        warnings.warn_explicit(
            text,
            UserWarning,
            self._file,
            self._line,
            module=self._globals.get("__name__"),
            registry=self._globals.setdefault("__warningregistry__", {}),
        )

    def write(self, stream: str, text: bytes) -> None:
        if self._verbose:
            file = sys.stdout if stream == "stdout" else sys.stderr
            print(text.decode(errors="replace"), end="", file=file, flush=True)

    def show(self, progress: StudyProgress) -> None:
        if progress.message:
            self.info(f"{progress.phase}: {progress.message}")

    @contextlib.contextmanager
    def progress(self, default: Setting) -> Iterator[CallerReporter]:
        del default
        yield self
