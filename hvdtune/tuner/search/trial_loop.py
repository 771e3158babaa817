"""The trials: Optuna proposes settings, each is measured until it is known or not worth it."""

from collections.abc import Sequence

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.measure.calibration import Calibration, current_cost
from hvdtune.tuner.measure.live_run import TrialFailed
from hvdtune.tuner.measure.pair_plan import reserve_s, trial_pairs
from hvdtune.tuner.measure.pair_runner import Bench
from hvdtune.tuner.search.stopping import (
    Account,
    Stop,
    out_of_settings,
    out_of_time,
    out_of_trials,
    unlikely_or_unpaid,
)
from hvdtune.tuner.space.plan_equivalence import plan_key
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.estimates import Estimate, estimate, pooled, prune_reason
from hvdtune.tuner.storage.pair_log import Pair
from hvdtune.tuner.storage.study_store import Further, Outcome, StudyStore

_PRUNE_AFTER = 2
_FAR_SLOWER = -0.4
_DUPLICATES_IN_A_ROW = 25


def search(bench: Bench, store: StudyStore, calibration: Calibration, options: TuneOptions) -> Stop:
    """Run trials until there are enough, the time is up, or more of them promise nothing.

    Returns why it ended.
    """
    bench.reporter.known(store.measured_trials, store.best())
    bench.reporter.phase("search", f"up to {options.trials} trials")
    traces = bench.traces
    if traces:
        from hvdtune.tuner.measure.step_tensors import tensor_bytes  # pandas takes a second

        # Settings that lead to the same fusion plan need not be measured twice.
        store.plan_key = plan_key(tensor_bytes(traces[0]))
    duplicates = 0
    while True:
        limit = _pairs_for_next(bench, store, calibration, options)
        stop = _reason_to_stop(bench, store, options, duplicates, limit)
        if stop is not None:
            bench.reporter.notice(f"the search ends: {stop.text}")
            return stop
        trial, setting = store.ask()
        if store.is_known(setting):
            duplicates += 1
            store.tell_duplicate(trial, setting)
            continue
        if setting == bench.default:
            store.tell(trial, _default_outcome(bench, options))
        else:
            store.tell(trial, _run_trial(bench, store, calibration, options, setting, trial, limit))
        duplicates = 0
        bench.reporter.trial_done(store.measured_trials, setting, store.best())


def _reason_to_stop(
    bench: Bench,
    store: StudyStore,
    options: TuneOptions,
    duplicates: int,
    limit: int,
) -> Stop | None:
    if store.measured_trials >= options.trials:
        return out_of_trials(options.trials)
    if limit == 0:
        return out_of_time(by_steps=bench.seconds_left < bench.reporter.seconds_left)
    if duplicates >= _DUPLICATES_IN_A_ROW or store.is_exhausted:
        return out_of_settings()
    if duplicates or len(options.objectives) > 1 or options.sampler == "grid":
        return None
    account = _account(bench, store, options)
    observed = list(store.observations().values())
    return unlikely_or_unpaid(observed, store.space, options.seed, account)


def _account(bench: Bench, store: StudyStore, options: TuneOptions) -> Account | None:
    if options.train_steps is None:
        return None
    left = max(0, options.train_steps - bench.live.launch_steps)
    lost_s = sum(_lost_s(pair) for pair in bench.log.pairs if pair.phase == "search")
    return Account(left * bench.live.step_s, lost_s / max(store.measured_trials, 1))


def _lost_s(pair: Pair) -> float:
    return pair.steps / 2 * max(0.0, pair.setting_step_ms - pair.reference_step_ms) / 1e3


def _pairs_for_next(
    bench: Bench, store: StudyStore, calibration: Calibration, options: TuneOptions
) -> int:
    left_s = bench.seconds_left
    cost = current_cost(bench, calibration)
    search_s = left_s - reserve_s(options, calibration.noise, cost, left_s)
    trials_left = options.trials - store.measured_trials
    return trial_pairs(options, calibration.glance, cost, search_s, trials_left)


def _default_outcome(bench: Bench, options: TuneOptions) -> Outcome:
    pairs = bench.log.of("calibrate", bench.default)
    own = estimate([pair.glance for pair in pairs])
    further = _further(pairs, options)
    return Outcome("complete", own.mean, own.stderr, own.n, "the default against itself", further)


def _run_trial(
    bench: Bench,
    store: StudyStore,
    calibration: Calibration,
    options: TuneOptions,
    setting: Setting,
    trial: int,
    limit: int,
) -> Outcome:
    try:
        return _measure(bench, store.best(), calibration, options, setting, trial, limit)
    except TrialFailed as failure:
        bench.reporter.notice(f"trial {trial} failed: {failure}")
        pairs = len(bench.glances("search", setting))
        return Outcome("failed", None, None, pairs, str(failure))


def _measure(
    bench: Bench,
    best: Estimate | None,
    calibration: Calibration,
    options: TuneOptions,
    setting: Setting,
    trial: int,
    limit: int,
) -> Outcome:
    values = bench.glances("search", setting)
    reason = ""
    while len(values) < limit and not reason:
        bench.pair("search", setting, calibration.shape, trial)
        values = bench.glances("search", setting)
        if len(values) >= _PRUNE_AFTER or values[-1] < _FAR_SLOWER:
            reason = _prune_reason(bench, best, calibration, options, setting) or ""
    own = pooled(values, calibration.glance, 0.95)
    further = _further(bench.log.of("search", setting), options)
    if len(values) < limit:
        return Outcome("pruned", own.mean, own.stderr, own.n, reason, further)
    return Outcome("complete", own.mean, own.stderr, own.n, further=further)


def _prune_reason(
    bench: Bench,
    best: Estimate | None,
    calibration: Calibration,
    options: TuneOptions,
    setting: Setting,
) -> str | None:
    pairs = bench.log.of("search", setting)
    reason = prune_reason([pair.glance for pair in pairs], calibration.glance, best)
    if reason is None or len(options.objectives) == 1:
        return reason
    # Behind in the first objective it may be ahead in another: only worse in all is out.
    others = [[pair.further[name] for pair in pairs] for name in options.objectives[1:]]
    if len(pairs) > 2 and all(estimate(values).high < 0 for values in others):
        return prune_reason([pair.glance for pair in pairs], calibration.glance, None)
    return None


def _further(pairs: Sequence[Pair], options: TuneOptions) -> dict[str, Further]:
    found: dict[str, Further] = {}
    for name in options.objectives[1:]:
        own = estimate([pair.further[name] for pair in pairs])
        found[name] = Further(own.mean, own.stderr if own.n > 1 else abs(own.mean))
    return found
