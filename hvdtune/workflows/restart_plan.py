"""`hvdtune run --mode restart` and `--adapter`: any command, measured by starting it again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hvdtune.cli.messages import complain
from hvdtune.cli.options import RunOptions
from hvdtune.cli.resolve import (
    chosen_setting,
    controller,
    named_knobs,
    plan_job,
    rank_variables,
)
from hvdtune.core.config.environment import launch_defaults, own_environ, read_setting
from hvdtune.core.config.knobs import Value, load_knobs, parse_assignments, validate
from hvdtune.core.job.interrupt import Stopped, stop_signals
from hvdtune.errors import UsageError
from hvdtune.launch.measured import Metric
from hvdtune.launch.plan import starts_its_own_ranks
from hvdtune.launch.run import JobPlan
from hvdtune.tuner.results.profile import read_profile, read_setting_file
from hvdtune.tuner.space.targets import (
    Target,
    narrowed,
    target_of,
    with_native,
    with_variables,
    with_varied,
)
from hvdtune.workflows.launches import CommandLaunches, JobLaunches, launches_of
from hvdtune.workflows.output import output_writers

_TIME_BUDGET_S: Final = 1800.0


@dataclass(frozen=True)
class Prepared:
    """Everything that launches need.

    `reference` is what other settings are compared with, `usual` what the runtime would have where
    neither script nor environment say anything.
    """

    plan: JobPlan
    target: Target
    launches: JobLaunches | CommandLaunches
    reference: dict[str, Value]
    usual: Mapping[str, Value]


def run_by_restarting(options: RunOptions) -> int:
    """Tunes the command, or without --trials and --mode runs it once; returns the exit code."""
    tunes = options.mode == "restart" or options.trials is not None
    with ExitStack() as stack:
        stack.enter_context(stop_signals())
        try:
            prepared = prepare(options, tunes=tunes)
            if tunes:
                from hvdtune.workflows.restart_study import tune_by_restarting

                return tune_by_restarting(options, prepared)
            writers = output_writers(options, len(prepared.plan.slots), stack)
            return prepared.launches.run_once(prepared.reference, writers)
        except Stopped as stop:
            complain(str(stop))
            return stop.exit_code


def prepare(options: RunOptions, *, tunes: bool = True, settings: Sequence[Path] = ()) -> Prepared:
    """What the options ask for, checked; its knobs are those that `settings` name, too.

    To tune DDP the command is started once for the arguments of its own.
    """
    _check(options)
    plan = plan_job(options)
    if plan.far and options.adapter == "ddp":
        raise UsageError(
            f"--adapter ddp starts and clocks ranks on this machine only, not on {plan.far[0]}"
        )
    target = _target(options, plan, settings)
    # Only a launch tells what the script itself passes; one that is not to be tuned gets it all.
    always = (
        () if tunes else (*_profile(options), *parse_assignments(options.fix or (), target.knobs))
    )
    launches = launches_of(options, plan, target, always)
    if tunes and isinstance(launches, CommandLaunches) and options.adapter == "ddp":
        target = with_native(target, launches.ddp_arguments(budget_s(options)))
        launches = launches_of(options, plan, target)
    reference = _reference(options, target)
    return Prepared(plan, target, launches, reference, _table(options, plan, {}).native)


def _check(options: RunOptions) -> None:
    adapter = options.adapter or "hvdtune"
    if controller(options, launch_defaults()) == "mpi":
        raise UsageError(
            "--mode restart starts the ranks itself; to tune a command with a launcher of its own: "
            "hvdtune run --mode restart --adapter command --vary NAME=A,B -- mpirun ..."
        )
    own = adapter in ("horovod", "command") or (
        adapter == "ddp" and starts_its_own_ranks(options.command)
    )
    if own and (options.num_proc or options.hosts or options.hostfile):
        raise UsageError(
            f"with --adapter {adapter} the ranks of this command are started by the command: say "
            "there how many, as in `torchrun --nproc-per-node 2 ...` or `horovodrun -np 2 ...`"
        )
    if adapter == "command" and not options.vary and not options.profile:
        raise UsageError("--adapter command has nothing to tune: name variables with --vary")
    if options.metric_regex is not None:
        Metric(options.metric_regex)
    if options.timeline_filename is not None:
        raise UsageError("--mode restart records no timeline: leave --timeline-filename out")


def _target(options: RunOptions, plan: JobPlan, settings: Sequence[Path]) -> Target:
    environ = own_environ() | rank_variables(options)
    target = with_varied(_table(options, plan, environ), options.vary or (), environ)
    if options.adapter in (None, "hvdtune"):
        target = with_native(target, read_setting())
    named = [*(named_knobs(options) or ()), *parse_assignments(options.fix or (), target.knobs)]
    profile = _profile(options)
    target = with_variables(target, profile)
    named += [*profile, *chosen_setting(_own_options(options))]
    for path in settings:
        named += read_setting_file(path, target.knobs)
    return narrowed(target, named)


def _table(options: RunOptions, plan: JobPlan, environ: Mapping[str, str]) -> Target:
    return target_of(
        options.adapter or "hvdtune",
        environ,
        cores=sorted(os.sched_getaffinity(0)),
        local_size=max(slot.local_size for slot in plan.slots),
        hosts=len({slot.host for slot in plan.slots}),
        core_knobs=load_knobs(),
    )


def _profile(options: RunOptions) -> dict[str, Value]:
    return {} if options.profile is None else read_profile(options.profile).setting


def _own_options(options: RunOptions) -> RunOptions:
    """Those that name one knob each."""
    return replace(options, profile=None, fix=None)


def _reference(options: RunOptions, target: Target) -> dict[str, Value]:
    """What the others are compared with: the command's own values, then those that are named."""
    setting = {**target.native, **chosen_setting(_own_options(options))}
    choices = {knob.name for knob in target.knobs if knob.kind == "category"}
    setting |= {
        name: str(value) if name in choices else value for name, value in _profile(options).items()
    }
    setting |= parse_assignments(options.fix or (), target.knobs)
    return validate(setting, target.knobs)


def budget_s(options: RunOptions) -> float:
    """The study's time."""
    return options.time_budget or _TIME_BUDGET_S
