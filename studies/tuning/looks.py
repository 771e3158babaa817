"""How often a training that is looked at all the time claims a gain of a setting that has none.

    python -m studies.tuning.looks                    # 200 trainings of all that is recorded
    python -m studies.tuning.looks few-huge --trainings 50 --steps 10000

One setting runs, and pairs against an equal one are measured now and then for a share of the steps.
After every pair the interval of `confidence_sequence` and that of a single look are compared with
the truth, which is 0; coverage is that of the former at a random stop.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hvdtune.tuner.measure.blocks import orders
from hvdtune.tuner.stats.confidence_sequence import LEAST_VALUES, interval_at_any_time
from hvdtune.tuner.stats.estimates import estimate
from studies.tuning.offline import grid_of
from studies.tuning.recordings.grid import Grid
from studies.tuning.recordings.record import DATA
from studies.tuning.recordings.replay import Cluster
from studies.tuning.recordings.scenarios import SCENARIOS

_BLOCK_STEPS = 4
_SETTLE_STEPS = 2
HEAD = (
    "| noise of | trainings | pairs | ever claims a difference | by single looks | "
    "holds the truth at a random stop | half width % median |\n|---|---|---|---|---|---|---|"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("scenarios", nargs="*")
    parser.add_argument("--trainings", type=int, default=200)
    parser.add_argument("--steps", type=int, default=50_000)
    parser.add_argument("--share", type=float, default=0.02, help="of the steps, for pairs")
    parser.add_argument("--folder", type=Path, default=DATA)
    arguments = parser.parse_args()
    names = arguments.scenarios or [
        name for name in SCENARIOS if (arguments.folder / f"{name}.csv").exists()
    ]
    print(HEAD)
    for name in names:
        grid = grid_of(name, arguments.folder)
        trainings = [
            probe(grid, seed, arguments.steps, arguments.share)
            for seed in range(arguments.trainings)
        ]
        print(row(name, trainings), flush=True)


def probe(grid: Grid, seed: int, steps: int, share: float) -> list[float]:
    """The log ratios of the pairs of one training, of a setting with itself."""
    cluster = Cluster(grid, seed)
    rest = round(4 * (_BLOCK_STEPS + _SETTLE_STEPS) * (1 / share - 1))
    found: list[float] = []
    while cluster.steps < steps:
        for _ in range(rest):
            cluster.step(0.0, _SETTLE_STEPS)
        logs: dict[str, list[float]] = {"A": [], "B": []}
        for letter in orders(f"{seed}:{len(found) // 2}")[len(found) % 2]:
            times = [cluster.step(0.0, at) for at in range(_SETTLE_STEPS + _BLOCK_STEPS)]
            logs[letter].append(math.log(sum(times[_SETTLE_STEPS:])))
        found.append(float(np.mean(logs["A"]) - np.mean(logs["B"])))
    return found


def row(name: str, trainings: Sequence[Sequence[float]]) -> str:
    """A line of the table."""
    claims = singles = held = 0
    widths = []
    for number, values in enumerate(trainings):
        stop = random.Random(number).randrange(LEAST_VALUES, len(values) + 1)
        looks = range(LEAST_VALUES, len(values) + 1)
        at_any_time = [interval_at_any_time(values[:n]) for n in looks]
        claims += any(not each.low <= 0 <= each.high for each in at_any_time)
        single = [estimate(values[:n]) for n in looks]
        singles += any(not each.low <= 0 <= each.high for each in single)
        own = at_any_time[stop - LEAST_VALUES]
        held += own.low <= 0 <= own.high
        widths.append(50 * (own.high - own.low))
    count = len(trainings)
    shares = [f"{100 * number / count:.1f} %" for number in (claims, singles, held)]
    cells = [name, str(count), str(len(trainings[0])), *shares, f"{np.median(widths):.2f}"]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
