"""A recorded grid as a world to tune in: true gains, and the noise that was recorded beside them.

A gain is a log ratio, default's step time over the setting's. The truth is not known: of a few
pairs per setting the largest mean is a lucky one. It is estimated by a Gaussian process over the
axes, whose noise is that of the pairs, so that a setting is believed as far as its own pairs and
its neighbours' agree; the default is 0 by definition. Between grid points gains are interpolated
linearly in the logarithm of each knob, so no setting is better than the best of the grid.
"""

from __future__ import annotations

import csv
import functools
import itertools
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from hvdtune.core.config.knobs import Setting, Value
from hvdtune.errors import StudyError
from studies.tuning.recordings.smooth import position, positions, smoothed

_LONGEST_LAG: Final = 5
_FAR: Final = 0.15


@dataclass(frozen=True)
class Noise:
    """What was recorded beside the gains, all as log ratios.

    `moods` are step times of the default against its median, one series per launch, in the order
    of time; `settle` is how much slower the first steps after a change are; `launch_effects` are
    draws of what a launch adds to the gain of a setting. `pair_sd` is the spread of one pair.
    """

    moods: tuple[np.ndarray, ...]
    settle: tuple[float, ...]
    launch_effects: np.ndarray
    pair_sd: float
    launch_sd: float
    autocorrelation: tuple[float, ...]


@dataclass(frozen=True)
class Grid:
    """`gains` has one dimension per axis; `default` is complete, `step_s` its step time."""

    name: str
    title: str
    hosts: int
    axes: dict[str, tuple[Value, ...]]
    default: dict[str, Value]
    step_s: float
    bytes: int
    gains: np.ndarray
    noise: Noise
    pairs: int
    known: dict[tuple[Value, ...], float] = field(default_factory=dict, compare=False, repr=False)

    @property
    def best(self) -> float:
        """The largest true gain of the grid."""
        return float(self.gains.max())

    @property
    def best_setting(self) -> dict[str, Value]:
        """Where it is."""
        where = np.unravel_index(int(self.gains.argmax()), self.gains.shape)
        values = {
            axis: self.axes[axis][index] for axis, index in zip(self.axes, where, strict=True)
        }
        return {**self.default, **values}

    def gain(self, setting: Setting) -> float:
        """The true gain; knobs that are no axis have no effect."""
        key = tuple(setting[axis] for axis in self.axes)
        if key not in self.known:
            self.known[key] = self._interpolated(key)
        return self.known[key]

    def _interpolated(self, key: Sequence[Value]) -> float:
        corners: list[list[tuple[int, float]]] = []
        for axis, value in zip(self.axes, key, strict=True):
            places = positions(self.axes[axis])
            at = position(self.axes[axis], value)
            above = min(max(int(np.searchsorted(places, at)), 1), len(places) - 1)
            share = (at - places[above - 1]) / (places[above] - places[above - 1])
            share = min(max(share, 0.0), 1.0)
            corners.append([(above - 1, 1.0 - share), (above, share)])
        total = 0.0
        for corner in itertools.product(*corners):
            weight = math.prod(share for _, share in corner)
            if weight > 0.0:
                total += weight * float(self.gains[tuple(index for index, _ in corner)])
        return total


def load(name: str, folder: Path) -> Grid:
    """The grid that record.py wrote.

    Raises OSError when there is none, StudyError when it is too small to tell the noise.
    """
    facts: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    with (folder / f"{name}.csv").open(newline="") as file:
        rows = [_Row(row, facts) for row in csv.DictReader(file)]
    axes = {axis: tuple(values) for axis, values in facts["axes"].items()}
    shape = tuple(len(values) for values in axes.values())
    sums, counts = np.zeros(shape), np.zeros(shape)
    for row in rows:
        sums[row.where] += row.log_ratio
        counts[row.where] += 1
    pair_sd, launch_sd, effects = _variances(rows)
    if pair_sd == 0.0:
        raise StudyError(f"{name} has no setting measured twice in a launch; record a whole round")
    default_at = tuple(values.index(facts["default"][axis]) for axis, values in axes.items())
    gains = smoothed(axes, sums, counts, math.hypot(pair_sd, launch_sd), default_at)
    runs = _runs(folder / f"{name}.runs.csv")
    noise = Noise(
        moods=_moods(rows),
        settle=_settle(rows, facts["settle_steps"]),
        launch_effects=effects,
        pair_sd=pair_sd,
        launch_sd=launch_sd,
        autocorrelation=_autocorrelation(runs),
    )
    step_s = float(np.median([np.median(row.steps("A")) for row in rows])) / 1e6
    return Grid(
        name, facts["title"], facts["hosts"], axes, facts["default"], step_s, facts["bytes"],
        gains, noise, len(rows),
    )  # fmt: skip


class _Row:
    """One recorded pair."""

    def __init__(self, row: dict[str, str], facts: dict[str, Any]) -> None:
        self.launch = int(row["launch"])
        self._order = row["order"]
        self.settling = int(facts["settle_steps"])
        self.blocks = [np.array(block.split(), dtype=float) for block in row["steps_us"].split(";")]
        self.where = tuple(
            [str(int(v) if isinstance(v, bool) else v) for v in values].index(row[axis])
            for axis, values in facts["axes"].items()
        )

    @functools.cached_property
    def log_ratio(self) -> float:
        means = {
            which: np.mean([math.log(block.mean()) for block in self._of(which)]) for which in "AB"
        }
        return float(means["A"] - means["B"])

    def steps(self, which: str) -> np.ndarray:
        return np.concatenate(self._of(which))

    def settling_of(self) -> list[tuple[np.ndarray, float]]:
        """The first steps of each block, and the median of its others."""
        return [
            (block[: self.settling], float(np.median(block[self.settling :])))
            for block in self.blocks
        ]

    def _of(self, which: str) -> list[np.ndarray]:
        return [
            block[self.settling :]
            for letter, block in zip(self._order, self.blocks, strict=True)
            if letter == which
        ]


def _variances(rows: Sequence[_Row]) -> tuple[float, float, np.ndarray]:
    """Spread of a pair within a launch, of launches, and draws of the effect of a launch.

    Not of settings that are far slower, if others were measured twice: those are noisier, and
    nobody's choice.
    """
    cells: dict[tuple[int, ...], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        cells[row.where][row.launch].append(row.log_ratio)
    near = {where: launches for where, launches in cells.items() if not _is_far(launches)}
    if any(len(values) > 1 for launches in near.values() for values in launches.values()):
        cells = near
    within, freedom = 0.0, 0
    offsets: list[tuple[float, int]] = []
    for launches in cells.values():
        repeated = [values for values in launches.values() if len(values) > 1]
        within += sum(len(values) * float(np.var(values)) for values in repeated)
        freedom += sum(len(values) - 1 for values in repeated)
        if len(repeated) > 1:
            centre = float(np.mean([np.mean(values) for values in repeated]))
            unbiased = math.sqrt(len(repeated) / (len(repeated) - 1))
            offsets += [(unbiased * (np.mean(v) - centre), len(v)) for v in repeated]
    pair_variance = within / max(freedom, 1)
    if not offsets:
        return math.sqrt(pair_variance), 0.0, np.zeros(1)
    seen = float(np.mean([offset**2 for offset, _ in offsets]))
    by_chance = pair_variance * float(np.mean([1 / count for _, count in offsets]))
    variance = max(0.0, seen - by_chance)
    draws = np.array([offset for offset, _ in offsets]) * math.sqrt(variance / seen)
    return math.sqrt(pair_variance), math.sqrt(variance), draws - draws.mean()


def rebased(grid: Grid, different: Setting) -> Grid:
    """The same job for somebody whose default is another setting of the grid."""
    default = {**grid.default, **different}
    gain = grid.gain(default)
    return replace(
        grid,
        name=f"{grid.name}, from {dict(different)}",
        default=default,
        step_s=grid.step_s * math.exp(-gain),
        gains=grid.gains - gain,
        known={},
    )


def _is_far(launches: dict[int, list[float]]) -> bool:
    values = [value for each in launches.values() for value in each]
    return len(values) > 1 and float(np.mean(values)) < -_FAR


def _moods(rows: Sequence[_Row]) -> tuple[np.ndarray, ...]:
    launches: dict[int, list[np.ndarray]] = defaultdict(list)
    for row in rows:
        launches[row.launch].append(row.steps("A"))
    series = []
    for steps in launches.values():
        logs = np.log(np.concatenate(steps))
        series.append(logs - np.median(logs))
    return tuple(series)


def _settle(rows: Sequence[_Row], steps: int) -> tuple[float, ...]:
    ratios = [np.log(first / median) for row in rows for first, median in row.settling_of()]
    return tuple(float(np.median([ratio[i] for ratio in ratios])) for i in range(steps))


def _runs(path: Path) -> list[np.ndarray]:
    if not path.exists():
        return []
    return [
        np.log(np.array(line.split(",")[2].split(), dtype=float))
        for line in path.read_text().splitlines()
    ]


def _autocorrelation(runs: Sequence[np.ndarray]) -> tuple[float, ...]:
    found = []
    for lag in range(1, _LONGEST_LAG + 1):
        values = [float(np.corrcoef(run[:-lag], run[lag:])[0, 1]) for run in runs]
        found.append(float(np.mean(values)) if values else 0.0)
    return tuple(found)
