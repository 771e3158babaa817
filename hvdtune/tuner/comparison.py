"""Two settings compared, or one with itself: the verification of a study, without the study."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hvdtune.core.config import script_knobs
from hvdtune.core.config.knobs import Knob, Setting, Value, validate
from hvdtune.errors import StudyError, UsageError
from hvdtune.plural import counted
from hvdtune.tuner.measure.blocks import BlockShape
from hvdtune.tuner.measure.calibration import calibrate
from hvdtune.tuner.measure.pair_plan import VerifyPlan, plan_verify
from hvdtune.tuner.measure.pair_runner import PairRunner
from hvdtune.tuner.measure.progress import Clock, Reporter, StudyProgress, WallClock
from hvdtune.tuner.measure.run import JobCrashed, ScriptFailed, TrialFailed
from hvdtune.tuner.measure.runs import make_run
from hvdtune.tuner.results.run_files import write_floor, write_results, writing
from hvdtune.tuner.results.study_report import render_comparison, render_floor
from hvdtune.tuner.search.context import StudyContext
from hvdtune.tuner.search.verification import prove, verify
from hvdtune.tuner.space.search_space import describe
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.estimates import pace
from hvdtune.tuner.stats.noise_floor import NoiseFloor, judge_noise_floor
from hvdtune.tuner.stats.verdict import A_AND_B, Verdict
from hvdtune.tuner.storage.pair_log import PairLog
from hvdtune.tuner.storage.study_store import PAIRS_FILE
from hvdtune.tuner.study import Study

ProgressCallback = Callable[[StudyProgress], None]


@dataclass(frozen=True)
class Variant:
    """A knob of the script and the value to compare with the one in use; None: the other of two."""

    name: str
    value: Value | None = None


def parse_variant(text: str) -> Variant:
    """Parse `NAME` or `NAME=VALUE`. Raises UsageError if the name is invalid."""
    name, equals, value = text.strip().removeprefix(script_knobs.PREFIX).partition("=")
    script_knobs.check_name(name)
    return Variant(name, script_knobs.parse_value(value) if equals else None)


def compare(
    study: Study,
    second: Setting | Variant,
    run_dir: Path,
    options: TuneOptions | None = None,
    progress: ProgressCallback | None = None,
    clock: Clock | None = None,
) -> Verdict:
    """Verify a setting or a variant of the script (B) against what the script starts with (A).

    Calibrates A against itself, then measures fresh pairs in fresh launches as a study does with
    its winner, of a variant in the launch that runs; continues what `run_dir` holds. Writes
    pairs.jsonl, profile.yaml, verdict.json and report.md there. The script is ended, whatever comes
    of it.

    Raises:
        StudyError: the script cannot be measured with A or with B, or nothing can be written.
        UsageError: the script has no such knob, or not this value of it.
    """
    options = options or TuneOptions()
    with _open_bench(study, run_dir, options, progress, clock) as runner:
        shape = _shape(runner)
        first, knobs = _take_script_knobs(runner, study, run_dir)
        changed = _changed(second, knobs, first) if isinstance(second, Variant) else second
        setting = {**first, **validate(changed, [*study.knobs, *knobs])}
        calibration = calibrate(runner, shape, options)
        context = StudyContext(runner, calibration, options)
        left_s = runner.reporter.seconds_left
        one_run = replace(options, restarts=False, proof=replace(options.proof, launches=1))
        launches = one_run if isinstance(second, Variant) else options
        launches = replace(
            launches, proof=replace(launches.proof, short_pairs=options.proof.min_pairs)
        )  # as asked for
        plan = plan_verify(launches, calibration.noise, context.cost, left_s, gain=0.0)
        with _naming(f"B ({describe(setting, first)})", runner, run_dir):
            verdict = prove(context, setting, plan, wording=A_AND_B)
        if isinstance(second, Variant):
            verdict = replace(verdict, text=_which_is_faster(second.name, first, verdict))
        report = render_comparison(verdict, first, calibration, runner.log.pairs)
        known, job = study.fingerprint, runner.run.job_info
        write_results(run_dir, verdict, first, known, job, report)
        runner.reporter.phase("done", verdict.text)
    return verdict


def measure_noise_floor(
    study: Study,
    run_dir: Path,
    options: TuneOptions | None = None,
    progress: ProgressCallback | None = None,
    clock: Clock | None = None,
) -> NoiseFloor:
    """Measure the setting the script is started with against itself: the A/A floor.

    As many pairs and launches as the least verification has; otherwise as `compare`.
    """
    options = options or TuneOptions()
    with _open_bench(study, run_dir, options, progress, clock) as runner:
        shape = _shape(runner)
        pairs = max(options.proof.min_pairs, 2 * options.proof.launches)
        plan = VerifyPlan((pairs,), options.proof.launches, restart=False)
        with _naming("the script", runner, run_dir):
            launches = verify(runner, study.default, shape, plan)
        floor = judge_noise_floor(
            launches, options.proof.resolution_percent, options.proof.max_pairs
        )
        report = render_floor(floor, shape, runner.log.pairs)
        write_floor(run_dir, floor, report)
        runner.reporter.phase("done", floor.text)
    return floor


@contextlib.contextmanager
def _open_bench(
    study: Study,
    run_dir: Path,
    options: TuneOptions,
    progress: ProgressCallback | None,
    clock: Clock | None,
) -> Iterator[PairRunner]:
    with writing():
        run_dir.mkdir(parents=True, exist_ok=True)
    clock = clock or WallClock()
    reporter = Reporter(progress, clock, 0, options.time_budget_s)
    with PairLog(run_dir / PAIRS_FILE) as log:
        _check_reference(log, study.default, run_dir, ignored=script_knobs.is_of_script)
        run = make_run(
            study.start_job,
            study.default,
            options,
            clock,
            reporter,
            first_launch=log.next_launch,
        )
        reporter.phase("start", "starting the script")
        try:
            yield PairRunner(run, log, reporter, study.default, seed=options.seed)
        finally:
            run.stop()


def _check_reference(
    log: PairLog, reference: Setting, run_dir: Path, ignored: Callable[[str], bool] | None = None
) -> None:
    """Raises StudyError where the log has pairs against another setting.

    `ignored` names knobs that may differ.
    """

    def known(setting: Setting) -> dict[str, Value]:
        return {k: v for k, v in setting.items() if ignored is None or not ignored(k)}

    if any(known(pair.reference) != known(reference) for pair in log.pairs):
        raise StudyError(
            f"{run_dir} contains pairs against another setting. Choose another run folder."
        )


def _take_script_knobs(
    runner: PairRunner, study: Study, run_dir: Path
) -> tuple[Setting, tuple[Knob, ...]]:
    """A with the knobs that the script has declared by its first steps, and these knobs."""
    run = runner.run.resumable
    knobs = () if run is None else run.script_knobs
    first = dict(study.default)
    for knob in knobs:
        first.setdefault(knob.name, knob.default)
    first = validate(first, [*study.knobs, *knobs])
    _check_reference(runner.log, first, run_dir)
    if run is not None:
        run.take_default(first)
    runner.default = first
    return first, knobs


def _changed(variant: Variant, knobs: Sequence[Knob], first: Setting) -> Setting:
    """Return the difference between B and A. Raises UsageError that lists the alternatives."""
    known = {knob.name.removeprefix(script_knobs.PREFIX): knob for knob in knobs}
    if not known:
        raise UsageError(
            f"cannot compare {variant.name}: the script called neither hvd.variant nor hvd.knob "
            "in its first steps"
        )
    if variant.name not in known:
        there = "; ".join(f"{n}: {script_knobs.listed(k.choices)}" for n, k in known.items())
        raise UsageError(f"the script has no knob {variant.name}; it has {there}")
    knob = known[variant.name]
    in_use = first[knob.name]
    others = [value for value in knob.choices if value != in_use]
    value = variant.value
    if value is None:
        if len(others) != 1:
            raise UsageError(
                f"{variant.name} has the values {script_knobs.listed(knob.choices)}: name the one "
                f"to compare with {in_use}, as in --variant {variant.name}=VALUE"
            )
        value = others[0]
    value = script_knobs.find_value(knob.name, value, knob.choices)
    if value == in_use:
        raise UsageError(
            f"{variant.name} = {value} is the value that the script uses already: "
            "specify a different one"
        )
    return {knob.name: value}


def _which_is_faster(name: str, first: Setting, verdict: Verdict) -> str:
    """The verdict in one sentence about two versions of a piece of code."""
    assert verdict.candidate is not None
    assert verdict.gain_percent is not None
    assert verdict.ci_percent is not None
    in_use, other = first[script_knobs.PREFIX + name], verdict.candidate[script_knobs.PREFIX + name]
    is_switch = isinstance(other, bool)
    a = f"{'with' if in_use else 'without'} {name}" if is_switch else f"with {name}={in_use}"
    b = f"{'with' if other else 'without'} {name}" if is_switch else f"with {name}={other}"
    low, high = verdict.ci_percent
    basis = (
        f"{counted(verdict.pairs, 'pair')} in {counted(verdict.launches, 'launch')}, A/A floor "
        f"{verdict.noise_floor_percent:.1f} %"
    )
    if verdict.improved:
        return (
            f"training is {verdict.gain_percent:.1f} % [{low:.1f}, {high:.1f}] faster {b} than {a} "
            f"(95 % CI, {basis})"
        )
    gain, least, most = (_inverse(each) for each in (verdict.gain_percent, high, low))
    if verdict.kind == "default" and least > 0 and gain > verdict.noise_floor_percent:
        return (
            f"training is {gain:.1f} % [{least:.1f}, {most:.1f}] faster {a} than {b} "
            f"(95 % CI, {basis})"
        )
    return (
        f"no significant difference: training {b} is {pace(low)} to {pace(high)} than "
        f"{a} (95 % CI, {basis})"
    )


def _inverse(percent: float) -> float:
    """Return the gain of A over B, in percent, for the gain of B over A."""
    return 100 * (1 / (1 + percent / 100) - 1)


def _shape(runner: PairRunner) -> BlockShape:
    fresh = runner.run.choose_shape()
    # What was interrupted goes on with blocks of the same length; some were cut short.
    steps = max((pair.steps // len(pair.order) for pair in runner.log.pairs), default=0)
    if steps == 0 or fresh.settle_steps == 0:
        return fresh
    settle_steps = max(fresh.settle_steps * steps // fresh.steps, 2)
    return dataclasses.replace(fresh, steps=steps, settle_steps=settle_steps)


@contextlib.contextmanager
def _naming(name: str, runner: PairRunner, run_dir: Path) -> Iterator[None]:
    try:
        yield
    except TrialFailed as failure:
        text = f"{name} cannot be measured: {failure}"
        if pairs := len(runner.log.pairs):
            text += f"; {counted(pairs, 'pair')} kept; continue with -o {run_dir}"
        if isinstance(failure, JobCrashed):
            raise ScriptFailed(text, failure.exit_code) from failure
        raise StudyError(text) from failure
