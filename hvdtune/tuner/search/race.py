"""The race: the best trials are measured again, side by side; each time the worse half drops out.

Single readings are noise: of forty the largest is a lucky one. So a trial stands where a Gaussian
process puts it that has seen all of them, each with its standard error.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hvdtune.tuner.measure.calibration import Calibration
from hvdtune.tuner.measure.live_run import TrialFailed
from hvdtune.tuner.measure.pair_runner import Bench
from hvdtune.tuner.space.objectives import by_merit
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.estimates import from_percent, pooled, t_reach
from hvdtune.tuner.storage.study_store import StudyStore, TrialView

# A setting less likely than this to gain what the study can resolve is not worth a verification.
_LIKELY = 0.2


@dataclass(frozen=True)
class Standing:
    """What all trials together make of one: its log ratio, and how sure that is."""

    mean: float
    sd: float

    def chance(self, log_ratio: float) -> float:
        """How likely the setting is better than this."""
        return float(0.5 * math.erfc((log_ratio - self.mean) / (math.sqrt(2) * self.sd)))


@dataclass(frozen=True)
class Runner:
    """A completed trial and where it stands."""

    trial: TrialView
    standing: Standing


def entrants(
    bench: Bench, store: StudyStore, calibration: Calibration, options: TuneOptions
) -> list[Runner]:
    """The trials that may be better than the default by what the study resolves, best first."""
    completed = [
        trial
        for trial in store.trials()
        if trial.state == "complete" and not trial.is_duplicate and trial.setting != bench.default
    ]
    if len(options.objectives) > 1:
        return _by_merit(completed, calibration)
    places = _standings(bench, store, calibration)
    worth = from_percent(options.resolution_percent)
    runners = [Runner(t, places[t.number]) for t in completed if t.number in places]
    hopeful = [runner for runner in runners if runner.standing.chance(worth) >= _LIKELY]
    return sorted(hopeful, key=lambda runner: -runner.standing.mean)


def race(
    bench: Bench, store: StudyStore, calibration: Calibration, options: TuneOptions
) -> list[Runner]:
    """The best trials after they have raced, best first, without those that failed or turned out
    not to be worth a verification.

    Of several objectives there is none by which to race: they stay in their order.
    """
    running = entrants(bench, store, calibration, options)[: options.race_entrants]
    if len(running) < 2 or len(options.objectives) > 1:
        return running
    bench.reporter.phase("race", f"the best {len(running)} trials against each other")
    failed: set[int] = set()
    for round_number in range(1, options.race_pairs + 1):
        for trial in [runner.trial for runner in running]:
            if len(bench.glances("race", trial.setting)) >= round_number:
                continue
            try:
                bench.pair("race", trial.setting, calibration.shape, trial.number)
            except TrialFailed as failure:
                bench.reporter.notice(f"trial {trial.number} leaves the race: {failure}")
                failed.add(trial.number)
        still = {runner.trial.number for runner in running} - failed
        running = [
            runner
            for runner in entrants(bench, store, calibration, options)
            if runner.trial.number in still
        ]
        if len(running) < 2:
            break
        if round_number < options.race_pairs:
            running = running[: max(2, math.ceil(len(running) / 2))]
    return running


def _standings(bench: Bench, store: StudyStore, calibration: Calibration) -> Mapping[int, Standing]:
    observed = store.observations()
    for trial in store.trials():
        raced = bench.glances("race", trial.setting) if trial.number in observed else []
        if raced:
            values = bench.glances("search", trial.setting) + raced
            own = pooled(values, calibration.glance, 0.95)
            observed[trial.number] = replace(
                observed[trial.number], value=own.mean, stderr=own.stderr
            )
    if len(observed) < 2:
        return {}
    from hvdtune.tuner.stats.gaussian_process import fit  # scipy takes half a second

    process = fit(list(observed.values()))
    means, sds = process.predict(np.array([each.point for each in observed.values()]))
    return {
        number: Standing(float(mean), float(sd))
        for number, mean, sd in zip(observed, means, sds, strict=True)
    }


def _by_merit(trials: Sequence[TrialView], calibration: Calibration) -> list[Runner]:
    """Those that may be better in the first objective, what is recommended first."""
    reach = t_reach(calibration.glance.df)
    hopeful = {t.number for t in trials if t.log_ratio + reach * t.log_stderr > 0}
    by_number = {trial.number: trial for trial in trials}
    ordered = by_merit({trial.number: trial.log_ratios for trial in trials}, hopeful)
    return [
        Runner(trial, Standing(trial.log_ratio, max(trial.log_stderr, 1e-4)))
        for trial in (by_number[number] for number in ordered)
    ]
