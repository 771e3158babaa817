"""The race: the best trials are measured again, side by side, and the hindmost drop out."""

import math
from collections.abc import Sequence

from hvdtune.core.knobs import Setting
from hvdtune.tuner.bench import Bench
from hvdtune.tuner.calibrate import Calibration
from hvdtune.tuner.live import TrialFailed
from hvdtune.tuner.objectives import recommended
from hvdtune.tuner.options import TuneOptions
from hvdtune.tuner.statistics import Estimate, Noise, pooled, t_reach
from hvdtune.tuner.store import TrialView

_DROP_AFTER_ROUNDS = 2


def entrants(
    trials: Sequence[TrialView], default: Setting, noise: Noise, most: int
) -> list[TrialView]:
    """The best completed trials that may be better than the default, best first.

    May be: the upper end of the first objective's 95 % interval lies above zero.
    """
    reach = t_reach(noise.df)
    hopeful = [
        trial
        for trial in trials
        if trial.state == "complete"
        and not trial.is_duplicate
        and trial.setting != default
        and trial.log_ratio + reach * trial.log_stderr > 0
    ]
    return _by_merit(hopeful)[:most]


def race(
    bench: Bench, runners: Sequence[TrialView], calibration: Calibration, options: TuneOptions
) -> list[TrialView]:
    """The runners by the mean of all their pairs, best first, without those that failed.

    Of several objectives there is none by which to race: they stay in their order.
    """
    running = list(runners)
    if len(running) < 2 or any(trial.further for trial in running):
        return running
    bench.reporter.phase("race", f"the best {len(running)} trials against each other")
    for round_number in range(1, options.race_pairs + 1):
        for trial in list(running):
            if len(bench.log_ratios("race", trial.setting)) >= round_number:
                continue
            try:
                bench.pair("race", trial.setting, calibration.shape, trial.number)
            except TrialFailed as failure:
                bench.reporter.notice(f"trial {trial.number} leaves the race: {failure}")
                running.remove(trial)
        if round_number >= _DROP_AFTER_ROUNDS:
            running = _without_hindmost(bench, running, calibration.noise)
        if len(running) < 2:
            break
    return sorted(running, key=lambda trial: -standing(bench, trial, calibration.noise).mean)


def standing(bench: Bench, trial: TrialView, noise: Noise) -> Estimate:
    """A runner's estimate from its search and race pairs together."""
    values = bench.log_ratios("search", trial.setting) + bench.log_ratios("race", trial.setting)
    return pooled(values, noise, 0.95)


def _by_merit(trials: Sequence[TrialView]) -> list[TrialView]:
    """Best first; of several objectives the recommended point, then that of those left."""
    if not any(trial.further for trial in trials):
        return sorted(trials, key=lambda trial: -trial.log_ratio)
    points = {trial.number: trial.log_ratios for trial in trials}
    by_number = {trial.number: trial for trial in trials}
    ordered = []
    while (best := recommended(points)) is not None:
        ordered.append(by_number[best])
        del points[best]
    return ordered


def _without_hindmost(bench: Bench, running: Sequence[TrialView], noise: Noise) -> list[TrialView]:
    if not running:
        return []
    standings = {trial.number: standing(bench, trial, noise) for trial in running}
    leader = max(standings.values(), key=lambda each: each.mean)
    kept = []
    for trial in running:
        own = standings[trial.number]
        reach = t_reach(own.df)
        if leader.mean - own.mean <= reach * math.hypot(own.stderr, leader.stderr):
            kept.append(trial)
    return kept
