"""The verdict from verification pairs. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from hvdtune.core.config.knobs import Setting, Value
from hvdtune.plural import counted
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.estimates import (
    CONFIDENCE,
    Estimate,
    LaunchEffect,
    estimate_over_launches,
    from_percent,
    launch_effect,
    signed_rank_p,
    to_percent,
)
from hvdtune.tuner.stats.posterior import Belief

VerdictKind = Literal["improved", "default", "unstable", "noisy"]

NO_IMPROVEMENT = 3
TOO_NOISY = 4
_LAUNCHES_DIFFER_P = 0.01
_ENOUGH_LAUNCHES = 3


@dataclass(frozen=True)
class Wording:
    """Names of the two settings in a verdict; with `slower` "", a slower candidate is unnamed.

    `best` precedes the gain of the fresh pairs.
    """

    bound: str = "no setting beats the default by more than"
    best: str = "the best one, in its fresh pairs: "
    slower: str = ""


A_GAIN = Wording()
A_AND_B = Wording("B beats A by no more than", "", "B is slower than A")


@dataclass(frozen=True)
class LaunchEvidence:
    """Gains of a setting in launches of a job, one per launch, those of earlier runs first.

    The interval is of the mean over launches, at 95 % after however many of them it is looked at;
    None: they are too few for one. `earlier` is how many launches are of earlier runs.
    """

    gains_percent: tuple[float, ...]
    earlier: int
    gain_percent: float
    ci_percent: tuple[float, float] | None

    @property
    def text(self) -> str:
        """The mean with its interval, and of how many launches it is."""
        earlier = f", {self.earlier} of them earlier" if self.earlier else ""
        basis = f"{scope_of(len(self.gains_percent))}{earlier}"
        if self.ci_percent is None:
            return f"{self.gain_percent:+.1f} % {basis}, too few for an interval"
        low, high = self.ci_percent
        return f"{self.gain_percent:+.1f} % [{low:.1f}, {high:.1f}] 95 % CI {basis}"


@dataclass(frozen=True)
class SimplerSetting:
    """A measured setting that changes only some of the knobs that another changes, to the same
    values, and what is believed of it."""

    setting: Mapping[str, Value]
    believed: Belief


@dataclass(frozen=True)
class Verdict:
    """The outcome of a study.

    The claim is the kind, with gain and interval of the candidate (None when there was none to
    verify), in percent, at 95 %. The choice is `setting`, which is to be used: the candidate if
    `kind` is "improved", else the default or, with what is `expected` of it, a setting that is
    probably better. The noise floor is over `noise_floor_pairs` pairs: the more there are, the
    lower it is. `believed` is what all readings together say of the candidate, `in_search` what
    those of the search alone did. `in_use` is the choice in a sentence, `advice` what to do and
    why, without statistics; a comparison has none of these. `membership` are the ranks of an
    elastic job for which it holds, "" where ranks do not change. `evidence` is that of the launches
    of earlier runs and of this one together, None where no earlier launch counts. `simpler` is a
    setting of fewer changes than `setting`, of which nearly as much is believed; None: no such one
    was measured. `proved_by` is the earlier study of whose launches gain and interval are, "" where
    they are of this one's.
    """

    kind: VerdictKind
    setting: Mapping[str, Value]
    candidate: Mapping[str, Value] | None
    gain_percent: float | None
    ci_percent: tuple[float, float] | None
    pairs: int
    launches: int
    noise_floor_percent: float
    noise_floor_pairs: int
    p_value: float | None
    text: str
    expected: Belief | None = None
    believed: Belief | None = None
    in_search: Belief | None = None
    in_use: str = ""
    advice: str = ""
    membership: str = ""
    evidence: LaunchEvidence | None = None
    simpler: SimplerSetting | None = None
    proved_by: str = ""

    @property
    def scope_text(self) -> str:
        """The scope of its interval."""
        return scope_of(self.launches, self.proved_by)

    @property
    def improved(self) -> bool:
        """Return whether a setting was proved faster than the default."""
        return self.kind == "improved"

    @property
    def exit_code(self) -> int:
        """0 improved, 3 no significant improvement, 4 too noisy to decide."""
        codes = {"improved": 0, "noisy": TOO_NOISY}
        return codes.get(self.kind, NO_IMPROVEMENT)


def judge(
    candidate: Setting,
    default: Setting,
    launches: Sequence[Sequence[float]],
    floor: float,
    *,
    resolution_percent: float = TuneOptions.proof.resolution_percent,
    wording: Wording = A_GAIN,
    confidence: float = CONFIDENCE,
) -> Verdict:
    """The verdict on a candidate from its verification log ratios by launch.

    `confidence` is above 95 % where this is one of several looks, so that all together have that.
    Improved: the interval lies above zero, Wilcoxon's p is as small and the gain above the A/A
    floor. Unstable: some launch is faster with it and another slower, or launches differ so
    much that their mean says nothing. Noisy: a gain of the resolution is not excluded (the
    interval reaches it) and could not have been shown (half the interval or the A/A floor is
    larger than the resolution). Otherwise "default": the interval is the bound of any gain.
    """
    values = [value for launch in launches for value in launch]
    est = estimate_over_launches(launches, confidence)
    p_value = signed_rank_p(values)
    kind: VerdictKind = "default"
    if _is_unstable(launch_effect(launches), est.low, est.high):
        kind = "unstable"
    elif est.low > 0 and p_value < 1 - confidence and est.mean > floor:
        kind = "improved"
    elif _is_noisy(est, floor, from_percent(resolution_percent)):
        kind = "noisy"
    return Verdict(
        kind=kind,
        setting=dict(candidate if kind == "improved" else default),
        candidate=dict(candidate),
        gain_percent=est.gain_percent,
        ci_percent=_interval(est),
        pairs=est.n,
        launches=len(launches),
        noise_floor_percent=to_percent(floor),
        noise_floor_pairs=est.n,
        p_value=p_value,
        text=_text(kind, est, launches, floor, resolution_percent, wording),
    )


def nothing_verified(
    default: Setting,
    floor: float,
    floor_pairs: int,
    reason: str,
    kind: Literal["default", "noisy"] = "default",
) -> Verdict:
    """The verdict where there was no candidate to verify. It claims nothing about any setting.

    `floor` is over `floor_pairs` pairs.
    """
    floor_percent = to_percent(floor)
    text = f"{reason} (A/A floor {floor_percent:.1f} % over {counted(floor_pairs, 'pair')})"
    return Verdict(
        kind=kind,
        setting=dict(default),
        candidate=None,
        gain_percent=None,
        ci_percent=None,
        pairs=0,
        launches=0,
        noise_floor_percent=floor_percent,
        noise_floor_pairs=floor_pairs,
        p_value=None,
        text=text,
    )


def scope_of(launches: int, proved_by: str = "") -> str:
    """Return the scope of an interval from N launches, of the study `proved_by`."""
    scope = "in one launch" if launches == 1 else f"over {counted(launches, 'launch')}"
    return f"{scope} of {proved_by}" if proved_by else scope


def _text(
    kind: VerdictKind,
    est: Estimate,
    launches: Sequence[Sequence[float]],
    floor: float,
    resolution_percent: float,
    wording: Wording,
) -> str:
    low, high = _interval(est)
    scope = scope_of(len(launches))
    spread = f"{est.gain_percent:+.1f} % [{low:.1f}, {high:.1f}] 95 % CI {scope}"
    basis = f"{counted(est.n, 'pair')}, A/A floor {to_percent(floor):.1f} % over as many pairs"
    if len(launches) < _ENOUGH_LAUNCHES:
        basis += "; another launch may differ"
    if kind == "improved":
        return f"{spread}, {basis}"
    if kind == "unstable":
        return f"unstable: {_swing(launches)} ({spread}, {basis})"
    if kind == "noisy":
        return (
            f"too noisy to decide: a gain of {resolution_percent:g} % is neither proved nor "
            f"excluded ({wording.best}{spread}, {basis}); reduce the load on the machine or "
            "verify with more pairs"
        )
    if wording.slower and est.high < 0:
        return f"{wording.slower}: {spread}, {basis}"
    return f"{wording.bound} {max(to_percent(floor), high):.1f} % ({wording.best}{spread}, {basis})"


def _interval(est: Estimate) -> tuple[float, float]:
    return to_percent(est.low), to_percent(est.high)


def _is_noisy(est: Estimate, floor: float, resolution: float) -> bool:
    return est.high >= resolution and max((est.high - est.low) / 2, floor) > resolution


def _is_unstable(effect: LaunchEffect, low: float, high: float) -> bool:
    if effect.low is not None and effect.high is not None:
        return True
    undecided = low <= 0 <= high
    return undecided and effect.high is not None and effect.p < _LAUNCHES_DIFFER_P


def _swing(launches: Sequence[Sequence[float]]) -> str:
    means = sorted(sum(launch) / len(launch) for launch in launches if launch)
    return f"{to_percent(means[-1]):+.1f} % in one launch, {to_percent(means[0]):+.1f} % in another"


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    """The verdict as JSON values."""
    document: dict[str, Any] = msgspec.to_builtins(verdict)
    return {"version": 1, "improved": verdict.improved, **document}
