"""The setting in use during the search: a clearly better one, as soon as it is found.

Trials are compared with it instead of the default, so that the training does not slow down for
them. This is a choice, not a claim: a verification compares with the default only.
"""

from typing import Final

from hvdtune.tuner.measure.pair_plan import LARGE_GAIN, least_verify_s
from hvdtune.tuner.measure.pair_runner import PairRunner
from hvdtune.tuner.measure.run import TrialFailed
from hvdtune.tuner.search.beliefs import foremost
from hvdtune.tuner.search.context import StudyContext
from hvdtune.tuner.stats.estimates import CONFIDENCE, from_percent, pooled
from hvdtune.tuner.stats.posterior import REACH
from hvdtune.tuner.storage.in_use import InUse
from hvdtune.tuner.storage.study_store import StudyStore, TrialView

# By so much a setting must be ahead of the one in use: of the default for certain, since what that
# reads by luck is added to all that is compared with it later.
LEAST_PERCENT: Final = 5.0
# One alone would be believed by the calibration's noise, which does not know every disturbance.
_LEAST_PAIRS: Final = 2
_MOST_PAIRS: Final = 3


def tell_what_is_used(context: StudyContext) -> None:
    """Say what is in use in place of the default, if anything is."""
    in_use = context.runner.in_use
    if in_use.setting == context.default:
        return
    context.reporter.uses(in_use, f"in use during the search: {in_use.text(context.default)}")


def use_better(context: StudyContext, store: StudyStore) -> None:
    """Use the best trial's setting from here on where it is clearly better than the one in use.

    What one trial reads may be luck. So a setting that seems to be ahead is measured anew, and
    these pairs alone decide. Once a setting has failed it stays with the default. Where the time
    left is too short for these pairs and a verification, that comes next instead.
    """
    runner = context.runner
    if len(context.options.objectives) > 1 or context.run.resumable is None or runner.failed:
        return
    trial = _seems_better(context, store)
    if trial is None or trial.setting == context.default or not _has_time(context, trial):
        return
    try:
        is_better = _is_better(context, trial)
    except TrialFailed as failure:
        context.reporter.notice(f"trial {trial.number} is not used: {failure}")
        return
    if is_better:
        _use(context, trial)


def _seems_better(context: StudyContext, store: StudyStore) -> TrialView | None:
    """The trial of which most is believed, if that is clearly ahead of what is in use; or else the
    one that reads most, where its own pairs alone show a large gain: where these are very noisy,
    the process that compares trials takes such a gain for noise."""
    trials = {trial.number: trial for trial in store.trials()}
    found = foremost(context, store)
    if found is not None:
        number, ahead = found
        if _is_clear(context.runner, ahead.mean, ahead.mean - REACH * ahead.sd):
            return trials[number]
    read = {number: each.value for number, each in store.observations().items()}
    if not read:
        return None
    most = max(read, key=lambda number: read[number])
    values = context.runner.search_log_ratios("search", trials[most].setting)
    fresh = context.runner.search_log_ratios("race", trials[most].setting)
    if not values or fresh:
        return None
    own = pooled(values, context.calibration.search_noise, CONFIDENCE)
    is_large = own.low - context.runner.in_use.log_ratio >= LARGE_GAIN
    return trials[most] if is_large else None


def _has_time(context: StudyContext, trial: TrialView) -> bool:
    options, noise = context.options, context.calibration.noise
    cost = context.cost_with(trial.log_ratio)
    verify_s = least_verify_s(options, noise, cost, trial.log_ratio)
    return _LEAST_PAIRS * cost.pair_s + verify_s <= context.runner.seconds_left


def _use(context: StudyContext, trial: TrialView) -> None:
    values = [
        value
        for phase in ("search", "race")
        for value in context.runner.search_log_ratios(phase, trial.setting)
    ]
    own = pooled(values, context.calibration.search_noise, CONFIDENCE)
    context.runner.use(InUse(trial.setting, own.mean))
    tell_what_is_used(context)


def _is_better(context: StudyContext, trial: TrialView) -> bool:
    """Return whether fresh pairs say so. They count in the race, too."""
    runner = context.runner
    while True:
        fresh = runner.search_log_ratios("race", trial.setting)
        if fresh:
            ahead = [value - runner.in_use.log_ratio for value in fresh]
            own = pooled(ahead, context.calibration.search_noise, CONFIDENCE)
            if len(fresh) >= _LEAST_PAIRS and _is_clear(runner, own.mean, own.low):
                return True
            if len(fresh) >= _MOST_PAIRS or own.high < from_percent(LEAST_PERCENT):
                return False
        runner.pair("race", trial.setting, context.calibration.shape, trial.number)


def _is_clear(runner: PairRunner, mean: float, low: float) -> bool:
    least = from_percent(LEAST_PERCENT)
    return mean >= least and low > (least if runner.in_use.setting == runner.default else 0.0)
