"""What a study has led to, in sentences: what is in use, what to do and why. Pure."""

from dataclasses import replace

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.space.search_space import describe
from hvdtune.tuner.stats.verdict import Verdict

_ENOUGH_LAUNCHES = 3


def explained(verdict: Verdict, default: Setting, *, goes_on: bool) -> Verdict:
    """The verdict with the sentences for whoever trains; sizes are in units that people read.

    Args:
        goes_on: the training does, with the setting of the verdict.
    """
    lead = "in use" if goes_on else "to use"
    return replace(
        verdict, in_use=f"{lead}: {_choice(verdict, default)}", advice=_advice(verdict, default)
    )


def _choice(verdict: Verdict, default: Setting) -> str:
    if verdict.setting == default:
        return "the default"
    setting = describe(verdict.setting, default)
    if verdict.expected is not None:
        return f"{setting}, {verdict.expected.unproved_text}"
    assert verdict.gain_percent is not None
    assert verdict.ci_percent is not None
    low, high = verdict.ci_percent
    return f"{setting}, proved: {verdict.gain_percent:+.1f} % [{low:.1f}, {high:.1f}]"


def _advice(verdict: Verdict, default: Setting) -> str:
    """What to do and why, in a sentence or two without statistics."""
    candidate = "" if verdict.candidate is None else describe(verdict.candidate, default)
    if verdict.kind == "improved":
        assert verdict.gain_percent is not None
        held = (
            f"That was measured over {verdict.launches} launches."
            if verdict.launches >= _ENOUGH_LAUNCHES
            else "It was measured in so few launches that the next one may differ."
        )
        return (
            f"Use {candidate}: training is about {verdict.gain_percent:.1f} % faster with it than "
            f"with the default. {held}"
        )
    if verdict.expected is not None:
        return (
            f"Use {describe(verdict.setting, default)}: training is probably about "
            f"{verdict.expected.gain_percent:.1f} % faster with it than with the default, and "
            "hardly slower. That is not proved: `hvdtune verify` measures this profile.yaml for "
            "longer."
        )
    if verdict.kind == "noisy":
        return (
            "Keep the default for now: steps take so unequal a time here that a small gain does "
            "not show. Measure again on a quieter machine or for longer."
        )
    if verdict.kind == "unstable":
        return (
            f"Keep the default: what {candidate} gains differs from launch to launch, so the next "
            "launch may be slower with it."
        )
    if verdict.ci_percent is None:
        return "Keep the default: no other setting has been shown to be faster."
    return (
        f"Keep the default: {candidate} seemed the best of the others, and gains "
        f"{_at_most(verdict.ci_percent[1])}. `hvdtune timeline why` says what else costs time."
    )


def _at_most(high_percent: float) -> str:
    return "nothing" if high_percent <= 0 else f"at most about {high_percent:.1f} %, if anything"
