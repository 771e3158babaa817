"""Any command, started again for every setting: what it is tuned by, and a study of it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from hvdtune.core.config.environment import own_environ, read_setting
from hvdtune.core.config.knobs import Value, load_knobs, parse_assignments, validate
from hvdtune.errors import UsageError
from hvdtune.launcher.measured import Metric
from hvdtune.tuner.measure.run import JobInfo
from hvdtune.tuner.results.profile import read_setting_file
from hvdtune.tuner.space.search_space import ALL_SCOPES
from hvdtune.tuner.space.targets import (
    Target,
    holding,
    narrowed,
    of_any_size,
    target_of,
    with_native,
    with_variables,
    with_varied,
)
from hvdtune.tuner.space.tune_options import BY_RESTARTING, TuneOptions
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.workflows.fingerprint import fingerprint
from hvdtune.workflows.launches import DDP, TargetStarter
from hvdtune.workflows.requests import (
    JobRequest,
    RestartRequest,
    RunRequest,
    StatusReporter,
    StudyRequest,
)
from hvdtune.workflows.results import StudyResult
from hvdtune.workflows.session import Session

LAUNCH_S: Final = 3.0
TIME_BUDGET_S: Final = 1800.0


@dataclass(frozen=True)
class RestartTarget:
    """A command and its knobs.

    `reference` is the setting that others are compared with, `usual` what the runtime would have
    if neither script nor environment said anything.
    """

    target: Target
    starter: TargetStarter
    reference: dict[str, Value]
    usual: Mapping[str, Value]

    def world(self, job: JobRequest) -> JobInfo | None:
        """The job of each launch, None where the command starts its own ranks."""
        return JobInfo(len(job.plan.slots), job.hosts) if self.starter.starts_ranks else None

    def fingerprint(self, job: JobRequest, reporter: StatusReporter) -> dict[str, Any]:
        """The fingerprint of the command before it starts."""
        adapter = job.adapter
        known = fingerprint(job.plan, job.options, reporter if adapter == "hvdtune" else None)
        if adapter != "hvdtune":
            unknown = {"transport"}
            if not self.starter.starts_ranks:
                unknown |= {"world", "slots"}
            known = {name: value for name, value in known.items() if name not in unknown}
        return {**known, "mode": "restart", "adapter": adapter}


def named_starter(job: JobRequest) -> tuple[TargetStarter, dict[str, Value]]:
    """Return what starts the command once, and its own setting with the named values."""
    target = named_target(job, (), ())
    fixed = parse_assignments(job.values.fix, target.knobs)
    always = (*job.values.profile_setting(), *fixed)
    return TargetStarter(job, target, None, always), _reference(job, target)


def find_target(
    job: JobRequest,
    *,
    knobs: Sequence[str] = (),
    settings: Sequence[Path] = (),
    limit_s: float | None = None,
) -> RestartTarget:
    """Return the command with the knobs that are searched by default and all named ones.

    If a knob of DistributedDataParallel is among them, the command is started once for its own
    arguments.

    Args:
        knobs: names of further knobs.
        settings: files whose knobs are named, too.
        limit_s: most seconds of that start; None: half an hour.
    """
    target, pattern = named_target(job, knobs, settings), restart_of(job).metric_regex
    metric = None if pattern is None else Metric(pattern)
    starter = TargetStarter(job, target, metric)
    if any(knob.name.startswith(DDP) for knob in target.knobs):
        target = with_native(target, starter.ddp_arguments(limit_s or TIME_BUDGET_S))
        starter = TargetStarter(job, target, metric)
    return RestartTarget(target, starter, _reference(job, target), _table(job, {}).native)


def restart_of(job: JobRequest) -> RestartRequest:
    """Return how the command is measured."""
    return job.restart or RestartRequest()


def tune_by_restarting(
    request: RunRequest, job: JobRequest, study: StudyRequest, reporter: StatusReporter
) -> StudyResult:
    """Run the study. The command is not started again after the verdict."""
    from hvdtune.tuner.controller import tune as run_study
    from hvdtune.workflows.studies import (
        chosen_share,
        describe_share,
        named_knobs,
        restart_study,
        searched,
        with_known,
    )

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
        reporter.info(f"run folder {path}")
        session.open_output(default)
        tuned = replace(restart_study(session, found, default), share=share)
        if study.use_earlier:
            tuned = with_known(tuned, session, identity, reporter.info)
        verdict = run_study(tuned, path, options, session.show).verdict
        words = _words_to_use(job, target, verdict, str(path / "profile.yaml"))
    return StudyResult(
        run_dir=path,
        launch=session.number,
        verdict=verdict,
        usage="" if verdict.setting == default else shlex.join(words),
    )


def restart_identity(job: JobRequest) -> dict[str, Any]:
    """Return how the command is measured, as run.json contains it."""
    restart = restart_of(job)
    return {
        "mode": "restart",
        "adapter": job.adapter,
        "metric": restart.metric_regex,
        "launch_time": restart.launch_s,
    }


def named_target(job: JobRequest, knobs: Sequence[str], settings: Sequence[Path] = ()) -> Target:
    """Return the knobs of `find_target` with the values that hvdtune or the environment sets.

    Raises UsageError for unknown knobs and for knobs that the job cannot be given.
    """
    environ = own_environ() | dict(job.options.environ)
    target = with_varied(_table(job, environ), restart_of(job).vary, environ)
    if job.adapter == "hvdtune":
        target = with_native(target, read_setting())
    named = [*knobs, *parse_assignments(job.values.fix, target.knobs)]
    given = [job.values.profile_setting()]
    target = with_variables(target, given[0])
    given += [read_setting_file(path, of_any_size(target.knobs)) for path in settings]
    named += [*job.values.named, *(name for setting in given for name in setting)]
    target = narrowed(holding(target, given), named)
    if job.plan.remote and any(knob.name.startswith(DDP) for knob in target.knobs):
        host = job.plan.remote[0]
        raise UsageError(
            f"The ranks on {host} cannot be given knobs of DistributedDataParallel: these are "
            "tuned on this machine only."
        )
    return target


def _table(job: JobRequest, environ: Mapping[str, str]) -> Target:
    return target_of(
        job.adapter,
        environ,
        cores=sorted(os.sched_getaffinity(0)),
        local_size=max(slot.local_size for slot in job.plan.slots),
        hosts=len(job.hosts),
        core_knobs=load_knobs(),
    )


def _reference(job: JobRequest, target: Target) -> dict[str, Value]:
    """The command's own values, then those that are named."""
    setting = {**target.native, **validate(job.values.named)}
    choices = {knob.name for knob in target.knobs if knob.kind == "category"}
    setting |= {
        name: str(value) if name in choices else value
        for name, value in job.values.profile_setting().items()
    }
    setting |= parse_assignments(job.values.fix, target.knobs)
    return validate(setting, target.knobs)


def _tune_options(job: JobRequest, study: StudyRequest, target: Target) -> TuneOptions:
    from hvdtune.workflows.studies import named_knobs, sampling

    if (
        not {*study.objectives} <= {"step_time", "samples_per_s"}
        or study.train_steps
        or study.probe_share is not None
    ):
        raise UsageError(
            "--mode restart tunes only the step time, in launches that it ends: leave out other "
            "objectives, --train-steps and --probe-share"
        )
    named = named_knobs(study)
    varied = [name for name in target.variables if target.variables[name] == name]
    tunable = target.searched if named is None else tuple(dict.fromkeys([*named, *varied]))
    return replace(
        BY_RESTARTING,
        trials=study.trials or TuneOptions.trials,
        time_budget_s=study.time_budget_s or TIME_BUDGET_S,
        block_s=restart_of(job).launch_s or LAUNCH_S,
        seed=study.seed,
        use_earlier=study.use_earlier,
        tunable=tunable,
        fixed=tuple(parse_assignments(job.values.fix, target.knobs)),
        **sampling(study, target.knobs, tunable, 1),
    )


def _words_to_use(job: JobRequest, target: Target, verdict: Verdict, profile: str) -> Sequence[str]:
    """The command line that runs the command under the verdict's setting."""
    if job.adapter in ("hvdtune", "ddp"):
        return ["hvdtune", "run", *job.placement, "--profile", profile, "--", *job.words]
    variables = target.environ(verdict.setting).items()
    return [*(f"{name}={value}" for name, value in variables), *job.words]
