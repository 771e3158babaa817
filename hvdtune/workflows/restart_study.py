"""A study by restarting, on the terminal and in its folder."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

from hvdtune.cli.display import open_display
from hvdtune.cli.messages import tell
from hvdtune.cli.options import RunOptions
from hvdtune.cli.resolve import check_space, job_options, named_knobs
from hvdtune.core.config.knobs import Value, parse_assignments
from hvdtune.core.job.interrupt import Stopped
from hvdtune.errors import UsageError
from hvdtune.launch.measured import Metric
from hvdtune.launch.run import JobOptions
from hvdtune.tuner.controller import tune as run_study
from hvdtune.tuner.measure.host_load import LocalHost
from hvdtune.tuner.measure.live_run import JobInfo
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.measure.restart_run import ByRestarting
from hvdtune.tuner.results.study_report import verdict_document
from hvdtune.tuner.search.samplers import check_sampler, default_sampler
from hvdtune.tuner.space.search_space import ALL_SCOPES, make_space
from hvdtune.tuner.space.space_file import read_space
from hvdtune.tuner.space.targets import Target
from hvdtune.tuner.space.tune_options import TuneOptions, by_restarting
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.tuner.storage.shared_study import SharedStudy
from hvdtune.tuner.study import Study
from hvdtune.workflows.fingerprint import fingerprint
from hvdtune.workflows.live_study import open_folder, study_writers
from hvdtune.workflows.restart_plan import Prepared, budget_s
from hvdtune.workflows.run_folder import RunFolder
from hvdtune.workflows.shared_study import chosen_share, told

_LAUNCH_S: Final = 3.0


def tune_by_restarting(options: RunOptions, prepared: Prepared) -> int:
    """Runs the study; returns the verdict's exit code."""
    target, default = prepared.target, prepared.reference
    chosen = _tune_options(options, target)
    hosts = len({slot.host for slot in prepared.plan.slots})
    knobs, tunable, fixed = target.knobs, chosen.tunable, chosen.fixed
    make_space(knobs, default, hosts, tunable, fixed, chosen.ranges, ALL_SCOPES)
    identity = _identity(options, default)
    share = chosen_share(options, prepared.plan, _job_options(options, prepared), identity)
    with opened(options, prepared, identity, share) as (study, folder, show):
        verdict = run_study(study, folder.path, chosen, show).verdict
    say(options, folder, f"verdict: {verdict.text}", verdict_document(verdict))
    advice = _to_use(options, folder, target, verdict)
    page = sys.stderr if options.as_json else sys.stdout
    print(f"the command is not started once more; {advice}", file=page)
    return verdict.exit_code


@contextmanager
def opened(
    options: RunOptions,
    prepared: Prepared,
    identity: Mapping[str, Any],
    share: SharedStudy | None = None,
) -> Iterator[tuple[Study, RunFolder, Callable[[StudyProgress], None]]]:
    """A study of what is prepared, its folder, and the terminal. Leaving it leaves no process."""
    plan, launches = prepared.plan, prepared.launches
    metric = None if options.metric_regex is None else Metric(options.metric_regex)
    with ExitStack() as stack:
        folder = stack.enter_context(open_folder(options, plan, {**identity, **told(share)}))
        display = stack.enter_context(open_display(prepared.reference))
        writers = study_writers(options, display, len(plan.slots), stack)
        stack.enter_context(launches.into(folder, writers, metric))
        names = tuple(sorted({slot.host for slot in plan.slots}))
        world = JobInfo(len(plan.slots), names) if launches.starts_ranks else None
        study = Study(
            ByRestarting(launches.start, world),
            prepared.target.knobs,
            prepared.reference,
            len(names),
            _fingerprint(options, prepared),
            first_settings=[prepared.usual],
            share=share,
            host=LocalHost(),
        )
        try:
            yield study, folder, display.show
        except Stopped:
            tell(f"the same command continues this in {folder.path}")
            raise


def _tune_options(options: RunOptions, target: Target) -> TuneOptions:
    named = named_knobs(options)
    varied = [name for name in target.variables if target.variables[name] == name]
    fixed = parse_assignments(options.fix or (), target.knobs)
    if not {*(options.objective or ())} <= {"step_time", "samples_per_s"} or options.train_steps:
        raise UsageError(
            "--mode restart improves the step time of a command that does not go on: leave other "
            "objectives and --train-steps out"
        )
    chosen = by_restarting(
        options.trials or TuneOptions.trials,
        time_budget_s=budget_s(options),
        block_s=launch_s(options),
        seed=options.seed,
        tunable=target.searched if named is None else tuple(dict.fromkeys([*named, *varied])),
        fixed=tuple(fixed),
    )
    sampler = options.sampler or default_sampler(1)
    check_sampler(sampler, 1)
    ranges = {} if options.space is None else read_space(options.space, target.knobs)
    check_space(options, ranges, chosen.tunable or ())
    return replace(chosen, sampler=sampler, ranges=ranges, step_budget=options.step_budget)


def launch_s(options: RunOptions) -> float:
    """How much of each launch is measured."""
    return options.launch_time or _LAUNCH_S


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


def _job_options(options: RunOptions, prepared: Prepared) -> JobOptions:
    """Those of hvdtune's ranks; other runtimes have their own."""
    if (options.adapter or "hvdtune") == "hvdtune":
        return job_options(options, prepared.plan.slots)
    return JobOptions()


def _fingerprint(options: RunOptions, prepared: Prepared) -> dict[str, Any]:
    plan, adapter = prepared.plan, options.adapter or "hvdtune"
    known = fingerprint(plan, _job_options(options, prepared), probe=adapter == "hvdtune")
    if adapter != "hvdtune":
        unknown = (
            {"transport"} if prepared.launches.starts_ranks else {"transport", "world", "slots"}
        )
        known = {name: value for name, value in known.items() if name not in unknown}
    return {**known, "mode": "restart", "adapter": adapter}


def say(options: RunOptions, folder: RunFolder, text: str, document: Mapping[str, Any]) -> None:
    """What came of it and where it lies; with --json the document is all that stdout gets."""
    page = sys.stderr if options.as_json else sys.stdout
    print(text, file=page)
    for path, meaning in folder.files():
        print(f"    {path}  {meaning}", file=page)
    if options.as_json:
        print(json.dumps({**document, "run": str(folder.path)}))


def _to_use(options: RunOptions, folder: RunFolder, target: Target, verdict: Verdict) -> str:
    if not verdict.improved:
        return "it needs no other setting than its own"
    words = [f"{name}={value}" for name, value in target.environ(verdict.setting).items()]
    if options.adapter in (None, "hvdtune", "ddp"):
        ranks = ["-np", str(options.num_proc)] if options.num_proc else []
        ranks += ["-H", options.hosts] if options.hosts else []
        profile = ["--profile", str(folder.path / "profile.yaml")]
        words = ["hvdtune", "run", *ranks, *profile, "--"]
    return f"to run it with this setting:\n    {shlex.join([*words, *options.command])}"
