"""Any command, started again for every setting: what it is tuned by, and a study of it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hvdtune.core.config.environment import own_environ, read_setting
from hvdtune.core.config.knobs import Setting, Value, load_knobs, parse_assignments, validate
from hvdtune.core.job.interrupt import stop_signals
from hvdtune.errors import UsageError
from hvdtune.launcher.measured import Metric
from hvdtune.launcher.plan import starts_its_own_ranks
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
from hvdtune.workflows.launches import DDP, CommandStarter, JobStarter, output_writers
from hvdtune.workflows.requests import (
    JobRequest,
    OutputRequest,
    RestartRequest,
    StatusReporter,
    StudyRequest,
    report_exit,
)
from hvdtune.workflows.results import LaunchResult, StudyResult

if TYPE_CHECKING:
    from hvdtune.workflows.studies import StudyParts

LAUNCH_S: Final = 3.0
TIME_BUDGET_S: Final = 1800.0


@dataclass(frozen=True)
class RestartTarget:
    """A command and its knobs.

    `reference` is the setting that others are compared with, `usual` what the runtime would have
    if neither script nor environment said anything.
    """

    target: Target
    starter: JobStarter | CommandStarter
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


def launch_target(
    job: JobRequest, request: RestartRequest, output: OutputRequest, reporter: StatusReporter
) -> LaunchResult:
    """Runs a command of any runtime once, under its own setting and what the request names."""
    with ExitStack() as stack:
        stack.enter_context(stop_signals())
        values = job.values
        table = named_target(job, request, (), ())
        always = (*values.profile_setting(), *parse_assignments(values.fix, table.knobs))
        starter = _starter(job, table, None, always)
        writers = output_writers(output, reporter, len(job.plan.slots), stack)
        report = starter.run_once(_reference(job, table), writers)
    report_exit(reporter, report.returncode, report.reason)
    return LaunchResult(report.returncode, report.reason, tuple(report.tail))


def find_target(
    job: JobRequest,
    request: RestartRequest,
    *,
    knobs: Sequence[str] = (),
    settings: Sequence[Path] = (),
    limit_s: float | None = None,
) -> RestartTarget:
    """The command with the knobs that are searched by default and all that are named.

    Those named are `knobs` and what the files `settings` hold. Where DDP's are among them the
    command is started once for the arguments of its own, at most for `limit_s` (None: half an
    hour).
    """
    table = named_target(job, request, knobs, settings)
    metric = None if request.metric_regex is None else Metric(request.metric_regex)
    starter = _starter(job, table, metric)
    if any(knob.name.startswith(DDP) for knob in table.knobs):
        table = with_native(table, starter.ddp_arguments(limit_s or TIME_BUDGET_S))
        starter = _starter(job, table, metric)
    return RestartTarget(table, starter, _reference(job, table), _table(job, {}).native)


def tune_by_restarting(
    job: JobRequest,
    study: StudyRequest,
    restart: RestartRequest,
    output: OutputRequest,
    reporter: StatusReporter,
) -> StudyResult:
    """Runs the study; the command is not started again after the verdict."""
    from hvdtune.tuner.controller import tune as run_study
    from hvdtune.workflows.studies import (
        chosen_share,
        describe_share,
        known_of_job,
        named_knobs,
        open_study,
        run_identity,
        searched,
    )

    with stop_signals():
        names = named_knobs(study) or ()
        found = find_target(job, restart, knobs=names, limit_s=study.time_budget_s)
        target, default = found.target, found.reference
        options = _tune_options(job, study, restart, target)
        options.space(target.knobs, default, len(job.hosts), ALL_SCOPES)  # refuses what cannot be
        identity = {
            **searched(study, job, default),
            **restart_identity(job, restart),
            "vary": sorted(restart.vary),
        }
        share = chosen_share(study, job, identity, reporter)
        parts = replace(
            restart_parts(found, job, default, reporter),
            identity=identity | describe_share(share),
            share=share,
        )
        with open_study(parts, job, output, reporter) as run:
            tuned, path = run.study, run.folder.path
            if study.use_earlier:
                past = run_identity(job, parts.identity)
                tuned = replace(tuned, known=known_of_job(tuned, path, past, reporter.info))
            verdict = run_study(tuned, path, options, run.show).verdict
            words = _words_to_use(job, target, verdict, str(run.folder.path / "profile.yaml"))
    return StudyResult(
        run_dir=run.folder.path,
        launch=run.launches.number,
        verdict=verdict,
        usage="" if verdict.setting == default else shlex.join(words),
    )


def restart_parts(
    found: RestartTarget, job: JobRequest, default: Setting, reporter: StatusReporter
) -> StudyParts:
    """The parts of a study whose every block is a launch, against the setting `default`."""
    from hvdtune.workflows.studies import StudyParts

    return StudyParts(
        found.starter.start,
        default,
        {},
        lambda: found.fingerprint(job, reporter),
        found.target.knobs,
        first_settings=lambda _: [found.usual],
        restarts=True,
        world=found.world(job),
    )


def restart_identity(job: JobRequest, restart: RestartRequest) -> dict[str, Any]:
    """How the command is measured, as run.json has it."""
    return {
        "mode": "restart",
        "adapter": job.adapter,
        "metric": restart.metric_regex,
        "launch_time": restart.launch_s,
    }


def _starter(
    job: JobRequest, target: Target, metric: Metric | None, always: Collection[str] = ()
) -> JobStarter | CommandStarter:
    if job.adapter == "hvdtune":
        return JobStarter(job.plan, target, job.options, metric, always)
    starts_ranks = job.adapter == "ddp" and not starts_its_own_ranks(job.words)
    has_clock = job.adapter != "command"
    return CommandStarter(
        job.plan, target, always, metric, starts_ranks=starts_ranks, has_clock=has_clock
    )


def named_target(
    job: JobRequest, request: RestartRequest, knobs: Sequence[str], settings: Sequence[Path] = ()
) -> Target:
    """The table of `find_target`, with what hvdtune or the environment says of its knobs.

    Raises UsageError for knobs that are none, or cannot be given to the job.
    """
    environ = own_environ() | dict(job.options.environ)
    target = with_varied(_table(job, environ), request.vary, environ)
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
        raise UsageError(f"DDP's knobs are tuned in ranks on this machine only, not on {host}")
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


def _tune_options(
    job: JobRequest, study: StudyRequest, restart: RestartRequest, target: Target
) -> TuneOptions:
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
        block_s=restart.launch_s or LAUNCH_S,
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
