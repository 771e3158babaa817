"""The race: the best trials are measured again, side by side; each time the worse half drops out.

A trial stands where `beliefs` puts it, not where its own reading does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hvdtune.plural import counted
from hvdtune.tuner.measure.run import TrialFailed
from hvdtune.tuner.search.beliefs import search_posteriors
from hvdtune.tuner.search.context import StudyContext
from hvdtune.tuner.space.objectives import by_merit
from hvdtune.tuner.stats.estimates import from_percent, t_reach
from hvdtune.tuner.stats.posterior import Posterior
from hvdtune.tuner.storage.study_store import StudyStore, TrialView

# A setting less likely than this to gain what the study can resolve is not worth a verification.
_LIKELY = 0.2


@dataclass(frozen=True)
class Candidate:
    """A completed trial and where it stands."""

    trial: TrialView
    posterior: Posterior


def finalists(context: StudyContext, store: StudyStore) -> list[Candidate]:
    """The trials that may be better than the default by what the study resolves, best first."""
    completed = [
        trial
        for trial in store.trials()
        if trial.state == "complete" and not trial.is_duplicate and trial.setting != context.default
    ]
    if len(context.options.objectives) > 1:
        return _by_merit(context, completed)
    posteriors = search_posteriors(context, store)
    worth = from_percent(context.options.resolution_percent)
    candidates = [Candidate(t, posteriors[t.number]) for t in completed if t.number in posteriors]
    hopeful = [
        candidate for candidate in candidates if candidate.posterior.chance(worth) >= _LIKELY
    ]
    return sorted(hopeful, key=lambda candidate: -candidate.posterior.mean)


def race(context: StudyContext, store: StudyStore) -> list[Candidate]:
    """The best trials after they have raced, best first, without those that failed or turned out
    not to be worth a verification.

    Of several objectives there is none by which to race: they stay in their order.
    """
    running = finalists(context, store)[: context.options.race_entrants]
    if len(running) < 2 or len(context.options.objectives) > 1:
        return running
    context.reporter.phase("race", f"the best against each other: {counted(len(running), 'trial')}")
    failed: set[int] = set()
    for round_number in range(1, context.options.race_pairs + 1):
        for trial in [candidate.trial for candidate in running]:
            # What the others are compared with cannot be compared with itself.
            is_in_use = trial.setting == context.runner.in_use.setting
            measured = len(context.runner.search_log_ratios("race", trial.setting))
            if is_in_use or measured >= round_number:
                continue
            try:
                context.runner.pair("race", trial.setting, context.calibration.shape, trial.number)
            except TrialFailed as failure:
                context.reporter.notice(f"trial {trial.number} leaves the race: {failure}")
                failed.add(trial.number)
        still = {candidate.trial.number for candidate in running} - failed
        running = [
            candidate for candidate in finalists(context, store) if candidate.trial.number in still
        ]
        if len(running) < 2:
            break
        if round_number < context.options.race_pairs:
            running = running[: max(2, math.ceil(len(running) / 2))]
    return running


def _by_merit(context: StudyContext, trials: Sequence[TrialView]) -> list[Candidate]:
    """The trials that may be better in the first objective, the recommended one first."""
    reach = t_reach(context.calibration.search_noise.df)
    hopeful = {t.number for t in trials if t.log_ratio + reach * t.log_stderr > 0}
    by_number = {trial.number: trial for trial in trials}
    ordered = by_merit({trial.number: trial.log_ratios for trial in trials}, hopeful)
    return [
        Candidate(trial, Posterior(trial.log_ratio, max(trial.log_stderr, 1e-4)))
        for trial in (by_number[number] for number in ordered)
    ]
