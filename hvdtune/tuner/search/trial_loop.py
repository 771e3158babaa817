"""The trials: Optuna proposes settings, each is measured until it is known or not worth it."""

from collections import defaultdict
from collections.abc import Sequence

from hvdtune.core.config.knobs import Setting
from hvdtune.plural import counted
from hvdtune.tuner.measure.pair_plan import reserve_s, trial_pairs
from hvdtune.tuner.measure.run import TrialFailed
from hvdtune.tuner.search.context import StudyContext
from hvdtune.tuner.search.stopping import (
    RemainingBudget,
    Stop,
    expected_gain_too_small,
    out_of_settings,
    out_of_time,
    out_of_trials,
)
from hvdtune.tuner.search.using import tell_what_is_used, use_better
from hvdtune.tuner.space.plan_equivalence import plan_key
from hvdtune.tuner.space.search_space import key_of
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.estimates import (
    Estimate,
    Noise,
    estimate,
    noise_with,
    pooled,
    prune_reason,
)
from hvdtune.tuner.storage.in_use import SEARCH_PHASES
from hvdtune.tuner.storage.pair_log import Pair
from hvdtune.tuner.storage.study_store import Further, StudyStore, TrialOutcome

_PRUNE_AFTER = 2
_FAR_SLOWER = -0.4
_DUPLICATES_IN_A_ROW = 25


def search(context: StudyContext, store: StudyStore) -> Stop:
    """Run trials until there are enough, the time is up, or more of them promise nothing.

    Returns why it ended.
    """
    context.reporter.known(store.measured_trials, store.best())
    context.reporter.phase("search", f"up to {counted(context.options.trials, 'trial')}")
    tell_what_is_used(context)  # by a study that is continued
    traces = context.runner.traces
    if traces:
        from hvdtune.tuner.measure.step_tensors import tensor_bytes  # pandas takes a second

        # Settings that lead to the same fusion plan need not be measured twice.
        store.plan_key = plan_key(tensor_bytes(traces[0]))
    duplicates = 0
    while True:
        limit = _pairs_for_next(context, store)
        stop = _reason_to_stop(context, store, duplicates, limit)
        if stop is not None:
            context.reporter.notice(f"the search ends: {stop.text}")
            return stop
        trial, setting = store.ask()
        if store.is_known(setting):
            duplicates += 1
            store.tell_duplicate(trial, setting)
            continue
        if setting == context.default:
            store.tell(trial, _default_outcome(context))
        else:
            store.tell(trial, _run_trial(context, store, setting, trial, limit))
            use_better(context, store)
        duplicates = 0
        context.reporter.trial_done(store.measured_trials, setting, store.best())


def _reason_to_stop(
    context: StudyContext, store: StudyStore, duplicates: int, limit: int
) -> Stop | None:
    if store.measured_trials >= context.options.trials:
        return out_of_trials(context.options.trials)
    if limit == 0:
        return out_of_time(by_steps=context.runner.seconds_left < context.reporter.seconds_left)
    if duplicates >= _DUPLICATES_IN_A_ROW or store.is_exhausted:
        return out_of_settings()
    if duplicates or len(context.options.objectives) > 1 or context.options.sampler == "grid":
        return None
    remaining = _remaining_budget(context, store)
    observed = list(store.observations().values())
    return expected_gain_too_small(observed, store.space, context.options.seed, remaining)


def _remaining_budget(context: StudyContext, store: StudyStore) -> RemainingBudget | None:
    if context.options.train_steps is None:
        return None
    left = max(0, context.options.train_steps - context.run.training_steps)
    lost_s = sum(_lost_s(pair) for pair in context.runner.log.pairs if pair.phase == "search")
    return RemainingBudget(left * context.run.step_s, lost_s / max(store.measured_trials, 1))


def _lost_s(pair: Pair) -> float:
    return pair.steps / 2 * max(0.0, pair.setting_step_ms - pair.reference_step_ms) / 1e3


def _pairs_for_next(context: StudyContext, store: StudyStore) -> int:
    left_s = context.runner.seconds_left
    cost = context.cost
    trials, noise = store.measured_trials, context.calibration.noise
    gain = context.runner.in_use.log_ratio
    search_s = left_s - reserve_s(context.options, noise, cost, left_s, trials, gain)
    trials_left = context.options.trials - trials
    return trial_pairs(context.options, _trial_noise(context), cost, search_s, trials_left)


def _trial_noise(context: StudyContext) -> Noise:
    """The spread of a pair that is compared with what is in use.

    The calibration knows that of the default. Another setting in its place may be noisier or
    quieter, and pairs measured with it show that.
    """
    runner, known = context.runner, context.calibration.search_noise
    used = runner.in_use.setting
    if used == context.default:
        return known
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for phase in SEARCH_PHASES:
        for pair in runner.log.of(phase):
            if used in (pair.setting, pair.reference):
                key = key_of(pair.setting), key_of(pair.reference)
                groups[key].append(pair.search_log_ratio)
    return noise_with(known, list(groups.values()))


def _default_outcome(context: StudyContext) -> TrialOutcome:
    pairs = context.runner.log.of("calibrate", context.default)
    own = estimate([pair.search_log_ratio for pair in pairs])
    further = _further(pairs, context.options)
    return TrialOutcome(
        "complete", own.mean, own.stderr, own.n, "the default against itself", further
    )


def _run_trial(
    context: StudyContext, store: StudyStore, setting: Setting, trial: int, limit: int
) -> TrialOutcome:
    try:
        return _measure(context, store.best(), setting, trial, limit)
    except TrialFailed as failure:
        context.reporter.notice(f"trial {trial} failed: {failure}")
        pairs = len(context.runner.search_log_ratios("search", setting))
        return TrialOutcome("failed", None, None, pairs, str(failure))


def _measure(
    context: StudyContext, best: Estimate | None, setting: Setting, trial: int, limit: int
) -> TrialOutcome:
    values = context.runner.search_log_ratios("search", setting)
    reason = ""
    while len(values) < limit and not reason:
        context.runner.pair("search", setting, context.calibration.shape, trial)
        values = context.runner.search_log_ratios("search", setting)
        behind = values[-1] - context.runner.in_use.log_ratio
        if len(values) >= _PRUNE_AFTER or behind < _FAR_SLOWER:
            reason = _prune_reason(context, best, setting) or ""
    own = pooled(values, context.calibration.search_noise, 0.95)
    further = _further(context.runner.log.of("search", setting), context.options)
    if len(values) < limit:
        return TrialOutcome("pruned", own.mean, own.stderr, own.n, reason, further)
    return TrialOutcome("complete", own.mean, own.stderr, own.n, further=further)


def _prune_reason(context: StudyContext, best: Estimate | None, setting: Setting) -> str | None:
    pairs = context.runner.log.of("search", setting)
    log_ratios, noise = [pair.search_log_ratio for pair in pairs], context.calibration.search_noise
    reason = prune_reason(log_ratios, noise, best)
    if reason is None or len(context.options.objectives) == 1:
        return reason
    # Behind in the first objective it may be ahead in another: only worse in all is out.
    others = [[pair.further[name] for pair in pairs] for name in context.options.objectives[1:]]
    if len(pairs) > 2 and all(estimate(values).high < 0 for values in others):
        return prune_reason(log_ratios, noise, None)
    return None


def _further(pairs: Sequence[Pair], options: TuneOptions) -> dict[str, Further]:
    found: dict[str, Further] = {}
    for name in options.objectives[1:]:
        own = estimate([pair.further[name] for pair in pairs])
        found[name] = Further(own.mean, own.stderr if own.n > 1 else abs(own.mean))
    return found
