"""The trials: Optuna proposes settings, each is measured until it is known or not worth it."""

from collections.abc import Sequence

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.measure.calibration import Calibration, current_cost
from hvdtune.tuner.measure.live_run import TrialFailed
from hvdtune.tuner.measure.pair_plan import reserve_s, trial_pairs
from hvdtune.tuner.measure.pair_runner import PairRunner
from hvdtune.tuner.search.stopping import (
    RemainingBudget,
    Stop,
    expected_gain_too_small,
    out_of_settings,
    out_of_time,
    out_of_trials,
)
from hvdtune.tuner.space.plan_equivalence import plan_key
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.estimates import Estimate, estimate, pooled, prune_reason
from hvdtune.tuner.storage.pair_log import Pair
from hvdtune.tuner.storage.study_store import Further, StudyStore, TrialOutcome

_PRUNE_AFTER = 2
_FAR_SLOWER = -0.4
_DUPLICATES_IN_A_ROW = 25


def search(
    runner: PairRunner, store: StudyStore, calibration: Calibration, options: TuneOptions
) -> Stop:
    """Run trials until there are enough, the time is up, or more of them promise nothing.

    Returns why it ended.
    """
    runner.reporter.known(store.measured_trials, store.best())
    runner.reporter.phase("search", f"up to {options.trials} trials")
    traces = runner.traces
    if traces:
        from hvdtune.tuner.measure.step_tensors import tensor_bytes  # pandas takes a second

        # Settings that lead to the same fusion plan need not be measured twice.
        store.plan_key = plan_key(tensor_bytes(traces[0]))
    duplicates = 0
    while True:
        limit = _pairs_for_next(runner, store, calibration, options)
        stop = _reason_to_stop(runner, store, options, duplicates, limit)
        if stop is not None:
            runner.reporter.notice(f"the search ends: {stop.text}")
            return stop
        trial, setting = store.ask()
        if store.is_known(setting):
            duplicates += 1
            store.tell_duplicate(trial, setting)
            continue
        if setting == runner.default:
            store.tell(trial, _default_outcome(runner, options))
        else:
            store.tell(
                trial, _run_trial(runner, store, calibration, options, setting, trial, limit)
            )
        duplicates = 0
        runner.reporter.trial_done(store.measured_trials, setting, store.best())


def _reason_to_stop(
    runner: PairRunner,
    store: StudyStore,
    options: TuneOptions,
    duplicates: int,
    limit: int,
) -> Stop | None:
    if store.measured_trials >= options.trials:
        return out_of_trials(options.trials)
    if limit == 0:
        return out_of_time(by_steps=runner.seconds_left < runner.reporter.seconds_left)
    if duplicates >= _DUPLICATES_IN_A_ROW or store.is_exhausted:
        return out_of_settings()
    if duplicates or len(options.objectives) > 1 or options.sampler == "grid":
        return None
    remaining = _remaining_budget(runner, store, options)
    observed = list(store.observations().values())
    return expected_gain_too_small(observed, store.space, options.seed, remaining)


def _remaining_budget(
    runner: PairRunner, store: StudyStore, options: TuneOptions
) -> RemainingBudget | None:
    if options.train_steps is None:
        return None
    left = max(0, options.train_steps - runner.run.launch_steps)
    lost_s = sum(_lost_s(pair) for pair in runner.log.pairs if pair.phase == "search")
    return RemainingBudget(left * runner.run.step_s, lost_s / max(store.measured_trials, 1))


def _lost_s(pair: Pair) -> float:
    return pair.steps / 2 * max(0.0, pair.setting_step_ms - pair.reference_step_ms) / 1e3


def _pairs_for_next(
    runner: PairRunner, store: StudyStore, calibration: Calibration, options: TuneOptions
) -> int:
    left_s = runner.seconds_left
    cost = current_cost(runner, calibration)
    search_s = left_s - reserve_s(options, calibration.noise, cost, left_s)
    trials_left = options.trials - store.measured_trials
    return trial_pairs(options, calibration.search_noise, cost, search_s, trials_left)


def _default_outcome(runner: PairRunner, options: TuneOptions) -> TrialOutcome:
    pairs = runner.log.of("calibrate", runner.default)
    own = estimate([pair.search_log_ratio for pair in pairs])
    further = _further(pairs, options)
    return TrialOutcome(
        "complete", own.mean, own.stderr, own.n, "the default against itself", further
    )


def _run_trial(
    runner: PairRunner,
    store: StudyStore,
    calibration: Calibration,
    options: TuneOptions,
    setting: Setting,
    trial: int,
    limit: int,
) -> TrialOutcome:
    try:
        return _measure(runner, store.best(), calibration, options, setting, trial, limit)
    except TrialFailed as failure:
        runner.reporter.notice(f"trial {trial} failed: {failure}")
        pairs = len(runner.search_log_ratios("search", setting))
        return TrialOutcome("failed", None, None, pairs, str(failure))


def _measure(
    runner: PairRunner,
    best: Estimate | None,
    calibration: Calibration,
    options: TuneOptions,
    setting: Setting,
    trial: int,
    limit: int,
) -> TrialOutcome:
    values = runner.search_log_ratios("search", setting)
    reason = ""
    while len(values) < limit and not reason:
        runner.pair("search", setting, calibration.shape, trial)
        values = runner.search_log_ratios("search", setting)
        if len(values) >= _PRUNE_AFTER or values[-1] < _FAR_SLOWER:
            reason = _prune_reason(runner, best, calibration, options, setting) or ""
    own = pooled(values, calibration.search_noise, 0.95)
    further = _further(runner.log.of("search", setting), options)
    if len(values) < limit:
        return TrialOutcome("pruned", own.mean, own.stderr, own.n, reason, further)
    return TrialOutcome("complete", own.mean, own.stderr, own.n, further=further)


def _prune_reason(
    runner: PairRunner,
    best: Estimate | None,
    calibration: Calibration,
    options: TuneOptions,
    setting: Setting,
) -> str | None:
    pairs = runner.log.of("search", setting)
    reason = prune_reason([pair.search_log_ratio for pair in pairs], calibration.search_noise, best)
    if reason is None or len(options.objectives) == 1:
        return reason
    # Behind in the first objective it may be ahead in another: only worse in all is out.
    others = [[pair.further[name] for pair in pairs] for name in options.objectives[1:]]
    if len(pairs) > 2 and all(estimate(values).high < 0 for values in others):
        return prune_reason(
            [pair.search_log_ratio for pair in pairs], calibration.search_noise, None
        )
    return None


def _further(pairs: Sequence[Pair], options: TuneOptions) -> dict[str, Further]:
    found: dict[str, Further] = {}
    for name in options.objectives[1:]:
        own = estimate([pair.further[name] for pair in pairs])
        found[name] = Further(own.mean, own.stderr if own.n > 1 else abs(own.mean))
    return found
