"""A study in two scopes: hvdtune's knobs in a live run, then DDP's arguments by restarting.

Each pair of the second part is two launches: of the script as it is, and of a setting that may have
what the live run ended with and other buckets. So the verdict is one on all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from hvdtune.core.config.environment import read_setting, storage_url
from hvdtune.core.config.knobs import (
    Setting,
    Value,
    default_setting,
    load_knobs,
    parse_assignments,
)
from hvdtune.core.job.interrupt import Stopped, stop_signals
from hvdtune.errors import StudyError, UsageError
from hvdtune.launcher.measured import MeasuredJob
from hvdtune.tuner.process.supervisor import TunerSupervisor
from hvdtune.tuner.results.profile import read_profile
from hvdtune.tuner.search.samplers import default_sampler
from hvdtune.tuner.space.search_space import ALL_SCOPES, KnobRange, describe
from hvdtune.tuner.space.tune_options import BY_RESTARTING, TuneOptions
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.workflows import live_study
from hvdtune.workflows.launches import DDP
from hvdtune.workflows.requests import (
    JobRequest,
    OutputRequest,
    RestartRequest,
    StatusReporter,
    StudyRequest,
    TraceRequest,
    report_exit,
)
from hvdtune.workflows.restart import (
    LAUNCH_S,
    TIME_BUDGET_S,
    RestartTarget,
    find_target,
    named_target,
    restart_parts,
)
from hvdtune.workflows.results import StudyResult
from hvdtune.workflows.studies import (
    StudyRun,
    live_parts,
    merge_last_launch,
    named_knobs,
    open_folder,
    open_study,
    recorded,
    searched,
)

LIVE: Final = "live"  # among the names of knobs: all that are searched in a live run; the folder
_POLL_S: Final = 0.5


@dataclass(frozen=True)
class _Parts:
    """What each of the two parts is to search."""

    live: TuneOptions
    ddp: tuple[str, ...]


def tune(
    job: JobRequest,
    study: StudyRequest,
    trace: TraceRequest,
    output: OutputRequest,
    reporter: StatusReporter,
) -> StudyResult:
    """As `live_study.tune`, in two scopes where knobs of DistributedDataParallel are named."""
    is_of_two = any(name.startswith(DDP) for name in named_knobs(study) or ())
    run = tune_in_two_scopes if is_of_two else live_study.tune
    return run(job, study, trace, output, reporter)


def tune_in_two_scopes(
    job: JobRequest,
    study: StudyRequest,
    trace: TraceRequest,
    output: OutputRequest,
    reporter: StatusReporter,
) -> StudyResult:
    """Runs the study, then the script with its verdict's setting to its end.

    The live part is in the folder `live` of the run folder; one that is there with its verdict is
    not measured again. Raises as the two kinds of studies do.
    """
    default = default_setting() | read_setting() | job.values.core_setting()
    parts = _parts(job, study, default)
    identity = {
        **searched(study, job, default),
        "mode": "live, then restart",
        "objectives": list(study.objectives),
    }
    with stop_signals(), open_folder(job, identity, output, reporter) as folder:
        found = find_target(job, RestartRequest(), knobs=parts.ddp, limit_s=study.time_budget_s)
        inside = folder.path / LIVE
        traces: tuple[Path, ...] = ()
        if not (inside / "verdict.json").exists():
            reporter.info("first, hvdtune's knobs in a live run")
            place = replace(output, folder=inside)
            traces = _tune_live(job, parts.live, default, trace, place, reporter)
        changed = changed_by(found, read_profile(inside / "profile.yaml").setting)
        options = options_of_second(job, study, found, parts.ddp, changed)
        which = describe(changed, {})
        beside = f", with and without {which}" if changed else ""
        reporter.info(f"then DistributedDataParallel's arguments by restarting{beside}")
        second = restart_parts(found, job, found.reference, reporter)
        second = replace(second, first_settings=lambda _: [{**found.reference, **changed}])
        with open_study(second, job, output, reporter, folder) as run:
            verdict = _tune_by_restarting(run, options, inside)
            run.close_view()
            ended = _run_to_end(run, verdict.setting, reporter)
    return StudyResult(verdict=verdict, run_dir=folder.path, traces=traces, **ended)


def _parts(job: JobRequest, study: StudyRequest, default: Setting) -> _Parts:
    """Raises UsageError for what cannot be searched so."""
    names = named_knobs(study) or ()
    ddp = tuple(name for name in names if name.startswith(DDP))
    others = [name for name in names if name not in ddp]
    if not others:
        raise UsageError(
            f"--knobs names only knobs of DistributedDataParallel, which cannot change in a live "
            f"run: name others beside them ({LIVE} for all of those), or add --mode restart"
        )
    if not {*study.objectives} <= {"step_time", "samples_per_s"} or any(
        given is not None
        for given in (study.train_steps, study.step_budget, study.storage, storage_url())
    ):
        raise UsageError(
            "with knobs of DistributedDataParallel a study has the step time as its objective, and "
            "neither steps to count nor a database to share: leave out other objectives, "
            "--train-steps, --step-budget and --storage"
        )
    if LIVE in others:
        everything = TuneOptions().space(load_knobs(), default, len(job.hosts))
        named = [name for name in others if name != LIVE]
        others = list(dict.fromkeys([*(knob.name for knob in everything.knobs), *named]))
    live = replace(study, knobs=tuple(others), watch_drift=False)
    named_target(job, RestartRequest(), ddp)  # refuses what cannot be
    return _Parts(live_study.tune_options(job, live, default), ddp)


def _tune_live(
    job: JobRequest,
    options: TuneOptions,
    default: Setting,
    trace: TraceRequest,
    output: OutputRequest,
    reporter: StatusReporter,
) -> tuple[Path, ...]:
    """Leaves the study in the output's folder; returns the merged traces of its last launch."""
    job = recorded(job)
    identity = {"default": dict(default), "knobs": ",".join(options.tunable or ())}
    parts = live_parts(job, default, identity, reporter)
    parts = replace(parts, first_settings=lambda _: [default_setting()])
    with open_study(parts, job, output, reporter) as run:
        with TunerSupervisor(run.study, run.folder.path, options, run.show) as supervisor:
            supervisor.tune()
        run.close_view()
        run.launches.close()
        left = merge_last_launch(run, trace, reporter, ended=True)
    merged: tuple[Path, ...] = left["traces"]
    return merged


def changed_by(found: RestartTarget, winner: Setting) -> dict[str, Value]:
    """What the live run has ended with, where that is not what the script starts with."""
    return {
        name: value
        for name, value in winner.items()
        if name in found.reference and value != found.reference[name]
    }


def options_of_second(
    job: JobRequest,
    study: StudyRequest,
    found: RestartTarget,
    ddp: tuple[str, ...],
    changed: Setting,
) -> TuneOptions:
    """The options of the second part, with `changed` by the first.

    Raises UsageError where nothing is left to tune.
    """
    knobs = found.target.knobs
    options = replace(
        BY_RESTARTING,
        trials=study.trials or TuneOptions.trials,
        time_budget_s=study.time_budget_s or TIME_BUDGET_S,
        block_s=study.launch_s or LAUNCH_S,
        seed=study.seed,
        tunable=(*ddp, *changed),
        ranges={name: KnobRange(choices=(value,)) for name, value in changed.items()},
        fixed=tuple(parse_assignments(job.values.fix, knobs)),
        sampler=study.sampler or default_sampler(1),
    )
    options.space(knobs, found.reference, len(job.hosts), ALL_SCOPES)  # refuses what cannot be
    return options


def _tune_by_restarting(run: StudyRun, options: TuneOptions, live: Path) -> Verdict:
    from hvdtune.tuner.controller import tune

    try:
        return tune(run.study, run.folder.path, options, run.show).verdict
    except StudyError as error:
        raise StudyError(f"{error}; what the live run ended with is in {live}") from None


def _run_to_end(run: StudyRun, setting: Setting, reporter: StatusReporter) -> dict[str, Any]:
    """Runs the script once more; returns fields of StudyResult."""
    number = run.launches.number + 1
    reporter.info("the script is started with this setting and runs to its end")
    try:
        started: MeasuredJob = run.launches.start(setting, number)
        while (report := started.poll()) is None:
            started.steps()
            started.wait(_POLL_S)
    except Stopped as stop:
        run.launches.close()
        reporter.error(str(stop))
        return {"launch": number, "exit_code": stop.exit_code}
    report_exit(reporter, report.returncode, report.reason)
    return {
        "launch": number,
        "exit_code": report.returncode,
        "tail": report.tail,
        "tail_rank": report.rank,
    }
