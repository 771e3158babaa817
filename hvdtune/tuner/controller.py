"""A whole study on a live run: calibrate, search, race, verify, go on with the result."""

import dataclasses
import datetime
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hvdtune.errors import StudyError
from hvdtune.tuner.measure.blocks import BlockShape
from hvdtune.tuner.measure.calibration import Calibration, calibrate, choose_shape, current_cost
from hvdtune.tuner.measure.live_run import ExitStatus as ExitStatus
from hvdtune.tuner.measure.live_run import LiveRun, RunOver, TrialFailed
from hvdtune.tuner.measure.live_run import RunningJob as RunningJob
from hvdtune.tuner.measure.pair_plan import plan_verify
from hvdtune.tuner.measure.pair_runner import PairRunner
from hvdtune.tuner.measure.progress import Clock, Reporter, StudyProgress, WallClock
from hvdtune.tuner.measure.restart_run import ByRestarting, make_run
from hvdtune.tuner.results.fingerprint import complete_fingerprint
from hvdtune.tuner.results.profile import make_profile, replace_file, write_profile
from hvdtune.tuner.results.search_report import render_search
from hvdtune.tuner.results.study_report import render_report, verdict_document, write_verdict
from hvdtune.tuner.search.race import race
from hvdtune.tuner.search.stopping import Stop
from hvdtune.tuner.search.trial_loop import search
from hvdtune.tuner.search.verification import prove
from hvdtune.tuner.space.search_space import ALL_SCOPES, Space, describe, make_space
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.estimates import to_percent
from hvdtune.tuner.stats.verdict import Verdict, keep_default
from hvdtune.tuner.storage.study_store import StudyStore
from hvdtune.tuner.storage.trial_timelines import TrialTimelines
from hvdtune.tuner.study import PROFILE_FILE, REPORT_FILE, VERDICT_FILE, Study

_FOLLOW_POLL_S = 0.5
# Where no candidate is found though A/A differs by more than so many times what is to be resolved,
# that is no answer.
_NOISY = 2.0


@dataclass(frozen=True)
class AfterVerdict:
    """The training that goes on with a verdict, and the study that may be opened again."""

    job: RunningJob
    verdict: Verdict
    calibration: Calibration
    runner: PairRunner
    live: LiveRun
    space: Space
    options: TuneOptions
    run_dir: Path


@dataclass(frozen=True)
class TuneResult:
    """`job` is the run that goes on with the verdict's setting, None if the script has ended."""

    verdict: Verdict
    job: RunningJob | None


def tune(
    study: Study,
    run_dir: Path,
    options: TuneOptions | None = None,
    progress: Callable[[StudyProgress], None] | None = None,
    clock: Clock | None = None,
    after: Callable[[AfterVerdict], None] | None = None,
) -> TuneResult:
    """Tune the script and prove the result; continues the study that `run_dir` holds, if any.

    Writes study.db, pairs.jsonl, profile.yaml, verdict.json and report.md there. When the tuner
    itself fails, the training goes on with the default to its end before the error is raised.
    `after` is called when the training goes on under the verdict's setting.

    Raises:
        UsageError: nothing can be tuned with these options.
        StudyError: the script cannot be measured, or the study cannot be stored.
    """
    options = options or TuneOptions()
    space = _space(study, options)
    first = [adopted for each in study.first_settings if (adopted := space.adopt(each))]
    run_dir.mkdir(parents=True, exist_ok=True)
    clock = clock or WallClock()
    reporter = Reporter(progress or _ignore, clock, options.trials, options.time_budget_s)
    timelines = TrialTimelines(run_dir, options.keep_timelines, reporter.notice)
    with (
        StudyStore(
            run_dir,
            space,
            options,
            first_settings=first,
            share=study.share,
            timelines=timelines,
        ) as store,
        store.open_pairs() as log,
    ):
        first_launch = 1 + max((pair.launch for pair in log.pairs), default=-1)
        live = make_run(
            study.start_job,
            space.default,
            options,
            clock,
            reporter,
            first_launch if study.attached is None else study.attached,
            study.host,
            attached=study.attached is not None,
        )
        runner = PairRunner(
            live,
            log,
            reporter,
            space.default,
            seed=options.seed,
            objectives=options.objectives,
            traces=study.traces,
            steps=options.step_budget,
        )
        calibration, verdict = _run_or_leave(runner, store, options, study, run_dir)
        job = live.detach(verdict.setting)
        reporter.phase("done", verdict.text)
        if after is not None and job is not None and isinstance(live, LiveRun):
            after(AfterVerdict(job, verdict, calibration, runner, live, space, options, run_dir))
    return TuneResult(verdict, job)


def follow(job: RunningJob) -> ExitStatus:
    """Wait for the job's end, taking its events so that they do not pile up."""
    while (report := job.poll()) is None:
        job.next_event(_FOLLOW_POLL_S)
    return report


def _space(study: Study, options: TuneOptions) -> Space:
    return make_space(
        study.knobs,
        study.default,
        study.hosts,
        options.tunable,
        options.fixed,
        options.ranges,
        scopes=ALL_SCOPES if isinstance(study.start_job, ByRestarting) else ("live",),
    )


def _run_or_leave(
    runner: PairRunner, store: StudyStore, options: TuneOptions, study: Study, run_dir: Path
) -> tuple[Calibration, Verdict]:
    """As `_run`; where that fails the training goes on with the default before the error is raised.

    Stopped from outside, the tuner stops the run.
    """
    try:
        return _run(runner, store, options, study, run_dir)
    except Exception as error:
        # The one place where any failure of the tuner ends: the training must not feel it.
        job = runner.run.detach(runner.default)
        if job is not None:
            try:
                runner.reporter.notice(
                    f"the study stopped: {error}; training goes on as by default"
                )
            finally:
                follow(job)
        raise
    except BaseException:
        runner.run.stop()
        raise


def _run(
    runner: PairRunner, store: StudyStore, options: TuneOptions, study: Study, run_dir: Path
) -> tuple[Calibration, Verdict]:
    runner.reporter.phase("start", "starting the script")
    try:
        calibration = calibrate(runner, _shape(runner, store, options), options)
    except RunOver:
        text = "the script ended before the default was measured; let it take more steps"
        raise StudyError(text) from None
    floor = calibration.floor(options.min_verify_pairs)
    store.set("noise_floor", to_percent(floor))
    try:
        stop = search(runner, store, calibration, options)
        store.set("stop", stop.text)
        verdict = _decide(runner, store, calibration, options, stop)
    except RunOver:
        verdict = keep_default(runner.default, floor, _cut_short(store))
    store.set("verdict", json.dumps(verdict_document(verdict)))
    _write_results(runner, store, calibration, verdict, study, run_dir)
    return calibration, verdict


def _shape(runner: PairRunner, store: StudyStore, options: TuneOptions) -> BlockShape:
    fresh = choose_shape(runner, options)
    stored = store.get("block")
    if stored is not None:
        # Pairs of one study are alike: a resumed one keeps the block length.
        return dataclasses.replace(
            fresh, steps=stored["steps"], settle_steps=stored["settle_steps"]
        )
    store.set("block", {"steps": fresh.steps, "settle_steps": fresh.settle_steps})
    return fresh


def _decide(
    runner: PairRunner,
    store: StudyStore,
    calibration: Calibration,
    options: TuneOptions,
    stop: Stop,
) -> Verdict:
    ranked = race(runner, store, calibration, options)
    for trial, gain in ((runner.trial, runner.posterior.mean) for runner in ranked):
        plan = plan_verify(
            options,
            calibration.noise,
            current_cost(runner, calibration),
            runner.seconds_left,
            gain,
        )
        try:
            return prove(runner, trial.setting, calibration, plan, options, trial=trial.number)
        except TrialFailed as failure:
            setting = describe(trial.setting, runner.default)
            runner.reporter.notice(f"{setting} failed its verification: {failure}")
    tried = sum(
        trial.pairs > 0 and not trial.is_duplicate and trial.setting != runner.default
        for trial in store.trials()
    )
    if ranked:
        reason = "the default is kept: every candidate made the script fail"
    elif tried == 0:
        reason = f"the default is kept: {_none_measured(stop)}"
    else:
        reason = f"no setting beats the default: {tried} tried, none " + (
            f"likely to be {options.resolution_percent:g} % faster"
            if len(options.objectives) == 1
            else f"better in {options.objectives[0]}"
        )
        longest = calibration.floor(options.max_verify_pairs)
        if to_percent(longest) > _NOISY * options.resolution_percent:
            reason = (
                f"too noisy to tell: {tried} tried, none stands out; over "
                f"{options.max_verify_pairs} pairs the default would differ from itself by up to "
                f"{to_percent(longest):.1f} %; quieten the machine"
            )
            return keep_default(runner.default, longest, reason, "noisy")
    return keep_default(runner.default, calibration.floor(options.min_verify_pairs), reason)


def _none_measured(stop: Stop) -> str:
    if stop.kind in ("time", "steps"):
        return (
            f"the {stop.kind.removesuffix('s')} budget was too short to measure any other setting"
        )
    return "no other setting was measured"


def _cut_short(store: StudyStore) -> str:
    measured, best = store.measured_trials, store.best()
    found = "" if best is None else f", the best {best.gain_percent:+.1f} % but not verified"
    return f"the default is kept: the script ended after {measured} trials{found}"


def _write_results(
    runner: PairRunner,
    store: StudyStore,
    calibration: Calibration,
    verdict: Verdict,
    study: Study,
    run_dir: Path,
) -> None:
    fingerprint = complete_fingerprint(study.fingerprint, runner.run.world, run_dir)
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    report = render_report(verdict, runner.default, calibration, store.trials(), runner.log.pairs)
    report += "\n" + render_search(store, runner, verdict.candidate)
    try:
        profile = make_profile(verdict, runner.default, fingerprint, created)
        write_profile(profile, run_dir / PROFILE_FILE)
        write_verdict(verdict, run_dir / VERDICT_FILE)
        replace_file(run_dir / REPORT_FILE, report)
    except OSError as error:
        raise StudyError(f"cannot write {error.filename}: {error.strerror}") from error


def _ignore(progress: StudyProgress) -> None:
    del progress
