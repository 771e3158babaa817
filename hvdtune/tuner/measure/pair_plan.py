"""How a study's time is spent. Pure: seconds left and the calibration in, numbers of pairs out.

The search gets what is left of the budget after the verification, which has a least number of
pairs, and is not begun where these would exceed the budget by far.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.estimates import Noise, from_percent, pairs_needed

_MARGIN = 1.1
# From one look at the verification to the next there are so many times as many pairs; with one,
# two or three of them each interval has this confidence (normal theory; Pocock, 1977).
_LOOKS_APART = 2.45
_CONFIDENCES = (0.95, 0.9716, 0.9803)
# The standard error that a trial needs where the sampler knows it.
_TRIAL_STDERR_PERCENT = 4.0
_LEAST_WITHOUT_NOISE = 3
# The default's, and three others: with fewer there may be nothing to verify.
LEAST_TRIALS: Final = 4
# The default's own, after which the first other setting comes.
_FIRST_TRIALS = 1
# The half width of a verification's interval, as a share of the gain.
_SHARE_OF_GAIN = 1 / 2
# A log ratio from which on fewer pairs are a verification, since half of each runs under a setting
# that is so much slower: so many, where these resolve such a share of the gain.
LARGE_GAIN: Final = 0.2
_PAIRS_OF_LARGE_GAIN = 10
# With fewer pairs Wilcoxon's test cannot reach 95 %.
_FEWEST_OF_LARGE_GAIN = 6
_SHARE_OF_LARGE_GAIN = 1 / 4
# Of the time that is left when the calibration begins; where that takes more, it has fewer pairs.
_SHARE_OF_CALIBRATION = 1 / 4
# By such a share of the budget a verification may exceed it.
_OVER_BUDGET = 1 / 4


@dataclass(frozen=True)
class PairCost:
    """Measured seconds of one pair and of one launch (start to the first block).

    A pair of the verification takes `verify_share` times as long: half of it runs under the
    default, which is slower than what the search compares with. One of the race takes `race_share`
    times as long: what races is about as fast as what is in use, which many a trial is not.
    """

    pair_s: float
    launch_s: float
    verify_share: float = 1.0
    race_share: float = 1.0

    @property
    def verify_pair_s(self) -> float:
        """Seconds of one pair of the verification."""
        return self.pair_s * self.verify_share

    @property
    def race_pair_s(self) -> float:
        """Seconds of one pair of the race."""
        return self.pair_s * self.race_share


@dataclass(frozen=True)
class VerifyPlan:
    """Fresh pairs, and how many there are at each look at them: what is clear then needs no more.

    The pairs of a look come from `launches` launches, each of them a fresh start if `restart`, and
    with `may_restart` all but the first.
    """

    looks: tuple[int, ...]
    launches: int
    restart: bool
    may_restart: bool = True

    @property
    def pairs(self) -> int:
        """The number of pairs at the last look."""
        return self.looks[-1]

    @property
    def confidence(self) -> float:
        """Confidence of the interval at one look, chosen so that all looks together have 95 %."""
        return _CONFIDENCES[len(self.looks) - 1]


def wanted_pairs(options: TuneOptions, noise: Noise) -> int:
    """Pairs per trial, within the options' limits.

    A sampler that takes a trial's value for what it is needs it to the `resolution_percent`; one
    that knows each trial's standard error learns more from many settings measured roughly.
    """
    if options.sampler == "noisy_gp":
        needed = math.ceil((noise.sd / from_percent(_TRIAL_STDERR_PERCENT)) ** 2)
    else:
        needed = max(
            pairs_needed(noise, from_percent(options.proof.resolution_percent)),
            _LEAST_WITHOUT_NOISE,
        )
    return min(max(needed, options.pairs.min_per_trial), options.pairs.max_per_trial)


def calibration_pairs(options: TuneOptions, pair_s: float, seconds: float) -> int:
    """Pairs of the default with itself, with so many seconds left at their beginning."""
    most = options.pairs.calibration
    short = min(options.pairs.short_calibration, most)
    return max(short, math.floor(min(seconds * _SHARE_OF_CALIBRATION / pair_s, most)))


def plan_verify(
    options: TuneOptions, noise: Noise, cost: PairCost, seconds_left: float, gain: float
) -> VerifyPlan:
    """Plan as many launches as the time allows, and enough pairs to resolve half of the gain.

    If the time allows `proof.launches` new launches, all launches are new, because the running one
    helped to choose the winner. Otherwise the running launch is the first, or the only one if the
    script is not started again.
    """
    half_width = max(
        abs(gain) * _SHARE_OF_GAIN, from_percent(options.proof.resolution_percent) / 2.0
    )
    options = replace(
        options, proof=replace(options.proof, min_pairs=_least_for(options, noise, gain))
    )
    pair_s, launch_s = cost.verify_pair_s * _MARGIN, cost.launch_s * _MARGIN
    least = _least_that_fit(options, short_pairs(options, noise, gain), pair_s, seconds_left)
    spare_s = seconds_left - least * pair_s
    fitting = math.floor(spare_s / max(launch_s, 1e-9))
    restart = options.restarts and fitting >= options.proof.launches
    most = max(options.proof.launches, options.proof.max_launches) if options.restarts else 0
    starts = min(max(fitting, 0), most)
    launches = starts if restart else min(options.proof.launches, starts + 1)
    extra = math.floor((spare_s - starts * launch_s) / pair_s)
    wanted = _within_limits(options, pairs_needed(noise, half_width))
    looks = _looks(least, wanted)
    while len(looks) > 1 and looks[-1] * pair_s + len(looks) * starts * launch_s > seconds_left:
        looks = looks[:-1]
    if len(looks) == 1:
        looks = (min(wanted, least + max(0, extra)),)
    return VerifyPlan(looks, min(launches, looks[0]), restart, options.restarts)


def least_pairs(options: TuneOptions) -> tuple[int, int, int]:
    """The fewest pairs that calibration, one trial and verification may take."""
    trial = options.pairs.min_per_trial if options.trials else 0
    return options.pairs.calibration, trial, options.proof.min_pairs


def least_s(options: TuneOptions, pair_s: float, calibrated: int = 0) -> float:
    """Seconds without which there is no answer; `calibrated` pairs are there already."""
    calibration, trial, verification = least_pairs(options)
    return (calibration - calibrated + trial + verification * _MARGIN) * pair_s


def reserve_s(
    options: TuneOptions,
    noise: Noise,
    cost: PairCost,
    seconds_left: float,
    trials: int = LEAST_TRIALS,
    gain: float = 0.0,
) -> float:
    """Seconds to keep for the race and the verification, after so many trials.

    The full protocol if it takes at most half of what is left, else the least that is allowed.
    That is less for the first trials and where it does not fit, and at most half of what is left
    for the first of all: where the default is far too slow, a verification costs half, and needs
    fewer pairs. `gain` is that of what is in use. A large one needs few pairs, and is worth more
    proved over launches than increased by more trials: then the full protocol may take all that is
    left, or a little more.
    """
    comes_first = gain >= LARGE_GAIN and trials >= LEAST_TRIALS
    options = replace(
        options, proof=replace(options.proof, min_pairs=_least_for(options, noise, gain))
    )
    race_s = (options.pairs.race_entrants + 3 * options.pairs.race) * cost.race_pair_s
    half_width = max(gain * _SHARE_OF_GAIN, from_percent(1.0))
    pairs = _within_limits(options, pairs_needed(noise, half_width))
    full = (race_s + pairs * cost.verify_pair_s + options.proof.launches * cost.launch_s) * _MARGIN
    if full <= (seconds_left * _MARGIN if comes_first else seconds_left / 2):
        return full
    short = least_verify_s(options, noise, cost, gain)
    if trials <= _FIRST_TRIALS:
        return min(short, seconds_left / 2)
    if trials < LEAST_TRIALS:
        return short
    usual_or_short = verify_reserve_s(options, noise, cost, seconds_left, gain)
    return max(usual_or_short, min(full, seconds_left / 2))


def verify_reserve_s(
    options: TuneOptions, noise: Noise, cost: PairCost, seconds_left: float, gain: float
) -> float:
    """Seconds to keep for the verification of such a gain: the usual pairs if these fit into the
    time left, else the fewest."""
    usual = _least_for(options, noise, gain) * cost.verify_pair_s * _MARGIN
    return usual if usual <= seconds_left else least_verify_s(options, noise, cost, gain)


def short_pairs(options: TuneOptions, noise: Noise, gain: float) -> int:
    """The number of pairs of the shortest verification of such a gain."""
    short = _short(options)
    if options.proof.min_pairs > short and _is_shown_by(_FEWEST_OF_LARGE_GAIN, noise, gain):
        return min(short, _FEWEST_OF_LARGE_GAIN)
    return short


def can_verify(
    options: TuneOptions, noise: Noise, cost: PairCost, seconds_left: float, gain: float
) -> bool:
    """Return whether the shortest verification ends in time, or only slightly late."""
    longest_s = seconds_left + options.time_budget_s * _OVER_BUDGET
    return least_verify_s(options, noise, cost, gain) <= longest_s


def least_verify_s(options: TuneOptions, noise: Noise, cost: PairCost, gain: float) -> float:
    """Seconds of the shortest verification of such a gain."""
    return short_pairs(options, noise, gain) * cost.verify_pair_s * _MARGIN


def trial_pairs(
    options: TuneOptions, noise: Noise, cost: PairCost, search_s: float, trials_left: int
) -> int:
    """Pairs the next trial may take; 0 when the time left for the search is too short for one.

    About half of all trials are pruned early, so one that is not may take twice its share.
    """
    affordable = math.floor(search_s / cost.pair_s)
    if affordable < options.pairs.min_per_trial:
        return 0
    share = math.floor(2 * affordable / max(trials_left, 1))
    return max(options.pairs.min_per_trial, min(wanted_pairs(options, noise), share, affordable))


def as_budget(seconds: float) -> str:
    """So many seconds, rounded up, as `--time-budget` takes them."""
    return f"{math.ceil(seconds)}s" if seconds < 600 else f"{math.ceil(seconds / 60)}m"


def _least_that_fit(options: TuneOptions, short: int, pair_s: float, seconds_left: float) -> int:
    return max(short, math.floor(min(seconds_left / pair_s, options.proof.min_pairs)))


def _least_for(options: TuneOptions, noise: Noise, gain: float) -> int:
    fewest = max(_PAIRS_OF_LARGE_GAIN, _short(options))
    shown = _is_shown_by(fewest, noise, gain)
    return min(fewest, options.proof.min_pairs) if shown else options.proof.min_pairs


def _short(options: TuneOptions) -> int:
    return min(options.proof.short_pairs, options.proof.min_pairs)


def _is_shown_by(pairs: int, noise: Noise, gain: float) -> bool:
    return gain >= LARGE_GAIN and pairs_needed(noise, gain * _SHARE_OF_LARGE_GAIN) <= pairs


def _looks(first: int, wanted: int) -> tuple[int, ...]:
    looks = [wanted]
    while len(looks) < len(_CONFIDENCES) and looks[0] >= first * _LOOKS_APART:
        looks.insert(0, round(max(first, looks[0] / _LOOKS_APART)))
    return tuple(looks)


def _within_limits(options: TuneOptions, pairs: int) -> int:
    most = max(options.proof.min_pairs, options.proof.max_pairs)
    return min(max(pairs, options.proof.min_pairs), most)
