"""The race: the best trials are measured again, side by side; each time the worse half drops out.

A trial stands where `beliefs` puts it, not where its own reading does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hvdtune.plural import counted
from hvdtune.tuner.measure.pair_plan import LARGE_GAIN, verify_reserve_s
from hvdtune.tuner.measure.run import TrialFailed
from hvdtune.tuner.search.beliefs import search_posteriors
from hvdtune.tuner.search.context import StudyContext
from hvdtune.tuner.space.objectives import by_merit
from hvdtune.tuner.stats.estimates import from_percent, t_reach
from hvdtune.tuner.stats.posterior import REACH, Posterior
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
    worth = from_percent(context.options.proof.resolution_percent)
    candidates = [Candidate(t, posteriors[t.number]) for t in completed if t.number in posteriors]
    hopeful = [
        candidate for candidate in candidates if candidate.posterior.chance(worth) >= _LIKELY
    ]
    return sorted(hopeful, key=lambda candidate: -candidate.posterior.mean)


def race(context: StudyContext, store: StudyStore) -> list[Candidate]:
    """The best trials after they have raced, best first, without those that failed or turned out
    not to be worth a verification.

    Of several objectives there is none by which to race: they stay in their order. Who is still in
    it is kept in the study: pairs of later rounds would have another trial enter it, or one return.
    Those that are far behind the best do not race, and follow it only where no other does.

    The race ends early, or is skipped, where the verification needs the time.
    """
    begun_s = context.runner.seconds_left
    rounds = context.options.pairs.race
    running, done = _as_left(context, store)
    if len(running) < 2 or len(context.options.objectives) > 1:
        return running
    near = [candidate for candidate in running if not _is_far_behind(candidate, running[0])]
    if len(near) < 2:
        return running
    running = near
    if done < rounds and _has_time(context, running[0], begun_s):
        found = counted(len(running), "trial")
        context.reporter.phase("race", f"the best against each other: {found}")
    for round_number in range(done + 1, rounds + 1):
        _keep(store, running, round_number - 1)
        for trial in [candidate.trial for candidate in running]:
            # What the others are compared with cannot be compared with itself.
            is_in_use = trial.setting == context.runner.in_use.setting
            measured = len(context.runner.search_log_ratios("race", trial.setting))
            if is_in_use or measured >= round_number:
                continue
            if not _has_time(context, running[0], begun_s):
                context.reporter.notice("the race ends: the verification needs the remaining time")
                running = _still(context, store, {each.trial.number for each in running})
                _keep(store, running, rounds)
                return running
            try:
                context.runner.pair("race", trial.setting, context.calibration.shape, trial.number)
            except TrialFailed as failure:
                context.reporter.notice(f"trial {trial.number} leaves the race: {failure}")
        running = _still(context, store, {candidate.trial.number for candidate in running})
        if len(running) < 2:
            break
        if round_number < rounds:
            running = running[: max(2, math.ceil(len(running) / 2))]
    _keep(store, running, rounds)
    return running


def _has_time(context: StudyContext, best: Candidate, begun_s: float) -> bool:
    """Check that a pair of the race leaves the time that the verification of the best needs.

    `begun_s` is the time that was left when the race began.
    """
    gain = best.posterior.mean
    cost = context.cost_with(gain)
    noise = context.calibration.noise
    keep_s = verify_reserve_s(context.options, noise, cost, begun_s, gain)
    return context.runner.seconds_left - cost.race_pair_s >= keep_s


def _is_far_behind(candidate: Candidate, best: Candidate) -> bool:
    own, first = candidate.posterior, best.posterior
    return first.mean - own.mean - REACH * math.hypot(first.sd, own.sd) > LARGE_GAIN


def _as_left(context: StudyContext, store: StudyStore) -> tuple[list[Candidate], int]:
    """Those that are in the race, and how many rounds are done: as a tuner before this one has left
    it, unless more trials have been measured since."""
    kept = store.get("race")
    if kept is None or kept["measured_trials"] != store.measured_trials:
        return finalists(context, store)[: context.options.pairs.race_entrants], 0
    return _still(context, store, set(kept["trials"])), kept["rounds"]


def _keep(store: StudyStore, running: Sequence[Candidate], rounds: int) -> None:
    trials = [candidate.trial.number for candidate in running]
    race = {"trials": trials, "rounds": rounds, "measured_trials": store.measured_trials}
    store.set("race", race)


def _still(context: StudyContext, store: StudyStore, trials: set[int]) -> list[Candidate]:
    return [
        candidate
        for candidate in finalists(context, store)
        if candidate.trial.number in trials and candidate.trial.setting not in context.runner.failed
    ]


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
