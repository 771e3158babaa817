"""A command in virtual time: every launch has a level of its own, and the machine drifts."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from hvdtune.core.config.knobs import Knob, Setting, Value, default_setting
from tests.kit.simulated_job import Report, no_gain
from tests.kit.virtual_clock import VirtualClock

KNOBS = (
    Knob("bucket_mb", "MiB", "float", 1, 1024, True, 25.0, "restart"),
    Knob("as_view", "", "bool", 0, 1, False, False, "restart"),
)
DEFAULT: dict[str, Value] = default_setting(KNOBS)


@dataclass
class Script:
    """Gains are log ratios; without `steps` only the wall time tells."""

    seed: int = 0
    step_s: float = 0.02
    start_s: float = 4.0
    steps: int | None = 10_000
    gain: Callable[[Setting], float] = no_gain
    launch_noise: float = 0.02
    step_noise: float = 0.05
    drift: float = 0.0
    fails: Callable[[Setting, int], bool] = lambda setting, launch: False
    hangs: Callable[[Setting], bool] = lambda setting: False
    tells_steps: bool = True


@dataclass
class SimulatedMachine:
    script: Script
    clock: VirtualClock = field(default_factory=VirtualClock)
    commands: list["SimulatedCommand"] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.script.seed)

    def start(self, setting: Setting, number: int) -> "SimulatedCommand":
        assert all(command.over for command in self.commands), "the one before still runs"
        self.commands.append(SimulatedCommand(self, setting, number))
        return self.commands[-1]


class SimulatedCommand:
    measured_by = "the simulated steps"
    without_steps = ""

    def __init__(self, machine: SimulatedMachine, setting: Setting, number: int) -> None:
        self._machine, self.setting, self.number = machine, setting, number
        script = machine.script
        drift = script.drift * math.sin(2 * math.pi * machine.clock.now() / 900)
        level = machine.random.gauss(0, script.launch_noise) + drift - script.gain(setting)
        self._step_s = script.step_s * math.exp(level)
        self._began_s = machine.clock.now()
        self._next_s = self._began_s + script.start_s
        self._taken = 0
        self.over = False

    @property
    def wall_s(self) -> float:
        return self._machine.clock.now() - self._began_s

    def steps(self) -> list[tuple[int, ...]]:
        script, new = self._machine.script, []
        while self._next_s <= self._machine.clock.now() and self._left() > 0 and not self._hangs():
            step_s = self._step_s * math.exp(self._machine.random.gauss(0, script.step_noise))
            self._taken += 1
            self._next_s += step_s
            new.append((round(step_s * 1e9), round(step_s * 0.9e9)))
        return new if script.tells_steps else []

    def wait(self, timeout_s: float) -> None:
        self._machine.clock.sleep(timeout_s)

    def poll(self) -> Report | None:
        if self._machine.script.fails(self.setting, self.number):
            return Report(3, "the command exited with code 3", ("last words",))
        return Report(0) if self._left() <= 0 else None

    def terminate(self) -> None:
        self.over = True

    def _left(self) -> int:
        script = self._machine.script
        return 10**9 if script.steps is None else script.steps - self._taken

    def _hangs(self) -> bool:
        return self._taken >= 5 and self._machine.script.hangs(self.setting)
