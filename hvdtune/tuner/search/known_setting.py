"""A setting that earlier launches of the job have ended with: measured first, and used if it holds.

Where it is a good bet over launches, this launch compares it with the default on as many pairs as a
verification takes at least, and is one more in the evidence over launches. A launch has a level of
its own, so what is believed of this one decides on its use. By restarting, each pair has launches
of its own, and what is believed over launches decides. Else, or if that does not bear it out, it is
searched like any other setting.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hvdtune.core.config.knobs import Setting
from hvdtune.plural import counted
from hvdtune.tuner.measure.run import TrialFailed
from hvdtune.tuner.search.context import StudyContext
from hvdtune.tuner.space.search_space import describe
from hvdtune.tuner.stats.choice import is_better_bet
from hvdtune.tuner.stats.confidence_sequence import interval_after_any_launch
from hvdtune.tuner.stats.estimates import Estimate, Noise, estimate, pooled, to_percent
from hvdtune.tuner.stats.launch_levels import OWN_LIKING, Levels, levels_of
from hvdtune.tuner.stats.posterior import Posterior, belief_of
from hvdtune.tuner.stats.verdict import LaunchEvidence, Verdict, VerdictKind, scope_of
from hvdtune.tuner.storage.pair_log import by_launch

# A launch with fewer says next to nothing, and would count like any other. A large gain is verified
# on as few in each.
LEAST_PAIRS: Final = 2


@dataclass(frozen=True)
class EarlierLaunch:
    """The fresh pairs of a setting in one launch, as log ratios: at least LEAST_PAIRS, or by
    restarting one.

    `noise` is that of its study. `was_searched` says that the setting was found in this launch,
    which has had its say in choosing it.
    """

    log_ratios: tuple[float, ...]
    noise: Noise
    was_searched: bool = False

    @property
    def mean(self) -> float:
        """The number by which it counts among launches."""
        return sum(self.log_ratios) / len(self.log_ratios)


@dataclass(frozen=True)
class EarlierProof:
    """What an earlier study, `source`, has proved, in percent, at 95 %."""

    gain_percent: float
    ci_percent: tuple[float, float]
    pairs: int
    launches: int
    source: str


@dataclass(frozen=True)
class KnownSetting:
    """The setting in use when the latest study of the job ended, not its default.

    `launches` are those of all its studies in which the setting was measured, oldest first, at
    least one; `proof` that of the latest study, if it has one. `source` and `fingerprint` are the
    latest study's.
    """

    setting: Setting
    launches: tuple[EarlierLaunch, ...]
    proof: EarlierProof | None
    source: str
    fingerprint: Mapping[str, Any]


@dataclass(frozen=True)
class Confirmed:
    """A known setting that is used, and what is believed of it in this launch."""

    verdict: Verdict
    here: Posterior


def confirm(context: StudyContext, known: KnownSetting) -> Confirmed | None:
    """Measure the known setting in this launch; None: the default is in use, and is to be searched
    from. Says what is known and what came of it."""
    notice = context.reporter.notice
    setting = describe(known.setting, context.default)
    if not is_better_bet(_levels(known.launches).over_launches):
        notice(
            f"{_opening(known, setting)}; its gain is uncertain, so other settings are tried too"
        )
        return None
    pairs = context.options.proof.min_pairs
    notice(
        f"{_opening(known, setting)}; testing it on {pairs} pairs; if confirmed, it is used "
        "without a search (--ignore-earlier to search again)"
    )
    try:
        fresh = _measure(context, known.setting, pairs)
    except TrialFailed as failure:
        notice(f"{setting}: {failure}: back to the default")
        return None
    if not fresh:
        notice(
            f"launches are too short to test {setting} within one launch, so other settings are "
            "tried"
        )
        return None
    own = [EarlierLaunch(tuple(values), context.calibration.noise) for values in fresh]
    levels = _levels([*known.launches, *own])
    if context.run.resumable is None:
        here, words = levels.over_launches, _fresh_text(fresh, "in launches of this study")
    else:
        here = levels.level(len(known.launches) + len(own) - 1)
        words = _fresh_text(fresh[-1:], "in this launch")
    if not is_better_bet(here):
        notice(f"{setting} is unlikely to be better here ({words}): back to the default")
        return None
    return Confirmed(_verdict(context, known, own, levels, words), here)


def _opening(known: KnownSetting, setting: str) -> str:
    gains = sorted(to_percent(launch.mean) for launch in known.launches)
    count = len(gains)
    gained = f"{gains[0]:+.1f} %" if count == 1 else f"{gains[0]:+.1f} to {gains[-1]:+.1f} %"
    are = "is" if count == 1 else "are"
    return (
        f"{counted(count, 'earlier launch')} of this job {are} known ({known.source}): {setting} "
        f"gained {gained}"
    )


def _measure(context: StudyContext, setting: Setting, pairs: int) -> list[list[float]]:
    """Log ratios by launch, of which the last goes on; none where launches are too short.

    By restarting, those of each pair by themselves.
    """
    runner, shape = context.runner, context.calibration.shape
    runner.reporter.phase("verify", f"the known setting: {counted(pairs, 'fresh pair')}")
    if runner.run.resumable is None:
        while len(runner.log.of("verify", setting)) < pairs:
            runner.pair("verify", setting, shape)
        return [[value] for value in runner.log_ratios("verify", setting)]
    for _ in range(2 * pairs + 1):
        launches = by_launch(runner.log.of("verify", setting))
        latest = launches.get(runner.run.launch, [])
        # The launch that goes on has to say something itself.
        if sum(map(len, launches.values())) >= pairs and len(latest) >= LEAST_PAIRS:
            return [values for values in launches.values() if len(values) >= LEAST_PAIRS]
        runner.pair("verify", setting, shape)
    return []


def _levels(launches: Sequence[EarlierLaunch]) -> Levels:
    variances = [launch.noise.sd**2 for launch in launches]
    pair_sd = math.sqrt(sum(variances) / len(variances))
    return levels_of([_reading(launch) for launch in launches], pair_sd)


def _reading(launch: EarlierLaunch) -> Posterior:
    own = pooled(launch.log_ratios, launch.noise, 0.95)
    liking = OWN_LIKING if launch.was_searched else 0.0
    return Posterior(own.mean, max(math.hypot(own.stderr, liking), 1e-6))


def _verdict(
    context: StudyContext,
    known: KnownSetting,
    own: Sequence[EarlierLaunch],
    levels: Levels,
    here: str,
) -> Verdict:
    """What is proved of a setting that is used: by these launches, or by the latest study still."""
    counting = [launch for launch in known.launches if not launch.was_searched]
    over = interval_after_any_launch([launch.mean for launch in (*counting, *own)])
    evidence = _evidence(counting, own, over)
    believed = belief_of(levels.over_launches)
    pairs = sum(len(launch.log_ratios) for launch in own)
    stands = None if known.proof is None or not _bears_out(over, known.proof) else known.proof
    kind: VerdictKind = "improved" if over.low > 0 or stands is not None else "noisy"
    gain, interval, launches = evidence.gain_percent, evidence.ci_percent, over.n
    # One launch is told by its pairs; as one of several it is a number without an interval.
    measured = here if over.n == 1 else f"{evidence.text}; {here}"
    proved_by = ""
    if over.low > 0:
        text = f"{evidence.text}; {here}"
    elif stands is not None:
        gain, interval, launches = stands.gain_percent, stands.ci_percent, stands.launches
        low, high = interval
        proved_by = stands.source
        text = (
            f"{gain:+.1f} % [{low:.1f}, {high:.1f}] 95 % CI {scope_of(launches, proved_by)}, "
            f"confirmed: {measured}"
        )
    else:
        text = f"not proved over launches: {measured}"
    floor = to_percent(context.calibration.floor(pairs))
    return Verdict(
        kind=kind,
        setting=dict(known.setting),
        candidate=dict(known.setting),
        gain_percent=gain,
        ci_percent=interval,
        pairs=pairs,
        launches=launches,
        noise_floor_percent=floor,
        noise_floor_pairs=pairs,
        p_value=None,
        text=text,
        expected=None if kind == "improved" else believed,
        believed=believed,
        evidence=evidence,
        proved_by=proved_by,
    )


def _bears_out(over: Estimate, proof: EarlierProof) -> bool:
    """Return whether the mean of all launches is where the proof has put it."""
    low, high = proof.ci_percent
    return low <= to_percent(over.mean) <= high


def _evidence(
    earlier: Sequence[EarlierLaunch], own: Sequence[EarlierLaunch], over: Estimate
) -> LaunchEvidence:
    gains = tuple(to_percent(launch.mean) for launch in (*earlier, *own))
    interval = (to_percent(over.low), to_percent(over.high)) if math.isfinite(over.low) else None
    return LaunchEvidence(gains, len(earlier), over.gain_percent, interval)


def _fresh_text(launches: Sequence[Sequence[float]], where: str) -> str:
    own = estimate([value for values in launches for value in values])
    low, high = to_percent(own.low), to_percent(own.high)
    return f"{own.gain_percent:+.1f} % [{low:.1f}, {high:.1f}] {where}, {counted(own.n, 'pair')}"
