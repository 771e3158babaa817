"""A whole study on a live run: calibrate, search, race, verify, go on with the result."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hvdtune.core.config.knobs import Setting
from hvdtune.errors import StudyError
from hvdtune.tuner.measure.blocks import BlockShape
from hvdtune.tuner.measure.calibration import calibrate
from hvdtune.tuner.measure.pair_plan import can_verify, plan_verify
from hvdtune.tuner.measure.pair_runner import PairRunner
from hvdtune.tuner.measure.progress import Clock, Reporter, StudyProgress, WallClock
from hvdtune.tuner.measure.restart_run import ByRestarting
from hvdtune.tuner.measure.run import (
    ExitStatus,
    MembershipChanged,
    ResumableRun,
    RunningJob,
    RunOver,
    TrialFailed,
)
from hvdtune.tuner.measure.runs import make_run
from hvdtune.tuner.results.advice import explained
from hvdtune.tuner.results.earlier_studies import known_setting, shared_studies
from hvdtune.tuner.results.fingerprint import (
    Fingerprint,
    differences,
    parse_fingerprint,
    recorded_operations,
    recorded_tensors,
)
from hvdtune.tuner.results.run_files import write_results
from hvdtune.tuner.results.search_report import render_search
from hvdtune.tuner.results.study_report import render_report
from hvdtune.tuner.results.unsearched import left_by_restarting, left_in_live_run
from hvdtune.tuner.search.beliefs import Believed, posteriors
from hvdtune.tuner.search.choice import with_choice, with_simpler
from hvdtune.tuner.search.context import StudyContext
from hvdtune.tuner.search.known_setting import KnownSetting, confirm
from hvdtune.tuner.search.race import race
from hvdtune.tuner.search.samplers import sampler_for
from hvdtune.tuner.search.stopping import Stop
from hvdtune.tuner.search.trial_loop import search
from hvdtune.tuner.search.unproved import (
    candidates_failed,
    cut_short,
    no_time_to_verify,
    without_candidate,
)
from hvdtune.tuner.search.verification import prove
from hvdtune.tuner.space.search_space import ALL_SCOPES, LIVE_SCOPES, Space, describe
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.estimates import to_percent
from hvdtune.tuner.stats.posterior import Posterior, belief_of
from hvdtune.tuner.stats.verdict import Verdict, verdict_document
from hvdtune.tuner.storage.study_store import StudyStore
from hvdtune.tuner.storage.trial_timelines import TrialTimelines
from hvdtune.tuner.study import Study

_FOLLOW_POLL_S = 0.5


@dataclass(frozen=True)
class AfterVerdict:
    """The training that goes on with a verdict, and the study that may be opened again.

    `prior` is what is believed of the verdict's setting in this launch, None of the default.
    """

    job: RunningJob
    verdict: Verdict
    context: StudyContext
    run: ResumableRun
    space: Space
    run_dir: Path
    prior: Posterior | None = None


@dataclass(frozen=True)
class TuneResult:
    """`job` is the run that goes on with the verdict's setting, None if the script has ended."""

    verdict: Verdict
    job: RunningJob | None


@dataclass(frozen=True)
class _Decided:
    """A verdict, what is believed of the trials, and of its setting in this launch."""

    verdict: Verdict
    found: Mapping[int, Believed]
    here: Posterior | None
    goes_on: bool


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
        MembershipChanged: other ranks train before there is a verdict; the study can be continued
            when these are back.
    """
    options = options or TuneOptions()
    scopes = ALL_SCOPES if isinstance(study.start_job, ByRestarting) else LIVE_SCOPES
    # What an elastic job's script declares may differ between its ranks' memberships.
    asks_script = scopes == LIVE_SCOPES and not options.is_elastic
    space = options.space(
        study.knobs, study.default, study.hosts, scopes, awaits_script=asks_script
    )
    run_dir.mkdir(parents=True, exist_ok=True)
    clock = clock or WallClock()
    reporter = Reporter(progress, clock, options.trials, options.time_budget_s)
    timelines = TrialTimelines(run_dir, options.keep_timelines, reporter.notice)
    with (
        StudyStore(
            run_dir,
            space,
            options,
            first_settings=_first_settings(study, space),
            share=study.share,
            timelines=timelines,
            sampler=sampler_for(space, options),
            awaits_script=asks_script,
        ) as store,
        store.open_pairs() as log,
    ):
        run = make_run(
            study.start_job,
            space.default,
            options,
            clock,
            reporter,
            first_launch=log.next_launch,
            attached=study.attached,
            host=study.host,
        )
        runner = PairRunner(
            run,
            log,
            reporter,
            space.default,
            seed=options.seed,
            objectives=options.objectives,
            traces=study.traces,
            steps=options.step_budget,
            failed=store.get("failed") or (),
            last_failure=store.get("last_failure") or "",
            note_failed=lambda setting, reason: _note_failed(store, setting, reason),
        )
        context, verdict, prior = _run_or_leave(runner, store, options, study, run_dir)
        job = run.detach(verdict.setting, revive=True)
        reporter.phase("done", f"{verdict.text}; {verdict.in_use}")
        resumable = run.resumable
        if after is not None and job is not None and resumable is not None:
            after(AfterVerdict(job, verdict, context, resumable, store.space, run_dir, prior))
    return TuneResult(verdict, job)


def follow(job: RunningJob) -> ExitStatus:
    """Wait for the job's end, taking its events so that they do not pile up."""
    while (report := job.poll()) is None:
        job.next_event(_FOLLOW_POLL_S)
    return report


def _run_or_leave(
    runner: PairRunner, store: StudyStore, options: TuneOptions, study: Study, run_dir: Path
) -> tuple[StudyContext, Verdict, Posterior | None]:
    """Run as `_run` does; if that fails, the training gets the default before the error is raised.

    Stopped from outside, the tuner stops the run.
    """
    try:
        return _run(runner, store, options, study, run_dir)
    except MembershipChanged:
        raise
    except Exception as error:
        # The one place where any failure of the tuner ends: the training must not feel it.
        job = runner.run.detach(runner.default)
        if job is not None:
            try:
                runner.reporter.notice(
                    f"the study stopped: {error}; training continues with the default"
                )
            finally:
                follow(job)
        raise
    except BaseException:
        runner.run.stop()
        raise


def _run(
    runner: PairRunner, store: StudyStore, options: TuneOptions, study: Study, run_dir: Path
) -> tuple[StudyContext, Verdict, Posterior | None]:
    runner.reporter.phase("start", "starting the script")
    try:
        shape = _shape(runner, store)
        if runner.run.resumable is not None and not options.is_elastic:
            _take_script_knobs(runner, runner.run.resumable, store, options, study)
        calibration = calibrate(runner, shape, options)
    except RunOver:
        text = "the script ended before the default was measured; it must take more steps"
        raise StudyError(text) from None
    context = StudyContext(runner, calibration, options)
    floor = calibration.floor(options.proof.min_pairs)
    store.set("noise_floor", to_percent(floor))
    store.set("noise_floor_pairs", options.proof.min_pairs)
    decided = _confirm_or_search(context, store, study, run_dir)
    searched = [knob.name for knob in store.space.knobs]
    left = (
        left_by_restarting(searched, study.knobs)
        if isinstance(study.start_job, ByRestarting)
        else left_in_live_run(searched, recorded_operations(run_dir))
    )
    verdict = explained(decided.verdict, runner.default, goes_on=decided.goes_on, not_searched=left)
    if study.membership:
        text = f"with {study.membership}: {verdict.text}"
        verdict = dataclasses.replace(verdict, text=text, membership=study.membership)
    beliefs = {number: belief_of(each.over_launches) for number, each in decided.found.items()}
    store.set("beliefs", msgspec.to_builtins(beliefs, str_keys=True))
    store.set("verdict", json.dumps(verdict_document(verdict)))
    report = render_report(
        verdict, runner.default, calibration, store.trials(), runner.log.pairs, beliefs
    )
    report += "\n" + render_search(store, runner, verdict.candidate)
    known, job = study.fingerprint, runner.run.job_info
    write_results(run_dir, verdict, runner.default, known, job, report)
    return context, verdict, decided.here


def _confirm_or_search(
    context: StudyContext, store: StudyStore, study: Study, run_dir: Path
) -> _Decided:
    goes_on = context.run.resumable is not None
    try:
        known = _known_here(context, store, study, run_dir)
        confirmed = None if known is None else confirm(context, known)
        if confirmed is not None:
            store.set("stop", "this launch confirms the setting of earlier launches")
            return _Decided(confirmed.verdict, {}, confirmed.here, goes_on)
        verdict = _search(context, store)
    except RunOver:
        goes_on = False
        verdict = cut_short(context, store)
    is_single = len(context.options.objectives) == 1
    found = posteriors(context, store, verdict.candidate) if is_single else {}
    verdict = with_choice(context, store, verdict, found, goes_on=goes_on)
    settings = {trial.number: trial.setting for trial in store.trials()}
    verdict = with_simpler(verdict, context.default, settings, found)
    here = (each.here for number, each in found.items() if settings[number] == verdict.setting)
    return _Decided(verdict, found, next(here, None), goes_on)


def _search(context: StudyContext, store: StudyStore) -> Verdict:
    stop = search(context, store)
    store.set("stop", stop.text)
    return _decide(context, store, stop)


def _known_here(
    context: StudyContext, store: StudyStore, study: Study, run_dir: Path
) -> KnownSetting | None:
    """What earlier launches have ended with, where that holds for the script that runs."""
    options = context.options
    has_searched = any(pair.phase == "search" for pair in context.runner.log.pairs)
    if has_searched or not options.use_earlier or len(options.objectives) > 1:
        return None
    known = study.known or known_setting(shared_studies(store))
    if known is None:
        return None
    there = Fingerprint(tensors=parse_fingerprint(known.fingerprint).tensors)
    other = list(differences(there, Fingerprint(tensors=recorded_tensors(run_dir))))
    if store.space.adopt(known.setting) != dict(known.setting):
        other.append("that setting is outside this study's search space")
    if not other:
        return known
    context.reporter.notice(f"ignored the setting of {known.source}: {'; '.join(other)}")
    return None


def _take_script_knobs(
    runner: PairRunner, run: ResumableRun, store: StudyStore, options: TuneOptions, study: Study
) -> None:
    """Begins the study with the knobs that the script has declared by its first steps."""
    knobs = [*study.knobs, *run.script_knobs]
    default = dict(study.default)
    for knob in run.script_knobs:
        default.setdefault(knob.name, knob.default)
    space = options.space(knobs, default, study.hosts)
    run.take_default(space.default)
    runner.default = space.default
    store.begin(space, options, _first_settings(study, space), sampler_for(space, options))
    if study.near and space.adopt(study.first_settings[-1]):
        runner.reporter.notice(
            f"the setting of {study.near}, the most similar study, is tried early"
        )


def _note_failed(store: StudyStore, setting: Setting, reason: str) -> None:
    store.set("failed", [*(store.get("failed") or ()), dict(setting)])
    store.set("last_failure", reason)


def _first_settings(study: Study, space: Space) -> list[Setting]:
    return [adopted for each in study.first_settings if (adopted := space.adopt(each))]


def _shape(runner: PairRunner, store: StudyStore) -> BlockShape:
    fresh = runner.run.choose_shape()
    stored = store.get("block")
    if stored is not None:
        # Pairs of one study are alike: a resumed one keeps the block length.
        return dataclasses.replace(
            fresh, steps=stored["steps"], settle_steps=stored["settle_steps"]
        )
    store.set("block", {"steps": fresh.steps, "settle_steps": fresh.settle_steps})
    return fresh


def _decide(context: StudyContext, store: StudyStore, stop: Stop) -> Verdict:
    options, calibration = context.options, context.calibration
    ranked = race(context, store)
    for candidate in ranked:
        trial = candidate.trial
        seconds_left = context.runner.seconds_left
        gain = candidate.posterior.mean
        cost = context.cost_with(gain)
        if not can_verify(options, calibration.noise, cost, seconds_left, gain):
            return no_time_to_verify(context, store, trial.setting, gain)
        plan = plan_verify(options, calibration.noise, cost, seconds_left, gain)
        try:
            return prove(context, trial.setting, plan, trial=trial.number)
        except TrialFailed as failure:
            setting = describe(trial.setting, context.default)
            context.reporter.notice(f"{setting} failed its verification: {failure}")
    return candidates_failed(context, store) if ranked else without_candidate(context, store, stop)
