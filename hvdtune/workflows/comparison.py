"""`hvdtune verify` and `hvdtune aa`: a study's verification alone, and its A/A floor alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from hvdtune.cli.display import open_display
from hvdtune.cli.messages import complain, tell
from hvdtune.cli.options import RunOptions
from hvdtune.cli.resolve import chosen_setting, controller, job_options, plan_job, remarks, settle
from hvdtune.cli.verify_options import AaOptions, CompareOptions, VerifyOptions
from hvdtune.core.config.environment import launch_defaults, read_setting
from hvdtune.core.config.knobs import Setting, Value, default_setting, load_knobs
from hvdtune.core.job.interrupt import Stopped, stop_signals
from hvdtune.errors import UsageError
from hvdtune.launch.run import JobOptions, JobPlan
from hvdtune.tuner.comparison import compare, measure_noise_floor
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.results.profile import read_setting_file
from hvdtune.tuner.results.study_report import verdict_document
from hvdtune.tuner.space.search_space import describe
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.noise_floor import NoiseFloor
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.tuner.study import Study
from hvdtune.workflows.fingerprint import fingerprint
from hvdtune.workflows.live_study import (
    DEFAULT_TIMELINE_MB,
    Launches,
    conclude,
    form_timeout_s,
    open_folder,
    study_writers,
)

# Without --time-budget the verification takes what it needs.
_NO_LIMIT_S: Final = 1e9

Measure = Callable[
    [Study, Path, TuneOptions, Callable[[StudyProgress], None]], Verdict | NoiseFloor
]


def verify(options: VerifyOptions) -> int:
    """Compares the settings of --a and --b; returns the verdict's exit code."""
    if options.mode == "restart" or options.adapter is not None:
        from hvdtune.workflows.restart_comparison import compare_by_restarting

        return compare_by_restarting(options, options.a, options.b)
    base = _base(options)
    a = base | (read_setting_file(options.a) if options.a is not None else {})
    b = base | read_setting_file(options.b)
    _check_live(a, b)
    if a == b:
        tell("A and B are the same setting: this measures what is no difference")
    else:
        tell(f"B differs from A in {describe(b, a)}")

    def measure(
        study: Study, path: Path, chosen: TuneOptions, show: Callable[[StudyProgress], None]
    ) -> Verdict:
        return compare(study, b, path, chosen, show)

    return _run(options, a, {"compare": [a, b]}, measure)


def aa(options: AaOptions) -> int:
    """Measures the setting of the options against itself; returns the floor's exit code."""
    if options.mode == "restart" or options.adapter is not None:
        from hvdtune.workflows.restart_comparison import compare_by_restarting

        return compare_by_restarting(options, None, None)
    base = _base(options)
    return _run(options, base, {"compare": [base]}, measure_noise_floor)


def _base(options: RunOptions) -> dict[str, Value]:
    return default_setting() | read_setting() | chosen_setting(options)


def _check_live(a: Setting, b: Setting) -> None:
    fixed = [
        knob.name for knob in load_knobs() if knob.scope != "live" and a[knob.name] != b[knob.name]
    ]
    if fixed:
        raise UsageError(
            f"A and B differ in {', '.join(fixed)}, which cannot change in a live run: add --mode "
            "restart or give both the same value"
        )


def _run(
    options: CompareOptions, default: Setting, study: Mapping[str, Any], measure: Measure
) -> int:
    chosen = _tune_options(options)
    options = settle(replace(options, autotune=False, time_budget=None))
    for remark in remarks(options):
        tell(remark)
    if controller(options, launch_defaults()) == "mpi":
        raise UsageError("settings are compared under hvdtune's own launcher: leave out --mpi")
    plan = plan_job(options)
    launch = job_options(options, plan.slots)
    launch = replace(launch, timeline_max_mb=options.timeline_max_mb or DEFAULT_TIMELINE_MB)
    with ExitStack() as stack:
        stack.enter_context(stop_signals())
        folder = stack.enter_context(open_folder(options, plan, study))
        try:
            with ExitStack() as screen:
                display = screen.enter_context(open_display(default))
                writers = study_writers(options, display, len(plan.slots), screen)
                launches = screen.enter_context(Launches(plan, default, launch, folder, writers))
                found = measure(
                    _study(plan, launch, launches, default),
                    folder.path,
                    replace(chosen, form_timeout_s=form_timeout_s(launch)),
                    display.show,
                )
            conclude(options, folder, launches, found.text, _document(found), ended=True)
        except Stopped as stop:
            tell(f"the same command continues this in {folder.path}")
            complain(str(stop))
            return stop.exit_code
    return found.exit_code


def _study(plan: JobPlan, options: JobOptions, launches: Launches, default: Setting) -> Study:
    hosts = len({slot.host for slot in plan.slots})
    known = fingerprint(plan, options)
    return Study(launches.start, load_knobs(), default, hosts, known)


def _tune_options(options: CompareOptions) -> TuneOptions:
    # What a floor is measured with is no limit of the verification that it tells of.
    most = None if isinstance(options, AaOptions) else options.pairs
    return TuneOptions(
        trials=0,
        time_budget_s=options.time_budget or _NO_LIMIT_S,
        seed=options.seed,
        min_verify_pairs=options.pairs or TuneOptions.min_verify_pairs,
        max_verify_pairs=most or TuneOptions.max_verify_pairs,
    )


def _document(found: Verdict | NoiseFloor) -> dict[str, Any]:
    return found.document() if isinstance(found, NoiseFloor) else verdict_document(found)
