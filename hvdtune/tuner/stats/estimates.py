"""Estimates and decisions from paired log ratios; nothing here knows a clock or a job.

A log ratio is ln(reference step time / setting step time): positive means the setting is faster.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

CONFIDENCE = 0.95
_SAME_LAUNCHES_P = 0.4


@dataclass(frozen=True)
class Estimate:
    """Mean of log ratios with its standard error and interval; infinite where n is too small."""

    mean: float
    stderr: float
    low: float
    high: float
    n: int
    df: int

    @property
    def gain_percent(self) -> float:
        """The mean as a speed-up in percent."""
        return to_percent(self.mean)

    @property
    def plus_minus_percent(self) -> float:
        """Two standard errors in percent points: what progress and report show of a trial."""
        return 200.0 * self.stderr


@dataclass(frozen=True)
class Noise:
    """Spread of one pair of a setting against itself: `sd` of the log ratio, with `df`."""

    sd: float
    df: int


@dataclass(frozen=True)
class Observation:
    """A log ratio with its standard error at a point of the unit cube."""

    point: Sequence[float]
    value: float
    stderr: float


@dataclass(frozen=True)
class LaunchEffect:
    """How much the launches of one setting differ.

    `p` is the chance of such a difference when there is none (F test); `low` and `high` are the
    launches whose interval lies wholly below and wholly above zero (None: no such launch).
    """

    p: float
    low: float | None
    high: float | None


def t_reach(df: int, confidence: float = CONFIDENCE) -> float:
    """Half the width of a two-sided Student t interval, in standard errors."""
    from scipy import special  # takes half a second, which not every command should wait for

    return float(special.stdtrit(df, 0.5 + confidence / 2))


def to_percent(log_ratio: float) -> float:
    """Return how much faster this is, in percent of speed."""
    return 100.0 * math.expm1(log_ratio)


def pace(gain_percent: float) -> str:
    """A gain in words, as "1.8 % faster"."""
    return f"{abs(gain_percent):.1f} % {'faster' if gain_percent >= 0 else 'slower'}"


def from_percent(gain_percent: float) -> float:
    """A gain in percent as a log ratio."""
    return math.log1p(gain_percent / 100.0)


def estimate(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Mean and Student t interval of independent values (at least one)."""
    n = len(values)
    mean = float(np.mean(values))
    if n < 2:
        return Estimate(mean, math.inf, -math.inf, math.inf, n, 0)
    return _interval(mean, float(np.std(values, ddof=1)) / math.sqrt(n), n, n - 1, confidence)


def estimate_over_launches(
    launches: Sequence[Sequence[float]], confidence: float = CONFIDENCE
) -> Estimate:
    """Mean and interval where each launch may have a level of its own.

    The spread between launches carries the interval (k - 1 degrees of freedom) unless it is no
    larger than the spread within them explains (F test, p > 0.4); then all values are one sample.
    Where launches count, each counts the same however many values it has: weighted by their
    numbers, launches of 20, 1 and 1 pairs held the truth in 43 % of simulated cases. With 3 to 5
    launches of 4 to 16 pairs, even of different length, the interval covers 93 to 97 % whatever
    the size of the launch effect; with two, 90 to 97 %. One launch says nothing about others.
    """
    groups = [np.asarray(launch, dtype=float) for launch in launches if len(launch)]
    values = np.concatenate(groups)
    k, n = len(groups), len(values)
    if k < 2 or _launch_p(groups) > _SAME_LAUNCHES_P:
        return estimate(values.tolist(), confidence)
    levels = estimate([float(group.mean()) for group in groups], confidence)
    return replace(levels, n=n)


def launch_effect(launches: Sequence[Sequence[float]]) -> LaunchEffect:
    """Return whether the launches of one setting disagree; each launch is tested at 99 %."""
    groups = [np.asarray(launch, dtype=float) for launch in launches if len(launch) > 1]
    each = [estimate(group.tolist(), 0.99) for group in groups]
    slower = [e.mean for e in each if e.high < 0]
    faster = [e.mean for e in each if e.low > 0]
    return LaunchEffect(
        p=_launch_p(groups) if len(groups) > 1 else 1.0,
        low=min(slower) if slower else None,
        high=max(faster) if faster else None,
    )


def signed_rank_p(values: Sequence[float]) -> float:
    """Two-sided p of Wilcoxon's signed rank test against zero; 1 where every value is zero."""
    if not any(values):
        return 1.0
    from scipy import stats  # takes a second, which no command should wait for that needs none

    return float(stats.wilcoxon(values).pvalue)


def pooled(values: Sequence[float], noise: Noise, confidence: float) -> Estimate:
    """Estimate like `estimate`, with the spread of these values and the calibration together.

    With two or three pairs their own spread says next to nothing; the calibration's does.
    """
    n = len(values)
    mean = float(np.mean(values))
    df = noise.df + n - 1
    squares = noise.df * noise.sd**2 + float(np.sum((np.asarray(values) - mean) ** 2))
    return _interval(mean, math.sqrt(squares / df / n), n, df, confidence)


def prune_reason(
    values: Sequence[float], noise: Noise, best: Estimate | None, confidence: float = 0.95
) -> str | None:
    """Why a setting with these log ratios need not be measured further; None to go on.

    Looked at after every pair, so each look is stricter (two-sided `confidence`, hence 2.5 % of
    wrong decisions per look) than one final test would be.
    """
    own = pooled(values, noise, confidence)
    if own.high < 0:
        return "slower than the default"
    if best is not None:
        behind = best.mean - own.mean
        reach = t_reach(own.df, confidence)
        if behind > reach * math.hypot(own.stderr, best.stderr):
            return "behind the best so far"
    return None


def noise_of(values: Sequence[float]) -> Noise:
    """The spread of A/A log ratios, whose true mean is zero by construction."""
    return Noise(sd=float(np.sqrt(np.mean(np.square(values)))), df=len(values))


def noise_with(noise: Noise, groups: Sequence[Sequence[float]]) -> Noise:
    """The spread of one pair by what is known of it and by repeated readings, a group for each
    setting; groups of one tell nothing."""
    squares = noise.df * noise.sd**2
    squares += sum(float(np.sum(np.square(np.subtract(group, np.mean(group))))) for group in groups)
    df = noise.df + sum(len(group) - 1 for group in groups)
    return Noise(sd=math.sqrt(squares / df), df=df)


def noise_floor(noise: Noise, pairs: int) -> float:
    """The largest log ratio by which so many A/A pairs differ from nothing, at 95 %."""
    return t_reach(noise.df) * noise.sd / math.sqrt(pairs)


def pairs_needed(noise: Noise, half_width: float) -> int:
    """Return how many pairs bring the 95 % interval to this half width."""
    reach = t_reach(noise.df)
    return max(1, math.ceil((reach * noise.sd / half_width) ** 2))


def _interval(mean: float, stderr: float, n: int, df: int, confidence: float) -> Estimate:
    reach = t_reach(df, confidence) * stderr
    return Estimate(mean, stderr, mean - reach, mean + reach, n, df)


def _launch_p(groups: Sequence[np.ndarray]) -> float:
    from scipy import special

    k, n = len(groups), sum(len(group) for group in groups)
    if n <= k:
        return 0.0
    mean = np.concatenate(groups).mean()
    between = sum(len(group) * (group.mean() - mean) ** 2 for group in groups) / (k - 1)
    within = sum(float(np.sum((group - group.mean()) ** 2)) for group in groups) / (n - k)
    if within == 0.0:
        return 0.0 if between > 0 else 1.0
    return float(special.fdtrc(k - 1, n - k, between / within))
