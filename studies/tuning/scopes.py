"""What intervals over launches and within one are worth, wherever measuring stops.

    python -m studies.tuning.scopes                     # 2,000 settings of each kind, two minutes
    python -m studies.tuning.scopes --settings 500 --seed 7

Twenty settings have a gain each, and in each launch another one: half of the variance is common to
them, as where the launch is bad for the default. All are read in the launch of a search, as surely
as the pairs of a search and their neighbours are; the best is verified on some pairs in each of
some launches, where both numbers are drawn: a random stop. What the tuner's own code believes is
compared with the truth, over launches and within the last launch.
"""

from __future__ import annotations

import argparse
import itertools
import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from hvdtune.tuner.search.beliefs import MeasuredLaunches, believed_after
from hvdtune.tuner.stats.estimates import Noise
from hvdtune.tuner.stats.launch_levels import OWN_LIKING
from hvdtune.tuner.stats.posterior import REACH, Posterior

PAIR_SDS: Final = (0.04, 0.10)
LAUNCH_SDS: Final = (0.0, 0.01, 0.02, 0.05)
GAIN_SDS: Final = (0.0, 0.03)  # of settings; 0: all are alike, and equal to the default
_SETTINGS: Final = 20
_CALIBRATION: Final = 8  # pairs, as a study has
_READ_BY: Final = 4  # pairs that a reading of the search is worth, with those of its neighbours
_WIDENED: Final = 1.3  # as its posteriors are
_PAIRS: Final = 40  # of a search
HEAD: Final = (
    "| a pair spreads by % | launches by % | settings by % | over launches: holds the truth | "
    "claims more than there is | half width % median | last launch: holds the truth | "
    "one launch only: over launches | half width % | that launch | half width % |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True)
class Job:
    """The spreads of a kind of job, as log ratios."""

    pair_sd: float
    launch_sd: float
    gain_sd: float


@dataclass(frozen=True)
class Outcome:
    """What is believed of one setting, and the truth of it."""

    over_launches: Posterior
    truth: float
    last: Posterior
    truth_of_last: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--settings", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(HEAD)
    for spreads in itertools.product(PAIR_SDS, LAUNCH_SDS, GAIN_SDS):
        draw = np.random.default_rng(arguments.seed)
        print(row(Job(*spreads), arguments.settings, draw), flush=True)


def row(job: Job, settings: int, draw: np.random.Generator) -> str:
    """A line of the table."""
    many = [outcome(job, draw, int(draw.integers(2, 7))) for _ in range(settings)]
    single = [outcome(job, draw, 0) for _ in range(settings)]
    spreads = [f"{100 * each:.0f}" for each in (job.pair_sd, job.launch_sd, job.gain_sd)]
    claims = [each.over_launches.mean - REACH * each.over_launches.sd > each.truth for each in many]
    cells = [
        _held([(each.over_launches, each.truth) for each in many]),
        _share(claims),
        _width([each.over_launches for each in many]),
        _held([(each.last, each.truth_of_last) for each in many]),
        _held([(each.over_launches, each.truth) for each in single]),
        _width([each.over_launches for each in single]),
        _held([(each.last, each.truth_of_last) for each in single]),
        _width([each.last for each in single]),
    ]
    return f"| {' | '.join(spreads + cells)} |"


def outcome(job: Job, draw: np.random.Generator, launches: int) -> Outcome:
    """The best of a search, verified in so many launches."""
    gains = job.gain_sd * draw.standard_normal(_SETTINGS)
    read_sd = math.hypot(job.pair_sd / math.sqrt(_READ_BY), OWN_LIKING)
    liked = (
        job.launch_sd * (draw.standard_normal(_SETTINGS) + draw.standard_normal()) / math.sqrt(2)
    )
    read = gains + liked + job.pair_sd / math.sqrt(_READ_BY) * draw.standard_normal(_SETTINGS)
    # A process that sees all of them knows by how much they differ.
    known = max(float(np.var(read)) - read_sd**2, 1e-6)
    share = known / (known + read_sd**2)
    best = int(read.argmax())
    centre = float(read.mean())
    sd = max(math.sqrt(share) * read_sd, job.pair_sd / math.sqrt(4 * _PAIRS))
    search = Posterior(centre + share * (float(read[best]) - centre), _WIDENED * sd)
    levels = gains[best] + job.launch_sd * draw.standard_normal(launches)
    fresh = {
        launch: (level + job.pair_sd * draw.standard_normal(int(draw.integers(4, 25)))).tolist()
        for launch, level in enumerate(levels, 1)
    }
    calibrated = job.pair_sd * math.sqrt(draw.chisquare(_CALIBRATION) / _CALIBRATION)
    measured = MeasuredLaunches(frozenset({0}), fresh, launches)
    found = believed_after(search, measured, Noise(calibrated, _CALIBRATION))
    last = float(levels[-1]) if launches else float(gains[best] + liked[best])
    return Outcome(found.over_launches, float(gains[best]), found.here, last)


def _held(found: list[tuple[Posterior, float]]) -> str:
    return _share([abs(each.mean - truth) <= REACH * each.sd for each, truth in found])


def _share(said: list[bool]) -> str:
    return f"{100 * sum(said) / len(said):.1f} %"


def _width(found: list[Posterior]) -> str:
    return f"{100 * REACH * float(np.median([each.sd for each in found])):.1f}"


if __name__ == "__main__":
    main()
