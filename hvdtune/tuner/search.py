"""The trials: Optuna proposes settings, each is measured until it is known or not worth it."""

from hvdtune.core.knobs import Setting
from hvdtune.tuner.bench import Bench
from hvdtune.tuner.calibrate import Calibration, current_cost
from hvdtune.tuner.live import TrialFailed
from hvdtune.tuner.options import TuneOptions
from hvdtune.tuner.plan import reserve_s, trial_pairs
from hvdtune.tuner.statistics import Estimate, estimate, pooled, prune_reason
from hvdtune.tuner.store import Outcome, StudyStore

_PRUNE_AFTER = 2
_FAR_SLOWER = -0.4
_DUPLICATES_IN_A_ROW = 25


def search(bench: Bench, store: StudyStore, calibration: Calibration, options: TuneOptions) -> None:
    """Run trials until there are enough, the time is up, or the space has nothing new."""
    bench.reporter.phase("search", f"up to {options.trials} trials")
    duplicates = 0
    while store.measured_trials < options.trials and duplicates < _DUPLICATES_IN_A_ROW:
        limit = _pairs_for_next(bench, store, calibration, options)
        if limit == 0:
            bench.reporter.notice("the time for the search is up")
            return
        trial, setting = store.ask()
        if store.is_known(setting):
            duplicates += 1
            store.tell_duplicate(trial, setting)
            continue
        if setting == bench.default:
            store.tell(trial, _default_outcome(bench))
        else:
            store.tell(trial, _run_trial(bench, store, calibration, setting, trial, limit))
        duplicates = 0
        bench.reporter.trial_done(store.measured_trials, store.best())


def _pairs_for_next(
    bench: Bench, store: StudyStore, calibration: Calibration, options: TuneOptions
) -> int:
    left_s = bench.reporter.seconds_left
    cost = current_cost(bench, calibration)
    search_s = left_s - reserve_s(options, calibration.noise, cost, left_s)
    trials_left = options.trials - store.measured_trials
    return trial_pairs(options, calibration.noise, cost, search_s, trials_left)


def _default_outcome(bench: Bench) -> Outcome:
    own = estimate(bench.log_ratios("calibrate", bench.default))
    return Outcome("complete", own.mean, own.stderr, own.n, "the default against itself")


def _run_trial(
    bench: Bench,
    store: StudyStore,
    calibration: Calibration,
    setting: Setting,
    trial: int,
    limit: int,
) -> Outcome:
    try:
        return _measure(bench, store.best(), calibration, setting, trial, limit)
    except TrialFailed as failure:
        bench.reporter.notice(f"trial {trial} failed: {failure}")
        pairs = len(bench.log_ratios("search", setting))
        return Outcome("failed", None, None, pairs, str(failure))


def _measure(
    bench: Bench,
    best: Estimate | None,
    calibration: Calibration,
    setting: Setting,
    trial: int,
    limit: int,
) -> Outcome:
    values = bench.log_ratios("search", setting)
    reason = ""
    while len(values) < limit and not reason:
        values.append(bench.pair("search", setting, calibration.shape, trial).log_ratio)
        if len(values) >= _PRUNE_AFTER or values[-1] < _FAR_SLOWER:
            reason = prune_reason(values, calibration.noise, best) or ""
    own = pooled(values, calibration.noise, 0.95)
    if len(values) < limit:
        return Outcome("pruned", own.mean, own.stderr, own.n, reason)
    return Outcome("complete", own.mean, own.stderr, own.n)
