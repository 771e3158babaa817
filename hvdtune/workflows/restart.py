"""A command that is started again for every setting, and its knobs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hvdtune.core.config.environment import own_environ, read_setting
from hvdtune.core.config.knobs import Value, load_knobs, parse_assignments, validate
from hvdtune.errors import UsageError
from hvdtune.launcher.measured import Metric
from hvdtune.tuner.measure.run import JobInfo
from hvdtune.tuner.results.profile import read_setting_file
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
from hvdtune.workflows.fingerprint import fingerprint
from hvdtune.workflows.launches import DDP, TargetStarter
from hvdtune.workflows.requests import (
    JobRequest,
    RestartRequest,
    StatusReporter,
)

LAUNCH_S: Final = 3.0
TIME_BUDGET_S: Final = 1800.0


@dataclass(frozen=True)
class RestartTarget:
    """A command and its knobs.

    Attributes:
        target: the knobs and the variables that set them.
        starter: starts the command.
        reference: the setting that others are compared with.
        usual: the runtime's values without those of script and environment.
    """

    target: Target
    starter: TargetStarter
    reference: dict[str, Value]
    usual: Mapping[str, Value]

    def world(self, job: JobRequest) -> JobInfo | None:
        """Return the job of each launch, None if the command starts its own ranks."""
        return JobInfo(len(job.plan.slots), job.hosts) if self.starter.starts_ranks else None

    def fingerprint(self, job: JobRequest, reporter: StatusReporter) -> dict[str, Any]:
        """Return the fingerprint of the command before it starts."""
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
    """Return the command's own values, replaced by the named ones."""
    setting = {**target.native, **validate(job.values.named)}
    choices = {knob.name for knob in target.knobs if knob.kind == "category"}
    setting |= {
        name: str(value) if name in choices else value
        for name, value in job.values.profile_setting().items()
    }
    setting |= parse_assignments(job.values.fix, target.knobs)
    return validate(setting, target.knobs)
