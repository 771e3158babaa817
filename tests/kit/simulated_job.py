"""A training run in virtual time: drift, autocorrelated noise, launches that differ."""

import math
import os
import random
import signal
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hvdtune.core.config.knobs import Knob, Setting, Value, default_setting
from hvdtune.core.job.channel import (
    Adopted,
    Closed,
    Declared,
    Formed,
    JobEvent,
    Lost,
    RankAddress,
    Rejected,
    StepDone,
)
from hvdtune.tuner.measure.host_load import HostCounters
from tests.kit.virtual_clock import VirtualClock

KNOBS = (
    Knob("fusion_threshold_bytes", "bytes", "int", 0, 2**29, True, 2**27, "live"),
    Knob("cycle_time_ms", "ms", "float", 0, 50, True, 1.0, "live"),
    Knob("chunk_bytes", "bytes", "int", 2**16, 2**22, True, 2**19, "live"),
    Knob("hierarchical_allreduce", "", "bool", 0, 1, False, False, "live", 2),
    Knob("cache_enabled", "", "bool", 0, 1, False, True, "live"),
    Knob("cache_capacity", "entries", "int", 0, 65536, True, 1024, "reinit"),
)
DEFAULT: dict[str, Value] = default_setting(KNOBS)


def no_gain(setting: Setting) -> float:
    del setting
    return 0.0


def no_launch_gain(setting: Setting, launch: random.Random) -> float:
    del setting, launch
    return 0.0


@dataclass
class Script:
    """What the script does; gains are log ratios against the default."""

    seed: int = 0
    step_s: float = 0.010
    gain: Callable[[Setting], float] = no_gain
    launch_gain: Callable[[Setting, random.Random], float] = no_launch_gain
    step_noise: float = 0.08
    own_noise: Callable[[Setting], float] = no_gain
    slow_noise: float = 0.04
    drift: float = 0.10
    start_s: float = 6.0
    steps_per_launch: int | None = None
    pause_every: int | None = None
    bursts_per_s: float = 0.0
    own_bursts_per_s: Callable[[Setting], float] = no_gain
    burst_s: float = 0.15
    cpu_gain: Callable[[Setting], float] = no_gain
    forms: bool = True
    crashes_with: Callable[[Setting], bool] = lambda setting: False
    refuses: Callable[[Setting], bool] = lambda setting: False
    stalls_with: Callable[[Setting], bool] = lambda setting: False
    crashes_at_start: bool = False
    kill_tuner_at_step: int | None = None
    declares: dict[int, str] = field(default_factory=dict)  # by step: a knob of its own


@dataclass
class Report:
    returncode: int
    reason: str = ""
    tail: tuple[str, ...] = ()


@dataclass
class SimulatedCluster:
    """Starts jobs of a script; the machine's noise and drift go on from launch to launch.

    It is the tuner's view of the host too: bursts halve the speed of steps and are counted as time
    stolen.
    """

    script: Script
    clock: VirtualClock = field(default_factory=VirtualClock)
    jobs: list["SimulatedJob"] = field(default_factory=list)
    steps: int = 0
    slow: float = 0.0
    burst_until_s: float = 0.0
    steal_s: float = 0.0
    used_cpu_s: float = 0.0

    def counters(self) -> HostCounters:
        return HostCounters(steal_s=self.steal_s)

    def cpu_s(self, pids: Sequence[int]) -> float:
        assert pids == (11, 12)
        return self.used_cpu_s

    def burst_factor(self, setting: Setting, step_s: float) -> float:
        """2 while something else takes half of the machine."""
        script, now = self.script, self.clock.time_s
        rate = script.bursts_per_s + script.own_bursts_per_s(setting)
        if rate and self.random.random() < rate * step_s:
            self.burst_until_s = now + script.burst_s
        if now >= self.burst_until_s:
            return 1.0
        self.steal_s += step_s
        return 2.0

    def __post_init__(self) -> None:
        self.random = random.Random(self.script.seed)

    def start(self, launch: int = 0) -> "SimulatedJob":
        del launch
        job = SimulatedJob(self, random.Random(f"{self.script.seed}:launch:{len(self.jobs)}"))
        self.jobs.append(job)
        return job

    def own_factor(self, setting: Setting) -> float:
        """What the setting makes steps differ by."""
        noise = self.script.own_noise(setting)
        return math.exp(self.random.gauss(0, noise)) if noise else 1.0

    def step_factor(self) -> float:
        """The machine's mood: everything that is not the setting's doing."""
        script = self.script
        self.steps += 1
        if self.steps == script.kill_tuner_at_step:
            os.kill(os.getpid(), signal.SIGKILL)
        self.slow = 0.98 * self.slow + 0.2 * self.random.gauss(0, script.slow_noise)
        drift = script.drift * math.sin(2 * math.pi * self.clock.time_s / 97.0)
        return math.exp(self.slow + drift + self.random.gauss(0, script.step_noise))


class SimulatedJob:
    def __init__(self, cluster: SimulatedCluster, launch: random.Random) -> None:
        self._cluster = cluster
        self._launch = launch
        self._launch_gains: dict[str, float] = {}
        self._queue: deque[JobEvent] = deque()
        self._exit: Report | None = None
        self._version = 0
        self._offered = 0
        self._pending: tuple[int, Setting] | None = None
        self._steps = 0
        self.setting: Setting = DEFAULT
        self.proposed: list[Setting] = []
        self.terminated = False
        if cluster.script.crashes_at_start:
            self._end(Report(1, "rank 0 exited with code 1", ("Traceback", "ImportError: no x")))
        elif cluster.script.forms:
            ranks = (RankAddress(0, "localhost", 11), RankAddress(1, "localhost", 12))
            self._queue.append(Formed(ranks, DEFAULT))
            cluster.clock.time_s += cluster.script.start_s

    def propose(self, setting: Setting) -> int:
        self._offered += 1
        self.proposed.append(setting)
        if self._cluster.script.refuses(setting):
            self._queue.append(Rejected(self._offered, "not with this topology"))
        else:
            self._pending = (self._offered, setting)
        return self._offered

    def poll(self) -> Report | None:
        return self._exit if not self._queue else None

    def terminate(self) -> None:
        self.terminated = True
        self._queue.clear()
        self._exit = self._exit or Report(-15)

    def next_event(self, timeout_s: float) -> JobEvent | None:
        if not self._queue and self._exit is None and self._cluster.script.forms:
            self._step()
        if self._queue:
            return self._queue.popleft()
        self._cluster.clock.time_s += timeout_s
        return None

    def run_to_end(self) -> None:
        while self.poll() is None:
            self.next_event(1.0)

    def _step(self) -> None:
        script, clock = self._cluster.script, self._cluster.clock
        if self._steps in script.declares:
            self._queue.append(Declared(script.declares[self._steps]))
        if script.steps_per_launch is not None and self._steps >= script.steps_per_launch:
            self._end(Report(0))
            return
        if script.stalls_with(self.setting):
            return
        version = self._version
        if self._pending is not None:
            self._version, self.setting = self._pending
            version, self._pending = -1, None
            self._queue.append(Adopted(self._version))
            if script.crashes_with(self.setting):
                self._queue.append(Lost(1, "rank 1 was lost: segmentation fault"))
                self._end(Report(139, "rank 1 was killed", ("[1]: Segmentation fault",)))
                return
        duration_s = script.step_s * self._cluster.step_factor() * math.exp(-self._gain())
        duration_s *= self._cluster.own_factor(self.setting)
        duration_s *= self._cluster.burst_factor(self.setting, duration_s)
        self._cluster.used_cpu_s += script.step_s * math.exp(-script.cpu_gain(self.setting))
        if script.pause_every is not None and self._steps % script.pause_every == 0:
            duration_s += 2.0
        if self._steps < 5:
            duration_s *= 3
        clock.time_s += duration_s
        self._steps += 1
        whole_ns = int(duration_s * 1e9)
        durations = (whole_ns, int(whole_ns * 0.97))
        self._queue.append(StepDone(self._steps, version, durations, int(clock.time_s * 1e9)))

    def _gain(self) -> float:
        script, setting = self._cluster.script, self.setting
        key = str(sorted(setting.items()))
        if key not in self._launch_gains:
            self._launch_gains[key] = (
                script.gain(setting) + script.launch_gain(setting, self._launch)
                if setting != DEFAULT
                else 0.0
            )
        return self._launch_gains[key]

    def form_anew(self, ranks: int) -> None:
        """Other ranks go on, under the setting of the start."""
        self._queue.append(Closed())
        self.form(ranks)

    def form(self, ranks: int) -> None:
        """They begin."""
        addresses = tuple(RankAddress(rank, "localhost", 11 + rank) for rank in range(ranks))
        self._queue.append(Formed(addresses, DEFAULT))
        self._version = self._offered = 0
        self._pending, self.setting = None, DEFAULT

    def change(self, script: Script) -> None:
        """From the next step on the training is another."""
        self._cluster.script = script
        self._launch_gains.clear()

    def _end(self, report: Report) -> None:
        self._exit = report
        self._queue.append(Closed())
