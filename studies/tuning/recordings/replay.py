"""A job that takes its steps in virtual time, as a recorded grid says.

It keeps the tuner's StartJob and RunningJob protocols, so that the tuner's own code runs against
it; simpler tuners take steps of the cluster directly.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from hvdtune.core.config.knobs import Setting, Value
from hvdtune.core.job.channel import Adopted, Closed, Formed, JobEvent, RankAddress, StepDone
from studies.tuning.recordings.grid import Grid
from tests.kit.virtual_clock import VirtualClock

# Of the trainings whose costs are counted, in steps.
LENGTHS: Final = (2_000, 5_000, 10_000, 50_000)
LAUNCH_S: Final = 3.0  # what it takes to start a script that imports a framework


@dataclass
class Report:
    """How a job ended."""

    returncode: int
    reason: str = ""
    tail: tuple[str, ...] = ()


class Cluster:
    """The machine: its mood goes on from launch to launch, each launch has likings of its own.

    `lost_s` is what the steps took beyond what the default would have taken in the same mood.
    """

    def __init__(self, grid: Grid, seed: int, lengths: Collection[int] = LENGTHS) -> None:
        self.grid = grid
        self.clock = VirtualClock()
        self.launches = 0
        self.steps = 0
        self.default_s = 0.0
        self.lost_s = 0.0
        self._lengths = lengths
        self._lost_by: dict[int, tuple[float, float]] = {}
        self._random = random.Random(seed)
        self._effects: dict[str, float] = {}
        self._moods = [series.tolist() for series in grid.noise.moods]
        self._settle = grid.noise.settle
        self._series: list[float] = []
        self._at = 0

    def start(self, launch: int = 0) -> ReplayedJob:
        """The next launch, whatever its number."""
        del launch
        self.new_launch()
        return ReplayedJob(self)

    def new_launch(self) -> None:
        self.launches += 1
        self._effects = {}
        self.clock.time_s += LAUNCH_S

    def step(self, gain: float, since_change: int) -> float:
        """Seconds of one step under a setting of this gain, after so many others under it."""
        mood = self._mood()
        settle = self._settle[since_change] if since_change < len(self._settle) else 0.0
        default_s = self.grid.step_s * math.exp(mood)
        duration_s = default_s * math.exp(settle - gain)
        self.steps += 1
        self.default_s += default_s
        self.lost_s += duration_s - default_s
        if self.steps in self._lengths:
            self._lost_by[self.steps] = (self.lost_s, self.default_s)
        self.clock.time_s += duration_s
        return duration_s

    def shares_lost(self, shipped: Setting) -> dict[int, float]:
        """Return the share of the default's time that was lost in trainings of so many steps.

        What comes after the tuning runs with `shipped`.
        """
        return {length: self._share_lost(shipped, length) for length in self._lengths}

    def _share_lost(self, shipped: Setting, length: int) -> float:
        if length in self._lost_by:
            lost_s, default_s = self._lost_by[length]
            return lost_s / default_s
        rest_s = (length - self.steps) * self.default_s / max(self.steps, 1)
        lost_s = self.lost_s + rest_s * math.expm1(-self.grid.gain(shipped))
        return lost_s / (self.default_s + rest_s)

    def gain(self, setting: Setting) -> float:
        """The setting's gain in this launch."""
        grid = self.grid
        key = repr([setting[axis] for axis in grid.axes])
        if key not in self._effects:
            is_default = all(setting[axis] == grid.default[axis] for axis in grid.axes)
            effect = 0.0 if is_default else self._random.choice(grid.noise.launch_effects)
            self._effects[key] = grid.gain(setting) + float(effect)
        return self._effects[key]

    def _mood(self) -> float:
        if self._at >= len(self._series):
            # A stretch of some launch, from somewhere to its end: drift and spikes as they came.
            self._series = self._random.choice(self._moods)
            self._at = self._random.randrange(len(self._series))
        self._at += 1
        return self._series[self._at - 1]


class ReplayedJob:
    """One launch. Adopts a proposed setting in the next step, as ranks do."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._queue: deque[JobEvent] = deque()
        self._exit: Report | None = None
        self._offered = 0
        self._version = 0
        self._pending: tuple[int, dict[str, Value]] | None = None
        self._since_change = len(cluster.grid.noise.settle)
        self._steps = 0
        self._gain = 0.0
        self.setting: dict[str, Value] = dict(cluster.grid.default)
        hosts = [f"host-{index}" for index in range(cluster.grid.hosts)]
        ranks = tuple(RankAddress(i, host, 100 + i) for i, host in enumerate(hosts * 2))
        self._queue.append(Formed(ranks, dict(self.setting)))

    def propose(self, setting: Setting) -> int:
        self._offered += 1
        self._pending = (self._offered, dict(setting))
        return self._offered

    def poll(self) -> Report | None:
        return self._exit if not self._queue else None

    def terminate(self) -> None:
        self._queue.clear()
        if self._exit is None:
            self._exit = Report(-15)
            self._queue.append(Closed())

    def next_event(self, timeout_s: float) -> JobEvent | None:
        if not self._queue and self._exit is None:
            self._step()
        if self._queue:
            return self._queue.popleft()
        self._cluster.clock.time_s += timeout_s
        return None

    def _step(self) -> None:
        version = self._version
        if self._pending is not None:
            self._version, self.setting = self._pending
            version, self._pending = -1, None
            self._since_change = 0
            self._gain = self._cluster.gain(self.setting)
            self._queue.append(Adopted(self._version))
        duration_s = self._cluster.step(self._gain, max(0, self._since_change - 1))
        self._since_change += 1
        self._steps += 1
        nanoseconds = int(duration_s * 1e9)
        end_ns = int(self._cluster.clock.time_s * 1e9)
        self._queue.append(
            StepDone(self._steps, version, (nanoseconds, int(nanoseconds * 0.97)), end_ns)
        )
