"""`hvdtune.verify`, `hvdtune verify`, `aa` and `compare`: setting B against A, or A against A."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from hvdtune.core.config.knobs import Knob, Setting, Value, load_knobs, validate
from hvdtune.errors import UsageError
from hvdtune.tuner import comparison as tuner
from hvdtune.tuner.comparison import Variant, parse_variant
from hvdtune.tuner.results.profile import read_setting_file
from hvdtune.tuner.space.search_space import describe
from hvdtune.tuner.space.tune_options import LimitOptions, TuneOptions, by_restarting
from hvdtune.tuner.stats.noise_floor import NoiseFloor
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.tuner.study import Study
from hvdtune.workflows.requests import ComparisonRequest, JobRequest, RunRequest, StatusReporter
from hvdtune.workflows.restart import LAUNCH_S, find_target, restart_identity, restart_of
from hvdtune.workflows.results import ComparisonResult
from hvdtune.workflows.session import Session
from hvdtune.workflows.studies import (
    RECORDING_MB,
    form_timeout_s,
    job_study,
    restart_study,
    start_setting,
)

# Without a time budget the verification takes as long as it needs.
_NO_LIMIT_S: Final = 1e9


def compare(request: RunRequest, reporter: StatusReporter) -> ComparisonResult:
    """Measure pairs in live runs of the script, which is then ended, or pairs of launches."""
    job, asked = request.job, request.measurement
    assert isinstance(job, JobRequest) and isinstance(asked, ComparisonRequest)
    with Session(request, reporter) as session:
        compare_in = _compare_live if job.restart is None else _compare_by_restarting
        return compare_in(session, job, asked)


def _compare_live(session: Session, job: JobRequest, asked: ComparisonRequest) -> ComparisonResult:
    base = start_setting(job)
    first = base | _named(asked.a)
    second: Setting | Variant | None = None
    if asked.variant is not None:
        second = parse_variant(asked.variant)
    elif asked.b is not None:
        second = base | _named(asked.b)
        _check_live(first, second)
        session.reporter.info(_difference(first, second))
    other = {"variant": asked.variant} if isinstance(second, Variant) else second
    session.records = True
    identity = {"compare": [first] if other is None else [first, other]}
    session.open_folder(identity, continues=True)
    session.open_output(first)
    session.open_job(RECORDING_MB)
    options = _options(asked, TuneOptions(limits=LimitOptions(form_s=form_timeout_s(job))))
    verdict = _measure(session, job_study(session, first, session.reporter), second, options)
    return ComparisonResult(verdict=verdict, **session.measured(ended=True))


def _compare_by_restarting(
    session: Session, job: JobRequest, asked: ComparisonRequest
) -> ComparisonResult:
    paths = [named for named in (asked.a, asked.b) if isinstance(named, Path)]
    found = find_target(job, settings=paths, limit_s=asked.time_budget_s)
    base, knobs = found.reference, found.target.knobs
    first = base | _named(asked.a, knobs)
    second = None if asked.b is None else base | _named(asked.b, knobs)
    compared = [first] if second is None else [first, second]
    session.open_folder({**restart_identity(job), "compare": compared}, continues=True)
    session.open_output(first)
    if second is not None:
        session.reporter.info(_difference(first, second))
    options = _options(asked, by_restarting(restart_of(job).launch_s or LAUNCH_S))
    options = replace(options, proof=replace(options.proof, launches=options.proof.min_pairs // 2))
    verdict = _measure(session, restart_study(session, found, first), second, options)
    session.end_launch()
    path = session.folder.path
    return ComparisonResult(run_dir=path, launch=session.number, verdict=verdict)


def _named(source: Path | Setting | None, knobs: Sequence[Knob] | None = None) -> dict[str, Value]:
    if source is None:
        return {}
    if isinstance(source, Path):
        return read_setting_file(source, knobs)
    return validate(source, knobs)


def _measure(
    session: Session, study: Study, second: Setting | Variant | None, options: TuneOptions
) -> Verdict | NoiseFloor:
    path = session.folder.path
    verdict: Verdict | NoiseFloor
    if second is None:
        verdict = tuner.measure_noise_floor(study, path, options, session.show)
    else:
        verdict = tuner.compare(study, second, path, options, session.show)
    session.close_view()
    return verdict


def _difference(first: Setting, second: Setting) -> str:
    if first == second:
        return "A and B are the same setting: the noise of this machine is measured"
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


def _options(asked: ComparisonRequest, usual: TuneOptions) -> TuneOptions:
    return replace(
        usual,
        trials=0,
        time_budget_s=asked.time_budget_s or _NO_LIMIT_S,
        seed=asked.seed,
        proof=replace(
            usual.proof,
            min_pairs=asked.pairs or usual.proof.min_pairs,
            max_pairs=_most_pairs(asked) or usual.proof.max_pairs,
        ),
    )


def _most_pairs(asked: ComparisonRequest) -> int | None:
    # The pairs of a noise floor do not limit the verification that it describes.
    return None if asked.b is None and asked.variant is None else asked.pairs
