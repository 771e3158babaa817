"""`hvdtune run --mode restart` and `--adapter`: any command, measured by starting it again."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

from hvdtune.cli.display import open_display
from hvdtune.cli.fingerprint import fingerprint
from hvdtune.cli.folder import RunFolder
from hvdtune.cli.launches import CommandLaunches, Launches, launcher_of
from hvdtune.cli.messages import complain, tell
from hvdtune.cli.options import RunOptions
from hvdtune.cli.output import output_writers
from hvdtune.cli.resolve import chosen_setting, controller, job_options, plan_job, rank_variables
from hvdtune.cli.tune import open_folder, study_writers
from hvdtune.core.config import launch_defaults, own_environ, read_setting
from hvdtune.core.knobs import Value, load_knobs, parse_assignments, validate
from hvdtune.errors import UsageError
from hvdtune.launch.interrupt import Stopped, stop_signals
from hvdtune.launch.measured import Metric
from hvdtune.launch.plan import starts_its_own_ranks
from hvdtune.launch.run import JobOptions, JobPlan
from hvdtune.tuner.adapters import Target, narrowed, target_of, with_native
from hvdtune.tuner.controller import Study
from hvdtune.tuner.controller import tune as run_study
from hvdtune.tuner.host import LocalHost
from hvdtune.tuner.live import World
from hvdtune.tuner.options import TuneOptions, by_restarting
from hvdtune.tuner.profile import read_profile
from hvdtune.tuner.report import verdict_document
from hvdtune.tuner.restart import ByRestarting
from hvdtune.tuner.samplers import check_sampler
from hvdtune.tuner.space import ALL_SCOPES, make_space
from hvdtune.tuner.space_file import read_space
from hvdtune.tuner.verdict import Verdict

_TIME_BUDGET_S: Final = 1800.0
_LAUNCH_S: Final = 3.0


def run_by_restarting(options: RunOptions) -> int:
    """Tunes the command, or without --trials and --mode runs it once; returns the exit code."""
    _check(options)
    plan = plan_job(options)
    if plan.far and options.adapter == "ddp":
        raise UsageError(
            f"--adapter ddp starts and clocks ranks on this machine only, not on {plan.far[0]}"
        )
    metric = None if options.metric_regex is None else Metric(options.metric_regex)
    target = _target(options, plan)
    launcher = launcher_of(options, plan, target)
    tunes = options.mode == "restart" or options.trials is not None
    with ExitStack() as stack:
        stack.enter_context(stop_signals())
        try:
            if not tunes:
                setting = _reference(options, target)
                return launcher.run_once(setting, output_writers(options, len(plan.slots), stack))
            if isinstance(launcher, CommandLaunches) and options.adapter == "ddp":
                target = with_native(target, launcher.ddp_arguments(_budget_s(options)))
                launcher = launcher_of(options, plan, target)
            return _tune(options, plan, launcher, target, metric)
        except Stopped as stop:
            complain(str(stop))
            return stop.exit_code


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
    if adapter == "command" and not options.vary:
        raise UsageError("--adapter command has nothing to tune: name variables with --vary")
    if options.timeline_filename is not None:
        raise UsageError("--mode restart records no timeline: leave --timeline-filename out")


def _target(options: RunOptions, plan: JobPlan) -> Target:
    environ = own_environ() | rank_variables(options)
    target = target_of(
        options.adapter or "hvdtune",
        environ,
        cores=sorted(os.sched_getaffinity(0)),
        local_size=max(slot.local_size for slot in plan.slots),
        hosts=len({slot.host for slot in plan.slots}),
        vary=options.vary or (),
        core_knobs=load_knobs(),
    )
    if options.adapter in (None, "hvdtune"):
        target = with_native(target, read_setting())
    named = [*(options.knobs or "").split(","), *parse_assignments(options.fix or (), target.knobs)]
    if options.profile is not None:
        named += read_profile(options.profile, target.knobs).setting
    named += chosen_setting(_own_options(options))
    return narrowed(target, [name for name in named if name])


def _own_options(options: RunOptions) -> RunOptions:
    """Those that name one knob each."""
    return replace(options, profile=None, fix=None)


def _reference(options: RunOptions, target: Target) -> dict[str, Value]:
    """What the others are compared with: the command's own values, then those that are named."""
    setting = {**target.native, **chosen_setting(_own_options(options))}
    if options.profile is not None:
        setting |= read_profile(options.profile, target.knobs).setting
    setting |= parse_assignments(options.fix or (), target.knobs)
    return validate(setting, target.knobs)


def _tune(
    options: RunOptions, plan: JobPlan, launcher: Launches, target: Target, metric: Metric | None
) -> int:
    default = _reference(options, target)
    tune_options = _tune_options(options, target)
    hosts = len({slot.host for slot in plan.slots})
    make_space(
        target.knobs,
        default,
        hosts,
        tune_options.tunable,
        tune_options.fixed,
        tune_options.ranges,
        ALL_SCOPES,
    )
    with ExitStack() as stack:
        folder = stack.enter_context(open_folder(options, plan, _identity(options, default)))
        display = stack.enter_context(open_display(default))
        writers = study_writers(options, display, len(plan.slots), stack)
        stack.enter_context(launcher.into(folder, writers, metric))
        names = tuple(sorted({slot.host for slot in plan.slots}))
        world = World(len(plan.slots), names) if launcher.starts_ranks else None
        study = Study(
            ByRestarting(launcher.start, world),
            target.knobs,
            default,
            hosts,
            _fingerprint(options, plan),
            host=LocalHost(),
        )
        try:
            verdict = run_study(study, folder.path, tune_options, display.show).verdict
        except Stopped:
            tell(f"the same command continues this study in {folder.path}")
            raise
    _conclude(options, folder, target, verdict)
    return verdict.exit_code


def _tune_options(options: RunOptions, target: Target) -> TuneOptions:
    named = options.knobs.split(",") if options.knobs else None
    varied = [name for name in target.variables if target.variables[name] == name]
    fixed = parse_assignments(options.fix or (), target.knobs)
    if not {*(options.objective or ())} <= {"step_time", "samples_per_s"} or options.train_steps:
        raise UsageError(
            "--mode restart improves the step time of a command that does not go on: leave other "
            "objectives and --train-steps out"
        )
    chosen = by_restarting(
        options.trials or TuneOptions.trials,
        time_budget_s=_budget_s(options),
        block_s=options.launch_time or _LAUNCH_S,
        seed=options.seed,
        tunable=target.searched if named is None else tuple(dict.fromkeys([*named, *varied])),
        fixed=tuple(fixed),
    )
    sampler = options.sampler or "tpe"
    check_sampler(sampler, 1)
    ranges = {} if options.space is None else read_space(options.space, target.knobs)
    return replace(chosen, sampler=sampler, ranges=ranges, step_budget=options.step_budget)


def _budget_s(options: RunOptions) -> float:
    return options.time_budget or _TIME_BUDGET_S


def _identity(options: RunOptions, default: Mapping[str, Value]) -> dict[str, Any]:
    return {
        "mode": "restart",
        "adapter": options.adapter or "hvdtune",
        "default": dict(default),
        "knobs": options.knobs,
        "fix": sorted(options.fix or ()),
        "vary": sorted(options.vary or ()),
        "space": None if options.space is None else options.space.read_text(encoding="utf-8"),
        "metric": options.metric_regex,
        "launch_time": options.launch_time,
    }


def _fingerprint(options: RunOptions, plan: JobPlan) -> dict[str, Any]:
    adapter = options.adapter or "hvdtune"
    if adapter == "hvdtune":
        known = fingerprint(plan, job_options(options, plan.slots))
    else:
        known = fingerprint(plan, JobOptions(), probe=False)
        # Of hvdtune's own: they say nothing about another runtime.
        del known["transport"]
    return {**known, "mode": "restart", "adapter": adapter}


def _conclude(options: RunOptions, folder: RunFolder, target: Target, verdict: Verdict) -> None:
    page = sys.stderr if options.as_json else sys.stdout
    print(f"verdict: {verdict.text}", file=page)
    for path, meaning in folder.files():
        print(f"    {path}  {meaning}", file=page)
    print(
        f"the command is not started once more; {_to_use(options, folder, target, verdict)}",
        file=page,
    )
    if options.as_json:
        print(json.dumps({**verdict_document(verdict), "run": str(folder.path)}))


def _to_use(options: RunOptions, folder: RunFolder, target: Target, verdict: Verdict) -> str:
    if not verdict.improved:
        return "it needs no other setting than its own"
    words = [f"{name}={value}" for name, value in target.environ(verdict.setting).items()]
    if options.adapter in (None, "hvdtune", "ddp"):
        adapter = ["--adapter", options.adapter] if options.adapter else []
        ranks = ["-np", str(options.num_proc)] if options.num_proc else []
        ranks += ["-H", options.hosts] if options.hosts else []
        profile = ["--profile", str(folder.path / "profile.yaml")]
        words = ["hvdtune", "run", *adapter, *ranks, *profile, "--"]
    return f"to run it with this setting:\n    {shlex.join([*words, *options.command])}"
