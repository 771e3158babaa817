"""What the verification pairs say. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from hvdtune.core.knobs import Setting, Value
from hvdtune.tuner.statistics import (
    LaunchEffect,
    estimate_over_launches,
    launch_effect,
    signed_rank_p,
    to_percent,
)

_ALPHA = 0.05
_LAUNCHES_DIFFER_P = 0.01


@dataclass(frozen=True)
class Verdict:
    """The outcome of a study.

    `setting` is the one to use: the candidate if `kind` is "improved", else the default. Gain and
    interval are the candidate's (None when there was none to verify), in percent, at 95 %.
    """

    kind: Literal["improved", "default", "unstable"]
    setting: Mapping[str, Value]
    candidate: Mapping[str, Value] | None
    gain_percent: float | None
    ci_percent: tuple[float, float] | None
    pairs: int
    launches: int
    noise_floor_percent: float
    p_value: float | None
    text: str

    @property
    def improved(self) -> bool:
        """Whether a setting was proved faster than the default."""
        return self.kind == "improved"


def judge(
    candidate: Setting, default: Setting, launches: Sequence[Sequence[float]], floor: float
) -> Verdict:
    """The verdict on a candidate from its verification log ratios by launch.

    Improved: the 95 % interval lies above zero, Wilcoxon's p is below 0.05 and the gain above the
    A/A floor. Unstable: some launch is faster with it and another slower, or launches differ so
    much that their mean says nothing. Otherwise the default stays.
    """
    values = [value for launch in launches for value in launch]
    est = estimate_over_launches(launches)
    effect = launch_effect(launches)
    p_value = signed_rank_p(values)
    floor_percent = to_percent(floor)
    ci = (to_percent(est.low), to_percent(est.high))
    spread = f"{est.gain_percent:+.1f} % [{ci[0]:.1f}, {ci[1]:.1f}] 95 % CI"
    basis = f"{est.n} pairs, {_launches(len(launches))}, A/A floor {floor_percent:.1f} %"
    kind: Literal["improved", "default", "unstable"] = "default"
    bound = max(floor_percent, ci[1])
    text = f"no setting beats the default by more than {bound:.1f} % (best: {spread}, {basis})"
    if _is_unstable(effect, est.low, est.high):
        kind = "unstable"
        text = f"unstable: {_swing(launches)}; the default stays ({spread}, {basis})"
    elif est.low > 0 and p_value < _ALPHA and est.mean > floor:
        kind = "improved"
        text = f"{spread}, {basis}"
    return Verdict(
        kind=kind,
        setting=dict(candidate if kind == "improved" else default),
        candidate=dict(candidate),
        gain_percent=est.gain_percent,
        ci_percent=ci,
        pairs=est.n,
        launches=len(launches),
        noise_floor_percent=floor_percent,
        p_value=p_value,
        text=text,
    )


def keep_default(default: Setting, floor: float, reason: str) -> Verdict:
    """The verdict when no candidate was left to verify. It claims nothing about other settings."""
    floor_percent = to_percent(floor)
    text = f"{reason} (A/A floor {floor_percent:.1f} %)"
    return Verdict(
        kind="default",
        setting=dict(default),
        candidate=None,
        gain_percent=None,
        ci_percent=None,
        pairs=0,
        launches=0,
        noise_floor_percent=floor_percent,
        p_value=None,
        text=text,
    )


def _is_unstable(effect: LaunchEffect, low: float, high: float) -> bool:
    if effect.low is not None and effect.high is not None:
        return True
    undecided = low <= 0 <= high
    return undecided and effect.high is not None and effect.p < _LAUNCHES_DIFFER_P


def _swing(launches: Sequence[Sequence[float]]) -> str:
    means = sorted(sum(launch) / len(launch) for launch in launches if launch)
    return f"{to_percent(means[-1]):+.1f} % in one launch, {to_percent(means[0]):+.1f} % in another"


def _launches(count: int) -> str:
    return f"{count} launch" if count == 1 else f"{count} launches"
