"""What a verification would be worth that takes off lost processor time unless a test forbids it.

    OPENBLAS_NUM_THREADS=1 python -m studies.tuning.pretest    # some ten minutes

Made-up pairs whose log ratio goes with a covariate as recorded pairs of jobs on one host go with
the processor time that their ranks could have used and did not get (processor_time.py: correlations
of 0.61 to 0.67). The true gain is 0, 2 or 5 %, either way, and the setting itself moves the
covariate: by nothing, by half of what would explain the gain, by all of it, or by as much the
other way. Where the gain is 0 it moves it by what 5 % would take. The verdict is the tuner's own,
on pairs of three launches of one level, after one look.

"Plain" judges the pairs as they are. The others take the covariate off, with a coefficient from the
other four fifths of the pairs, unless Student's t test says that its mean is not 0 (p below the
level). Of each the table has the lowest share of intervals that hold the truth and the largest
share of verdicts "improved" for a setting that gains nothing, over all gains; then the share of
"improved" where the gain is 5 %, and the median half width.
"""

from __future__ import annotations

import argparse
import itertools
import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from hvdtune.tuner.stats.estimates import Noise, from_percent, noise_floor
from hvdtune.tuner.stats.verdict import judge

# None: plain
LEVELS: Final = (None, 0.05, 0.2)
GAINS_PERCENT: Final = (-5.0, -2.0, 0.0, 2.0, 5.0)
MOVED: Final = (0.0, 0.5, 1.0, -1.0)
SPREADS_PERCENT: Final = (5.0, 20.0)
PAIRS: Final = (8, 20, 60)
_WITHOUT_GAIN_PERCENT: Final = 5.0
_LARGE_PERCENT: Final = 5.0
_CORRELATION: Final = 0.65
_PARTS: Final = 5
_LAUNCHES: Final = 3
_CALIBRATED: Final = 5
_DEFAULT: Final = {"cycle_time_ms": 1.0}
_OTHER: Final = {"cycle_time_ms": 5.0}

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Job:
    """`explained` is the log ratio that the mean of the covariate accounts for."""

    spread: float
    pairs: int
    gain: float
    explained: float

    def draw(self, generator: np.random.Generator) -> tuple[Floats, Floats]:
        """The pairs' log ratios, and the covariate in units of its own effect on them."""
        covariate = _CORRELATION * self.spread * generator.standard_normal(self.pairs)
        rest = math.sqrt(1 - _CORRELATION**2) * self.spread
        own = rest * generator.standard_normal(self.pairs)
        return self.gain + covariate + own, self.explained + covariate


@dataclass
class Found:
    """Of verifications by one estimator."""

    holds: dict[tuple[float, float], list[bool]] = field(default_factory=dict)
    improved: dict[tuple[float, float], list[bool]] = field(default_factory=dict)
    half_widths: list[float] = field(default_factory=list)

    @property
    def cells(self) -> list[str]:
        lowest = min(float(np.mean(each)) for each in self.holds.values())
        without = [np.mean(each) for (gain, _), each in self.improved.items() if gain <= 0]
        large = [
            np.mean(each) for (gain, _), each in self.improved.items() if gain == _LARGE_PERCENT
        ]
        shares = (lowest, float(max(without)), float(np.mean(large)))
        return [*(f"{100 * share:.1f} %" for share in shares), f"{np.median(self.half_widths):.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=500, help="of each gain")
    arguments = parser.parse_args()
    names = ["plain", *(f"pretest {level:.0%}" for level in LEVELS if level is not None)]
    heads = " | ".join(f"{n}: holds | false gains | finds 5 % | half width %" for n in names)
    print(f"| a pair spreads by % | pairs | the setting moves the covariate | {heads} |")
    print("|---" * (3 + 4 * len(LEVELS)) + "|")
    for spread, pairs, moved in itertools.product(SPREADS_PERCENT, PAIRS, MOVED):
        found = rates(spread / 100, pairs, moved, arguments.draws)
        cells = " | ".join(cell for each in found for cell in each.cells)
        print(f"| {spread:g} | {pairs} | {moved:+.0%} | {cells} |", flush=True)


def rates(spread: float, pairs: int, moved: float, draws: int) -> list[Found]:
    """By estimator, in the order of LEVELS."""
    found = [Found() for _ in LEVELS]
    generator = np.random.default_rng(0)
    for gain_percent in GAINS_PERCENT:
        moves = from_percent(gain_percent or -_WITHOUT_GAIN_PERCENT)
        job = Job(spread, pairs, from_percent(gain_percent), moved * moves)
        for _ in range(draws):
            log_ratios, covariate = job.draw(generator)
            floor = floor_of(spread, pairs, generator)
            for each, level in zip(found, LEVELS, strict=True):
                add(each, job, gain_percent, adjusted(log_ratios, covariate, level), floor)
    return found


def add(found: Found, job: Job, gain_percent: float, log_ratios: Floats, floor: float) -> None:
    launches = [part.tolist() for part in np.array_split(log_ratios, _LAUNCHES)]
    verdict = judge(_OTHER, _DEFAULT, launches, floor)
    assert verdict.ci_percent is not None
    low, high = verdict.ci_percent
    key = (gain_percent, job.explained)
    found.holds.setdefault(key, []).append(low <= 100 * math.expm1(job.gain) <= high)
    found.improved.setdefault(key, []).append(verdict.improved)
    found.half_widths.append((high - low) / 2)


def floor_of(spread: float, pairs: int, generator: np.random.Generator) -> float:
    """The A/A floor that a calibration would tell."""
    own = spread * generator.standard_normal(_CALIBRATED)
    return noise_floor(Noise(float(np.sqrt(np.mean(own**2))), _CALIBRATED), pairs)


def adjusted(log_ratios: Floats, covariate: Floats, level: float | None) -> Floats:
    """Without what the covariate explains, by a coefficient from the other parts; as they are where
    the covariate's mean is not 0, or the level is None."""
    if level is None or float(stats.ttest_1samp(covariate, 0.0).pvalue) < level:
        return log_ratios
    parts = np.arange(len(log_ratios)) % _PARTS
    left = log_ratios.copy()
    for part in range(_PARTS):
        own = parts == part
        centred = covariate[~own] - covariate[~own].mean()
        left[own] -= float(centred @ log_ratios[~own] / (centred @ centred)) * covariate[own]
    return left


if __name__ == "__main__":
    main()
