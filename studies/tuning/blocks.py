"""How much pairs of the default with itself spread, by the length of their blocks.

    python -m studies.tuning.blocks

Pairs are cut out of the recorded runs of consecutive default steps (data/SCENARIO.runs.csv), with
two steps left out before each block; "typical" leaves the longest step of each block out, too.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Final

import numpy as np

from studies.tuning.recordings.record import DATA
from studies.tuning.recordings.scenarios import SCENARIOS

LENGTHS: Final = (2, 3, 4, 6, 8, 12, 20)
_GAP_STEPS: Final = 2
_APART_STEPS: Final = 7


def main() -> None:
    print("| scenario | steps in a block | sd of a pair % | typical | steps to a stderr of 1 % |")
    print("|---|---|---|---|---|")
    for name in SCENARIOS:
        path = DATA / f"{name}.runs.csv"
        if not path.exists():
            continue
        with path.open(newline="") as file:
            runs = [np.array(row[2].split(), dtype=float) for row in csv.reader(file)]
        for length in LENGTHS:
            whole, typical = spread(runs, length, 0), spread(runs, length, 1)
            steps = (100 * typical) ** 2 * 4 * (length + _GAP_STEPS)
            print(f"| {name} | {length} | {100 * whole:.1f} | {100 * typical:.1f} | {steps:.0f} |")


def spread(runs: Sequence[np.ndarray], length: int, longest: int) -> float:
    """Standard deviation of the log ratios of ABBA pairs whose blocks have so many steps, of which
    so many of the longest are left out."""
    width = length + _GAP_STEPS
    ratios = []
    for run in runs:
        for start in range(0, len(run) - 4 * width + 1, _APART_STEPS):
            blocks = run[start : start + 4 * width].reshape(4, width)[:, _GAP_STEPS:]
            logs = np.log(np.sort(blocks, axis=1)[:, : length - longest].mean(axis=1))
            ratios.append((logs[0] - logs[1] - logs[2] + logs[3]) / 2)
    return float(np.std(ratios))


if __name__ == "__main__":
    main()
