"""The verdict of a study that has verified no setting, and the sentence that says why."""

from collections.abc import Sequence
from typing import Final

from hvdtune.core.config.knobs import Setting
from hvdtune.plural import counted
from hvdtune.tuner.measure.pair_plan import as_budget, least_verify_s, short_pairs
from hvdtune.tuner.search.context import StudyContext
from hvdtune.tuner.search.stopping import Stop
from hvdtune.tuner.space.search_space import describe
from hvdtune.tuner.stats.estimates import to_percent
from hvdtune.tuner.stats.verdict import Verdict, nothing_verified
from hvdtune.tuner.storage.study_store import StudyStore, TrialView

# Where no candidate is found though A/A differs by more than so many times what is to be resolved,
# that is no answer.
_NOISY: Final = 2.0


def candidates_failed(context: StudyContext, store: StudyStore) -> Verdict:
    """None of those that came as far as the verification could be measured there."""
    tried = _tried(context, store)
    failures = _failures(context, _failed(context, tried), len(tried))
    return _no_answer(context, f"nothing is proved: every candidate failed ({failures})")


def no_time_to_verify(
    context: StudyContext, store: StudyStore, setting: Setting, gain: float
) -> Verdict:
    """What the time left does not suffice to verify is not begun."""
    options, noise, cost = context.options, context.calibration.noise, context.cost_with(gain)
    pairs = short_pairs(options, noise, gain)
    lacking_s = least_verify_s(options, noise, cost, gain) - context.runner.seconds_left
    return _no_answer(
        context,
        f"nothing is proved: {_count(len(_tried(context, store)))}, and the time left is too short "
        f"to verify {describe(setting, context.default)} with {pairs} pairs of "
        f"{cost.verify_pair_s:.3g} s; {_give_more(context, lacking_s)}",
    )


def without_candidate(context: StudyContext, store: StudyStore, stop: Stop) -> Verdict:
    """No trial has come as far as the verification."""
    tried = _tried(context, store)
    failed = _failed(context, tried)
    if not tried:
        reason = _none_measured(context, stop)
        return _too_noisy(context, reason) or _no_answer(context, f"nothing is proved: {reason}")
    count = _failures(context, failed, len(tried)) if failed else _count(len(tried))
    if len(failed) == len(tried):
        return _no_answer(context, f"nothing is proved: every setting failed ({count})")
    options = context.options
    likely = (
        f"likely to be {options.proof.resolution_percent:g} % faster"
        if len(options.objectives) == 1
        else f"better in {options.objectives[0]}"
    )
    none = "none of the others" if failed else "none"
    reason = f"no setting is proved faster than the default: {count}, {none} {likely}"
    noisy = _too_noisy(context, f"{count}, {none} is clearly better")
    return noisy or _no_answer(context, reason)


def cut_short(context: StudyContext, store: StudyStore) -> Verdict:
    """The script has ended before anything could be verified."""
    measured, best = store.measured_trials, store.best()
    found = "" if best is None else f", best measured gain {best.gain_percent:+.1f} %, not verified"
    reason = f"the script ended after {counted(measured, 'trial')}{found}"
    return _too_noisy(context, reason) or _no_answer(context, f"nothing is proved: {reason}")


def _no_answer(context: StudyContext, reason: str) -> Verdict:
    pairs = context.options.proof.min_pairs
    return nothing_verified(context.default, context.calibration.floor(pairs), pairs, reason)


def _too_noisy(context: StudyContext, reason: str) -> Verdict | None:
    """The verdict where noise hides any answer, None where it does not."""
    options = context.options
    longest = context.calibration.floor(options.proof.max_pairs)
    if to_percent(longest) <= _NOISY * options.proof.resolution_percent:
        return None
    text = f"too noisy to decide: {reason}; reduce the load on the machine"
    return nothing_verified(context.default, longest, options.proof.max_pairs, text, "noisy")


def _tried(context: StudyContext, store: StudyStore) -> list[TrialView]:
    return [
        trial
        for trial in store.trials()
        if (trial.pairs > 0 or trial.state == "failed")
        and not trial.is_duplicate
        and trial.setting != context.default
    ]


def _failed(context: StudyContext, tried: Sequence[TrialView]) -> list[TrialView]:
    later = context.runner.failed
    return [trial for trial in tried if trial.state == "failed" or trial.setting in later]


def _failures(context: StudyContext, failed: Sequence[TrialView], tried: int) -> str:
    """Return how many failed, one at least, and why the last one did."""
    reasons = [trial.reason for trial in failed if trial.state == "failed"]
    last = context.runner.last_failure or (reasons[-1] if reasons else "")
    return f"{_count(tried)}, {len(failed)} of them failed, the last one because {last}"


def _count(tried: int) -> str:
    return f"{counted(tried, 'setting')} tried"


def _none_measured(context: StudyContext, stop: Stop) -> str:
    if stop.kind == "steps":
        return "the step budget was too short to measure any other setting"
    if stop.kind != "time":
        return "no other setting was measured"
    options, noise, cost = context.options, context.calibration.noise, context.cost
    trial_s = options.pairs.min_per_trial * cost.pair_s
    lacking_s = trial_s + least_verify_s(options, noise, cost, 0.0) - context.runner.seconds_left
    return (
        "the time budget was too short to measure any other setting, with pairs of "
        f"{cost.pair_s:.3g} s under the default; {_give_more(context, lacking_s)}"
    )


def _give_more(context: StudyContext, seconds: float) -> str:
    if context.runner.seconds_left < context.reporter.seconds_left:
        return "increase --step-budget"
    return f"increase --time-budget by {as_budget(seconds)}"
