"""Setting B against setting A, or A against itself: a study's verification alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from hvdtune.core.config.environment import read_setting
from hvdtune.core.config.knobs import Knob, Setting, Value, default_setting, load_knobs, validate
from hvdtune.core.job.interrupt import stop_signals
from hvdtune.errors import UsageError
from hvdtune.tuner import comparison as tuner
from hvdtune.tuner.comparison import Variant, parse_variant
from hvdtune.tuner.results.profile import read_setting_file
from hvdtune.tuner.space.search_space import describe
from hvdtune.tuner.space.tune_options import BY_RESTARTING, TuneOptions
from hvdtune.tuner.stats.noise_floor import NoiseFloor
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.workflows.requests import (
    ComparisonRequest,
    JobRequest,
    OutputRequest,
    RestartRequest,
    StatusReporter,
    TraceRequest,
)
from hvdtune.workflows.restart import LAUNCH_S, find_target, restart_identity, restart_parts
from hvdtune.workflows.results import ComparisonResult
from hvdtune.workflows.studies import (
    StudyRun,
    form_timeout_s,
    live_parts,
    merge_last_launch,
    open_study,
    recorded,
)

# Without a time budget the verification takes what it needs.
_NO_LIMIT_S: Final = 1e9


def compare(
    job: JobRequest,
    request: ComparisonRequest,
    trace: TraceRequest,
    output: OutputRequest,
    reporter: StatusReporter,
) -> ComparisonResult:
    """Measures pairs in live runs of the script, which is ended then."""
    base = default_setting() | read_setting() | job.values.core_setting()
    first = base | _named(request.a)
    second: Setting | Variant | None = None
    if request.variant is not None:
        second = parse_variant(request.variant)
    elif request.b is not None:
        second = base | _named(request.b)
        _check_live(first, second)
        reporter.info(_difference(first, second))
    job = recorded(job)
    options = replace(_tune_options(request), form_timeout_s=form_timeout_s(job))
    told = {"variant": request.variant} if isinstance(second, Variant) else second
    identity = {"compare": [first] if told is None else [first, told]}
    parts = live_parts(job, first, identity, reporter)
    with stop_signals(), open_study(parts, job, output, reporter) as run:
        verdict = _measure(run, second, options)
        left = merge_last_launch(run, trace, reporter, ended=True)
    return ComparisonResult(verdict=verdict, **left)


def compare_by_restarting(
    job: JobRequest,
    request: ComparisonRequest,
    restart: RestartRequest,
    output: OutputRequest,
    reporter: StatusReporter,
) -> ComparisonResult:
    """Measures pairs of launches of any command."""
    with ExitStack() as stack:
        stack.enter_context(stop_signals())
        paths = [named for named in (request.a, request.b) if isinstance(named, Path)]
        found = find_target(job, restart, settings=paths, limit_s=request.time_budget_s)
        base, knobs = found.reference, found.target.knobs
        first = base | _named(request.a, knobs)
        second = None if request.b is None else base | _named(request.b, knobs)
        compared = [first] if second is None else [first, second]
        identity = {**restart_identity(job, restart), "compare": compared}
        parts = replace(restart_parts(found, job, first, reporter), identity=identity)
        run = stack.enter_context(open_study(parts, job, output, reporter))
        if second is not None:
            reporter.info(_difference(first, second))
        verdict = _measure(run, second, _restart_options(request, restart))
    return ComparisonResult(run_dir=run.folder.path, launch=run.launches.number, verdict=verdict)


def _named(source: Path | Setting | None, knobs: Sequence[Knob] | None = None) -> dict[str, Value]:
    if source is None:
        return {}
    if isinstance(source, Path):
        return read_setting_file(source, knobs)
    return validate(source, knobs)


def _measure(
    run: StudyRun, second: Setting | Variant | None, options: TuneOptions
) -> Verdict | NoiseFloor:
    verdict: Verdict | NoiseFloor
    if second is None:
        verdict = tuner.measure_noise_floor(run.study, run.folder.path, options, run.show)
    else:
        verdict = tuner.compare(run.study, second, run.folder.path, options, run.show)
    run.close_view()
    run.launches.close()
    return verdict


def _difference(first: Setting, second: Setting) -> str:
    if first == second:
        return "A and B are the same setting: what is measured is the noise of this machine"
    return f"B differs from A in {describe(second, first)}"


def _check_live(a: Mapping[str, Value], b: Mapping[str, Value]) -> None:
    fixed = [
        knob.name for knob in load_knobs() if knob.scope != "live" and a[knob.name] != b[knob.name]
    ]
    if fixed:
        raise UsageError(
            f"A and B differ in {', '.join(fixed)}, which cannot change in a live run: give both "
            "the same value, or compare them by `hvdtune verify --mode restart`"
        )


def _tune_options(request: ComparisonRequest) -> TuneOptions:
    return TuneOptions(
        trials=0,
        time_budget_s=request.time_budget_s or _NO_LIMIT_S,
        seed=request.seed,
        min_verify_pairs=request.pairs or TuneOptions.min_verify_pairs,
        max_verify_pairs=_most_pairs(request) or TuneOptions.max_verify_pairs,
    )


def _restart_options(request: ComparisonRequest, restart: RestartRequest) -> TuneOptions:
    usual = BY_RESTARTING
    pairs = request.pairs or usual.min_verify_pairs
    return replace(
        usual,
        trials=0,
        time_budget_s=request.time_budget_s or _NO_LIMIT_S,
        block_s=restart.launch_s or LAUNCH_S,
        seed=request.seed,
        min_verify_pairs=pairs,
        max_verify_pairs=_most_pairs(request) or usual.max_verify_pairs,
        verify_launches=pairs // 2,
    )


def _most_pairs(request: ComparisonRequest) -> int | None:
    # The pairs that a floor is measured with do not limit the verification that it tells of.
    return None if request.b is None and request.variant is None else request.pairs
