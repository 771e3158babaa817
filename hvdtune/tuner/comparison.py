"""Two settings compared, or one with itself: the verification of a study, without the study."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

from hvdtune.core.config.knobs import Setting
from hvdtune.errors import StudyError
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
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.noise_floor import NoiseFloor, judge_noise_floor
from hvdtune.tuner.stats.verdict import A_AND_B, Verdict
from hvdtune.tuner.storage.pair_log import PairLog
from hvdtune.tuner.storage.study_store import PAIRS_FILE
from hvdtune.tuner.study import Study

ProgressCallback = Callable[[StudyProgress], None]


def compare(
    study: Study,
    setting: Setting,
    run_dir: Path,
    options: TuneOptions | None = None,
    progress: ProgressCallback | None = None,
    clock: Clock | None = None,
) -> Verdict:
    """Verify a complete setting (B) against the one the script is started with (A).

    Calibrates A against itself, then measures fresh pairs in fresh launches as a study does with
    its winner; continues what `run_dir` holds. Writes pairs.jsonl, profile.yaml, verdict.json and
    report.md there. The script is ended, whatever comes of it.

    Raises:
        StudyError: the script cannot be measured with A or with B, or nothing can be written.
    """
    options = options or TuneOptions()
    with _open_bench(study, run_dir, options, progress, clock) as runner:
        calibration = calibrate(runner, _shape(runner), options)
        context = StudyContext(runner, calibration, options)
        left_s = runner.reporter.seconds_left
        plan = plan_verify(options, calibration.noise, context.cost, left_s, gain=0.0)
        with _naming("B"):
            verdict = prove(context, setting, plan, wording=A_AND_B)
        report = render_comparison(verdict, study.default, calibration, runner.log.pairs)
        known, job = study.fingerprint, runner.run.job_info
        write_results(run_dir, verdict, study.default, known, job, report)
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
        pairs = max(options.min_verify_pairs, 2 * options.verify_launches)
        plan = VerifyPlan((pairs,), options.verify_launches, restart=False)
        with _naming("the script"):
            launches = verify(runner, study.default, shape, plan)
        floor = judge_noise_floor(launches, options.resolution_percent, options.max_verify_pairs)
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
        if any(pair.reference != study.default for pair in log.pairs):
            raise StudyError(
                f"{run_dir} holds pairs against another setting: choose another run folder"
            )
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


def _shape(runner: PairRunner) -> BlockShape:
    fresh = runner.run.choose_shape()
    # What was interrupted goes on with blocks of the same length; some were cut short.
    steps = max((pair.steps // len(pair.order) for pair in runner.log.pairs), default=0)
    if steps == 0 or fresh.settle_steps == 0:
        return fresh
    settle_steps = max(fresh.settle_steps * steps // fresh.steps, 2)
    return dataclasses.replace(fresh, steps=steps, settle_steps=settle_steps)


@contextlib.contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except JobCrashed as crash:
        raise ScriptFailed(f"{name} cannot be measured: {crash}", crash.exit_code) from crash
    except TrialFailed as failure:
        raise StudyError(f"{name} cannot be measured: {failure}") from failure
