"""Studies by restarting the command, alone or after a study in a live run.

In a study of two parts hvdtune's knobs are tuned in a live run, then DDP's arguments by restarting.
A pair of the second part is two launches: the script as it is, and a setting that may contain the
live run's result and other buckets. So one verdict covers both parts.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hvdtune.core.config.environment import storage_url
from hvdtune.core.config.knobs import (
    Knob,
    Setting,
    Value,
    load_knobs,
    parse_assignments,
)
from hvdtune.errors import StudyError, UsageError
from hvdtune.tuner.controller import tune as run_study
from hvdtune.tuner.results.profile import read_profile
from hvdtune.tuner.search.samplers import default_sampler
from hvdtune.tuner.space.search_space import ALL_SCOPES, KnobRange, describe
from hvdtune.tuner.space.targets import Target
from hvdtune.tuner.space.tune_options import TuneOptions, by_restarting
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.workflows.launches import DDP
from hvdtune.workflows.requests import (
    JobRequest,
    RunRequest,
    StatusReporter,
    StudyRequest,
)
from hvdtune.workflows.restart import (
    LAUNCH_S,
    TIME_BUDGET_S,
    RestartTarget,
    find_target,
    named_target,
    restart_identity,
    restart_of,
)
from hvdtune.workflows.results import StudyResult
from hvdtune.workflows.session import Session
from hvdtune.workflows.studies import (
    chosen_share,
    describe_share,
    live_options,
    named_knobs,
    restart_study,
    sampling,
    searched,
    start_setting,
    with_known,
)

if TYPE_CHECKING:
    from hvdtune.launcher.measured import MeasuredJob

LIVE: Final = "live"  # as a knob: all that are searched in a live run; also the live part's folder
_POLL_S: Final = 0.5


def tune_by_restarting(
    request: RunRequest, job: JobRequest, study: StudyRequest, reporter: StatusReporter
) -> StudyResult:
    """Run the study. The command is not started again after the verdict."""
    with Session(request, reporter) as session:
        found = find_target(job, knobs=named_knobs(study) or (), limit_s=study.time_budget_s)
        target, default = found.target, found.reference
        options = _tune_options(job, study, target)
        options.space(target.knobs, default, len(job.hosts), ALL_SCOPES)  # raises UsageError
        identity = {
            **searched(study, job, default),
            **restart_identity(job),
            "vary": sorted(restart_of(job).vary),
        }
        share = chosen_share(study, job, identity, reporter)
        identity |= describe_share(share)
        session.open_folder(identity, continues=True)
        path = session.folder.path
        session.open_output(default)
        tuned = replace(restart_study(session, found, default), share=share)
        if not study.ignore_earlier:
            tuned = with_known(tuned, session, identity)
        verdict = run_study(tuned, path, options, session.show).verdict
        words = _words_to_use(job, target, verdict, str(path / "profile.yaml"))
    return StudyResult(
        run_dir=path,
        launch=session.number,
        verdict=verdict,
        usage="" if verdict.setting == default else shlex.join(words),
    )


def tune_in_two_scopes(
    request: RunRequest,
    job: JobRequest,
    study: StudyRequest,
    reporter: StatusReporter,
    tune_live: Callable[[RunRequest, StudyRequest, StatusReporter], StudyResult],
) -> StudyResult:
    """Run the study, then the script with the verdict's setting to its end.

    The live part is in the folder `live` of the run folder. If it has a verdict there, it is not
    measured again. Raises as the two kinds of studies do.

    Args:
        tune_live: runs the live part.
    """
    default = start_setting(job)
    live, ddp = _parts(job, study, default)
    identity = {
        **searched(study, job, default),
        "mode": "live, then restart",
        "objectives": list(study.objective),
    }
    with Session(request, reporter) as session:
        session.open_folder(identity, continues=True)
        found = find_target(job, knobs=ddp, limit_s=study.time_budget_s)
        inside = session.folder.path / LIVE
        traces: tuple[Path, ...] = ()
        if not (inside / "verdict.json").exists():
            reporter.info("first, hvdtune's knobs in a live run")
            part = replace(request, output=replace(request.output, folder=inside))
            traces = tune_live(part, live, reporter).traces
        changed = changed_by(found, read_profile(inside / "profile.yaml").setting)
        options = options_of_second(job, study, found, ddp, changed)
        with_result = f", with and without {describe(changed, {})}" if changed else ""
        reporter.info(f"then DistributedDataParallel's arguments by restarting{with_result}")
        verdict, ended = _tune_by_restarting(session, found, changed, options)
    return StudyResult(verdict=verdict, run_dir=session.folder.path, traces=traces, **ended)


def _parts(
    job: JobRequest, study: StudyRequest, default: Setting
) -> tuple[StudyRequest, tuple[str, ...]]:
    """Return the study of the live part and the knobs of DDP. Raises UsageError."""
    names = named_knobs(study) or ()
    ddp = tuple(name for name in names if name.startswith(DDP))
    others = [name for name in names if name not in ddp]
    if not others:
        raise UsageError(
            "--knobs names only knobs of DistributedDataParallel, which cannot change in a live "
            f"run. Name other knobs as well ({LIVE} for all that can), or add --mode restart."
        )
    if not {*study.objective} <= {"step_time", "samples_per_s"} or any(
        given is not None
        for given in (study.train_steps, study.step_budget, study.storage, storage_url())
    ):
        raise UsageError(
            "A study with knobs of DistributedDataParallel measures the step time and is not "
            "shared. Leave out other objectives, --train-steps, --step-budget and --storage."
        )
    if LIVE in others:
        everything = TuneOptions().space(load_knobs(), default, len(job.hosts))
        named = [name for name in others if name != LIVE]
        others = list(dict.fromkeys([*(knob.name for knob in everything.knobs), *named]))
    live = replace(study, knobs=tuple(others), no_drift=True, ignore_earlier=True)
    live_options(job, live, default)  # raises UsageError
    named_target(job, ddp)  # raises UsageError
    return live, ddp


def changed_by(found: RestartTarget, winner: Setting) -> dict[str, Value]:
    """Return the live run's result without the values that the script starts with."""
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
    """Return the options of the second part. Raises UsageError if nothing is left to tune.

    Args:
        changed: the result of the first part, which is tried with and without.
    """
    knobs = found.target.knobs
    options = replace(
        _options(job, study, study.launch_s, knobs),
        tunable=(*ddp, *changed),
        ranges={name: KnobRange(choices=(value,)) for name, value in changed.items()},
        sampler=study.sampler or default_sampler(1),
    )
    options.space(knobs, found.reference, len(job.hosts), ALL_SCOPES)  # raises UsageError
    return options


def _tune_by_restarting(
    session: Session, found: RestartTarget, changed: Setting, options: TuneOptions
) -> tuple[Verdict, dict[str, Any]]:
    """Run the second part and the script; return the verdict and fields of StudyResult."""
    session.open_output(found.reference)
    tuned = restart_study(session, found, found.reference)
    tuned = replace(tuned, first_settings=[{**found.reference, **changed}])
    path = session.folder.path
    try:
        verdict = run_study(tuned, path, options, session.show).verdict
    except StudyError as error:
        result = f"the result of the live run is in {path / LIVE}"
        raise StudyError(f"{error}; {result}") from None
    session.close_view()
    return verdict, _run_to_end(session, verdict.setting)


def _run_to_end(session: Session, setting: Setting) -> dict[str, Any]:
    """Run the script once more; return fields of StudyResult."""
    session.reporter.info("the script is started with this setting and runs to its end")

    def wait() -> Any:
        started: MeasuredJob = session.start(setting, session.number + 1)
        while (report := started.poll()) is None:
            started.steps()
            started.wait(_POLL_S)
        return report

    end = session.wait_for_end(wait)
    return {
        "launch": session.number,
        "exit_code": end.returncode,
        "tail": end.tail,
        "tail_rank": end.rank,
    }


def _tune_options(job: JobRequest, study: StudyRequest, target: Target) -> TuneOptions:
    if (
        not {*study.objective} <= {"step_time", "samples_per_s"}
        or study.train_steps
        or study.probe_share is not None
    ):
        raise UsageError(
            "--mode restart tunes only the step time and ends each launch after measuring. Leave "
            "out other objectives, --train-steps and --probe-share."
        )
    named = named_knobs(study)
    varied = [name for name in target.variables if target.variables[name] == name]
    tunable = target.searched if named is None else tuple(dict.fromkeys([*named, *varied]))
    return replace(
        _options(job, study, restart_of(job).launch_s, target.knobs),
        use_earlier=not study.ignore_earlier,
        tunable=tunable,
        **sampling(study, target.knobs, tunable, 1),
    )


def _options(
    job: JobRequest, study: StudyRequest, launch_s: float | None, knobs: Sequence[Knob]
) -> TuneOptions:
    return replace(
        by_restarting(launch_s or LAUNCH_S),
        trials=study.trials or TuneOptions.trials,
        time_budget_s=study.time_budget_s or TIME_BUDGET_S,
        seed=study.seed,
        fixed=tuple(parse_assignments(job.values.fix, knobs)),
    )


def _words_to_use(job: JobRequest, target: Target, verdict: Verdict, profile: str) -> Sequence[str]:
    """Return the command line that runs the command with the verdict's setting."""
    if job.adapter in ("hvdtune", "ddp"):
        return ["hvdtune", "run", *job.placement, "--profile", profile, "--", *job.words]
    variables = target.environ(verdict.setting).items()
    return [*(f"{name}={value}" for name, value in variables), *job.words]
