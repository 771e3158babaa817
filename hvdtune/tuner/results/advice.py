"""What a study has led to, in sentences: what is in use, what to do and why. Pure."""

from dataclasses import replace

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.space.search_space import describe
from hvdtune.tuner.stats.estimates import pace
from hvdtune.tuner.stats.posterior import Belief
from hvdtune.tuner.stats.verdict import SimplerSetting, Verdict

_ENOUGH_LAUNCHES = 3
_TWICE = 100.0


def explained(
    verdict: Verdict, default: Setting, *, goes_on: bool, not_searched: str = ""
) -> Verdict:
    """The verdict with the sentences for whoever trains; sizes are in units that people read.

    Args:
        goes_on: the training does, with the setting of the verdict.
        not_searched: the knobs that were not searched, in a sentence; see `unsearched`.
    """
    lead = "in use" if goes_on else "to use"
    advice = _advice(verdict, default, "the searched knobs" if not_searched else "")
    if not_searched and verdict.setting == default:
        advice = f"{advice} {not_searched}"
    return replace(verdict, in_use=f"{lead}: {_choice(verdict, default)}", advice=advice)


def _choice(verdict: Verdict, default: Setting) -> str:
    if verdict.setting == default:
        return "the default"
    setting = describe(verdict.setting, default)
    if verdict.expected is not None:
        return f"{setting}, {verdict.expected.unproved_text}"
    assert verdict.gain_percent is not None
    assert verdict.ci_percent is not None
    low, high = verdict.ci_percent
    others = "" if verdict.believed is None else verdict.believed.others_by_all_text
    return (
        f"{setting}, proved {verdict.scope_text}: {verdict.gain_percent:+.1f} % "
        f"[{low:.1f}, {high:.1f}]{others}"
    )


def _advice(verdict: Verdict, default: Setting, searched: str) -> str:
    """Advice and its reason, in a sentence or two without statistics.

    Args:
        searched: the knobs whose default may be advised; "": all.
    """
    keep = f"Keep the default of {searched}" if searched else "Keep the default"
    candidate = "" if verdict.candidate is None else describe(verdict.candidate, default)
    if verdict.kind == "improved":
        return _advice_on_proved(verdict, candidate) + _on_simpler(verdict.simpler, default)
    if verdict.expected is not None:
        setting = describe(verdict.setting, default)
        advice = _advice_on_expected(verdict.expected, setting)
        return advice + _on_simpler(verdict.simpler, default)
    if verdict.kind == "noisy" and verdict.believed is not None and verdict.in_search is not None:
        return keep + _back_to_default(verdict.believed, verdict.in_search, candidate)
    if verdict.kind == "noisy":
        return (
            f"{keep} for now: step times vary too much here to show a small gain. "
            "Measure again on a quieter machine or for longer."
        )
    if verdict.kind == "unstable":
        return (
            f"{keep}: the gain of {candidate} differs between launches, so the next launch may "
            "be slower with it."
        )
    if verdict.ci_percent is None:
        return f"{keep}: no other setting is proved faster."
    return (
        f"{keep}: {candidate} seemed the best other setting and gains "
        f"{_at_most(verdict.ci_percent[1])}. `hvdtune timeline why` shows what else costs time."
    )


def _advice_on_proved(verdict: Verdict, candidate: str) -> str:
    assert verdict.gain_percent is not None
    faster = f"training is about {_faster(verdict.gain_percent)}"
    if verdict.proved_by:
        return (
            f"Use {candidate}: {verdict.proved_by} proved that {faster}, and this run confirms it."
        )
    if verdict.launches == 1:
        return (
            f"Use {candidate} in this run: {faster}. This holds for this run only: no other launch "
            "was measured, and the next one may differ."
        )
    held = (
        f"That was measured over {verdict.launches} launches."
        if verdict.launches >= _ENOUGH_LAUNCHES
        else f"Only {verdict.launches} launches were measured, so the next one may differ."
    )
    return f"Use {candidate}: {faster}. {held}"


def _faster(gain_percent: float) -> str:
    """By how much, as people say it: nobody imagines 1227 %."""
    joined = "than" if gain_percent < _TWICE else "as"
    return f"{_speed(gain_percent)} with it {joined} with the default"


def _speed(gain_percent: float) -> str:
    if gain_percent < _TWICE:
        return f"{gain_percent:.1f} % faster"
    return f"{1 + gain_percent / 100:.1f} times as fast"


def _on_simpler(simpler: SimplerSetting | None, default: Setting) -> str:
    """Return which of the changes matter, as a further sentence."""
    if simpler is None:
        return ""
    return (
        f" The estimate for {describe(simpler.setting, default)} alone is about the same: "
        f"{_speed(simpler.believed.gain_percent)}. It was not verified."
    )


def _advice_on_expected(expected: Belief, setting: str) -> str:
    faster = (
        f"training is probably about {_faster(expected.gain_percent)}, and a clear slowdown is "
        "unlikely"
    )
    if expected.scope == "in this launch":
        return (
            f"Use {setting} in this run: {faster}. This holds for this run only and is not proved: "
            "`hvdtune verify` measures this profile.yaml in other launches."
        )
    return (
        f"Use {setting}: {faster}. That is not proved: `hvdtune verify` measures this profile.yaml "
        "for longer."
    )


def _back_to_default(believed: Belief, in_search: Belief, candidate: str) -> str:
    """The reason not to use a verified setting that may be better, after the advice."""
    seemed = f"{candidate} seemed {pace(in_search.gain_percent)} {in_search.scope}"
    return (
        f" for now: {seemed}, but the estimate over all launches is between "
        f"{pace(believed.low_percent)} and {pace(believed.high_percent)}, so the default is "
        "the safer choice. Measure again on a quieter machine or for longer."
    )


def _at_most(high_percent: float) -> str:
    return "nothing" if high_percent <= 0 else f"at most about {high_percent:.1f} %"
