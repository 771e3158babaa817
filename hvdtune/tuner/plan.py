"""How a study's time is spent. Pure: seconds left and the calibration in, numbers of pairs out.

Verification is never cut: the search gets what is left of the budget after it.
"""

import math
from dataclasses import dataclass

from hvdtune.tuner.options import TuneOptions
from hvdtune.tuner.statistics import Noise, from_percent, pairs_needed

_MARGIN = 1.1


@dataclass(frozen=True)
class Cost:
    """Measured seconds of one pair and of one launch (start to the first block)."""

    pair_s: float
    launch_s: float


@dataclass(frozen=True)
class VerifyPlan:
    """`pairs` fresh pairs in `launches` launches, each of them a fresh start if `restart`."""

    pairs: int
    launches: int
    restart: bool

    @property
    def pairs_per_launch(self) -> int:
        """Rounded up, so that the launches together hold at least `pairs`."""
        return math.ceil(self.pairs / self.launches)


def wanted_pairs(options: TuneOptions, noise: Noise) -> int:
    """Pairs per trial that resolve `resolution_percent`, within the options' limits."""
    needed = pairs_needed(noise, from_percent(options.resolution_percent))
    return min(max(needed, options.min_pairs_per_trial), options.max_pairs_per_trial)


def plan_verify(
    options: TuneOptions, noise: Noise, cost: Cost, seconds_left: float, gain: float
) -> VerifyPlan:
    """As many launches as the time allows, and pairs enough to resolve a fifth of the gain.

    Every launch is a fresh one when the time allows `verify_launches` of them: the launch that is
    running has had its say in choosing the winner. Otherwise that one is the first, or the only
    one where the script is not to be started again.
    """
    half_width = max(abs(gain) / 5.0, from_percent(options.resolution_percent) / 2.0)
    pair_s, launch_s = cost.pair_s * _MARGIN, cost.launch_s * _MARGIN
    spare_s = seconds_left - options.min_verify_pairs * pair_s
    fitting = math.floor(spare_s / max(launch_s, 1e-9))
    restart = options.restarts and fitting >= options.verify_launches
    most = max(options.verify_launches, options.max_verify_launches) if options.restarts else 0
    starts = min(max(fitting, 0), most)
    launches = starts if restart else min(options.verify_launches, starts + 1)
    extra = math.floor((spare_s - starts * launch_s) / pair_s)
    wanted = _within_limits(options, pairs_needed(noise, half_width))
    pairs = min(wanted, options.min_verify_pairs + max(0, extra))
    return VerifyPlan(pairs, min(launches, pairs), restart)


def reserve_s(options: TuneOptions, noise: Noise, cost: Cost, seconds_left: float) -> float:
    """Seconds to keep for the race and the verification.

    The full protocol if it takes at most half of what is left, else the least that is allowed.
    """
    race_s = options.race_entrants * options.race_pairs * cost.pair_s
    pairs = _within_limits(options, pairs_needed(noise, from_percent(1.0)))
    full = (race_s + pairs * cost.pair_s + options.verify_launches * cost.launch_s) * _MARGIN
    least = options.min_verify_pairs * cost.pair_s * _MARGIN
    return full if full <= seconds_left / 2 else max(least, min(full, seconds_left / 2))


def trial_pairs(
    options: TuneOptions, noise: Noise, cost: Cost, search_s: float, trials_left: int
) -> int:
    """Pairs the next trial may take; 0 when the time left for the search is too short for one.

    About half of all trials are pruned early, so one that is not may take twice its share.
    """
    affordable = math.floor(search_s / cost.pair_s)
    if affordable < options.min_pairs_per_trial:
        return 0
    share = math.floor(2 * affordable / max(trials_left, 1))
    return max(options.min_pairs_per_trial, min(wanted_pairs(options, noise), share, affordable))


def _within_limits(options: TuneOptions, pairs: int) -> int:
    most = max(options.min_verify_pairs, options.max_verify_pairs)
    return min(max(pairs, options.min_verify_pairs), most)
