"""What a pair gains by covariates that its setting does not move: control variates, cross-fitted.

    python -m studies.tuning.covariates

A pair says how much faster a setting is than the default, by two blocks of each. Of the default's
blocks it is known how far they are from those of the pairs just before, which has the mean 0
whatever the setting is; of what a block settles with, the same. Each is taken off with the
coefficient that the pairs of the other launches give (data/SCENARIO.csv). Typical steps are looked
at, as in a search.

The last columns are of means of four pairs of one setting in a row, cut out of undisturbed runs of
the default (data/SCENARIO.runs.csv), as in a verification.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from studies.tuning.recordings.record import BLOCK_STEPS, DATA, SETTLE_STEPS
from studies.tuning.recordings.scenarios import SCENARIOS

PREVIOUS: Final = (1, 2, 4, 8)
_IN_A_ROW: Final = 4
_SHORTER: Final = 0.75
_LEAST_OF_A_SETTING: Final = 8
_COUNTED: Final = slice(SETTLE_STEPS, None)
_SETTLING: Final = slice(0, SETTLE_STEPS)

Floats = NDArray[np.float64]
Row = dict[str, str]


def main() -> None:
    heads = " | ".join(f"{count} before" for count in PREVIOUS)
    print(f"| scenario | pairs | sd % | {heads} | settling steps | four in a row | 4 before |")
    print("|---" * (len(PREVIOUS) + 6) + "|")
    for name in SCENARIOS:
        rows = read(name)
        plain = residuals(*recorded(rows, _COUNTED, 1)[::2])
        adjusted = [cross_fitted(*recorded(rows, _COUNTED, count)) for count in PREVIOUS]
        settling = cross_fitted(*recorded(rows, _SETTLING, 1))
        shown = [plain, *adjusted, settling, *in_a_row(name)]
        print(f"| {name} | {len(plain)} | {' | '.join(sd(values) for values in shown)} |")


def sd(values: Floats) -> str:
    """In percent."""
    return f"{100 * np.std(values):.2f}"


def read(name: str) -> list[Row]:
    """All pairs, in the order of time."""
    with (DATA / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def recorded(rows: Sequence[Row], which: slice, previous: int) -> tuple[Floats, Floats, Floats]:
    """Of each pair of a setting that was measured often: the log ratio less that setting's mean,
    how much slower these steps of its default blocks were than those of so many pairs before, and
    the launch."""
    axes = list(rows[0])[5:-1]
    defaults = np.array([mean_of(row, "A", which) for row in rows])
    found: dict[tuple[str, ...], list[tuple[float, float, float]]] = defaultdict(list)
    for at in range(previous, len(rows)):
        row = rows[at]
        if rows[at - previous]["launch"] == row["launch"]:
            gain = mean_of(row, "A", _COUNTED) - mean_of(row, "B", _COUNTED)
            ahead = float(defaults[at] - defaults[at - previous : at].mean())
            key = tuple(row[axis] for axis in axes)
            found[key].append((gain, ahead, float(row["launch"])))
    kept = [np.array(each) for each in found.values() if len(each) >= _LEAST_OF_A_SETTING]
    for each in kept:
        each[:, 0] -= each[:, 0].mean()
    gains, ahead, launches = np.concatenate(kept).T
    return gains, ahead, launches


def mean_of(row: Row, letter: str, which: slice) -> float:
    """Of the log of the typical step time of these steps, over the blocks of the letter."""
    each = zip(row["order"], row["steps_us"].split(";"), strict=True)
    times = [np.array(text.split(), dtype=float)[which] for at, text in each if at == letter]
    return float(np.mean([np.log(typical(steps)) for steps in times]))


def typical(steps: Floats) -> float:
    """The mean without the longest quarter."""
    return float(np.sort(steps)[: max(1, int(_SHORTER * len(steps)))].mean())


def residuals(values: Floats, launches: Floats) -> Floats:
    """Less the mean of each launch."""
    own = values.copy()
    for launch in set(launches):
        own[launches == launch] -= own[launches == launch].mean()
    return own


def cross_fitted(values: Floats, covariate: Floats, launches: Floats) -> Floats:
    """Less the covariate times the coefficient that all other launches give."""
    left = values.copy()
    for launch in set(launches):
        own = launches == launch
        centred = covariate[~own] - covariate[~own].mean()
        left[own] -= float(centred @ values[~own] / (centred @ centred)) * covariate[own]
    return residuals(left, launches)


def in_a_row(name: str) -> tuple[Floats, Floats]:
    """Means of consecutive pairs of the default with itself, without and with those before."""
    with (DATA / f"{name}.runs.csv").open(newline="") as file:
        runs = [np.array(row[2].split(), dtype=float) for row in csv.reader(file)]
    values, ahead, numbers = [], [], []
    for number, run in enumerate(runs):
        ratios, defaults = cut(run)
        before = np.convolve(defaults, np.full(_IN_A_ROW, 1 / _IN_A_ROW), "valid")[:-1]
        values.append(ratios[_IN_A_ROW:])
        ahead.append(defaults[_IN_A_ROW:] - before)
        numbers.append(np.full(len(before), float(number)))
    flat, number = np.concatenate(values), np.concatenate(numbers)
    left = cross_fitted(flat, np.concatenate(ahead), number)
    return grouped(residuals(flat, number), number), grouped(left, number)


def cut(run: Floats) -> tuple[Floats, Floats]:
    """Log ratios of consecutive pairs, and the mean of each pair's default blocks."""
    width = SETTLE_STEPS + BLOCK_STEPS
    count = len(run) // (4 * width)
    blocks = run[: 4 * width * count].reshape(count, 4, width)[:, :, _COUNTED]
    logs = np.array([[np.log(typical(steps)) for steps in pair] for pair in blocks])
    default = (logs[:, 0] + logs[:, 3]) / 2
    return default - (logs[:, 1] + logs[:, 2]) / 2, default


def grouped(values: Floats, numbers: Floats) -> Floats:
    """Means of so many consecutive values of one run."""
    means: list[float] = []
    for number in dict.fromkeys(numbers.tolist()):
        own = values[numbers == number]
        starts = range(len(own) - _IN_A_ROW + 1)
        means += [float(own[start : start + _IN_A_ROW].mean()) for start in starts]
    return np.array(means)


if __name__ == "__main__":
    main()
