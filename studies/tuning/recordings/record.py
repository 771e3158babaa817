"""Records an exhaustive grid of settings, each measured against the default in ABBA pairs.

    python -m studies.tuning.recordings.record few-huge    # about 10 minutes; goes on
    python -m studies.tuning.recordings.record few-huge --minutes 2    # as far as it comes

Writes data/SCENARIO.csv, one row per pair with the time of each step, data/SCENARIO.runs.csv with
consecutive steps of the default at the start of each launch, and data/SCENARIO.json, what was
measured where. A round goes over all settings in an order of its own, in a launch of its own;
the default against itself and a few other settings are measured again and again within a round, so
that noise within a launch and differences between launches can be told apart.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import json
import os
import platform
import random
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import hvdtune
from hvdtune.core.config.knobs import Setting, Value, default_setting
from hvdtune.core.job.channel import Closed, Formed, StepDone
from hvdtune.errors import HvdtuneError
from hvdtune.launcher.job import Job
from studies.tuning.recordings.jobs import Starter, starter, tail
from studies.tuning.recordings.scenarios import SCENARIOS, Scenario

DATA: Final = Path(__file__).parent / "data"
SETTLE_STEPS: Final = 2
BLOCK_STEPS: Final = 6
REPEATED: Final = 8  # settings that every round measures REPEATS times, the default among them
REPEATS: Final = 4
RUN_STEPS: Final = 400
_WARM_S: Final = 2.0
_SLOWEST: Final = 4.0  # a block ends early when it takes this many times the default's
_SILENCE_S: Final = 60.0
_HEAD: Final = ("round", "launch", "order", "load", "t_s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=6, help="at most this many")
    parser.add_argument("--folder", type=Path, default=DATA)
    arguments = parser.parse_args()
    name = arguments.scenario
    end = time.monotonic() + 60 * arguments.minutes
    with starter(name) as jobs, Recording(name, arguments.folder) as recording:
        for number in range(arguments.rounds):
            left = recording.left_of(number)
            if left and time.monotonic() < end:
                with Launch(jobs, recording.launches) as launch:
                    recording.add_run(launch)
                    for setting in left:
                        if time.monotonic() > end:
                            break
                        recording.add(number, launch, setting)
            print(recording.summary(), flush=True)


class Launch:
    """One start of the job, under its default if no setting is given; leaving it ends the job."""

    def __init__(self, jobs: Starter, number: int, setting: Setting | None = None) -> None:
        self.number = number
        self.default = setting or default_setting()
        self._job: Job = jobs.start(self.default)
        self._pairs = 0
        self._step_s = 0.0

    def __enter__(self) -> Self:
        while not isinstance(self._event(), Formed):
            pass
        warm: list[float] = []
        while sum(warm) < _WARM_S:
            warm.append(max(self._step().durations_ns) / 1e9)
        self._step_s = statistics.median(warm[len(warm) // 2 :])
        return self

    def run(self, steps: int) -> list[int]:
        """Microseconds of consecutive steps under the setting that it was started with."""
        return [round(max(self._step().durations_ns) / 1e3) for _ in range(steps)]

    def __exit__(self, *exception: object) -> None:
        self._job.terminate()

    def pair(self, setting: Setting) -> tuple[str, list[list[int]]]:
        """The order of the blocks, and microseconds of each step of each, settling included."""
        self._pairs += 1
        order = "ABBA" if self._pairs % 2 else "BAAB"
        return order, [self._block(self.default if at == "A" else setting) for at in order]

    def _block(self, setting: Setting) -> list[int]:
        version = self._job.propose(setting)
        steps: list[int] = []
        longest_us = 1e6 * _SLOWEST * BLOCK_STEPS * self._step_s
        while len(steps) < SETTLE_STEPS + BLOCK_STEPS:
            step = self._step()
            if step.version == version:
                steps.append(round(max(step.durations_ns) / 1e3))
            if len(steps) > SETTLE_STEPS + 1 and sum(steps) > longest_us:
                break
        return steps

    def _step(self) -> StepDone:
        while True:
            event = self._event()
            if isinstance(event, StepDone):
                return event

    def _event(self) -> object:
        deadline = time.monotonic() + _SILENCE_S
        while time.monotonic() < deadline:
            event = self._job.next_event(1.0)
            if isinstance(event, Closed) or self._job.poll() is not None:
                raise HvdtuneError(f"the job has ended: {tail(self._job)}")
            if event is not None:
                return event
        raise HvdtuneError(f"the job has said nothing for {_SILENCE_S:g} s")


class Recording:
    """The files of one scenario, appended to."""

    def __init__(self, name: str, folder: Path) -> None:
        self._scenario: Scenario = SCENARIOS[name]
        self._axes = list(self._scenario.axes)
        self._began = time.time()
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.csv"
        self._rows: list[dict[str, str]] = []
        if path.exists():
            with path.open(newline="") as old:
                self._rows = list(csv.DictReader(old))
        else:
            (folder / f"{name}.json").write_text(json.dumps(facts(name), indent=2) + "\n")
        self._file = path.open("a", newline="")
        self._table = csv.DictWriter(
            self._file, [*_HEAD, *self._axes, "steps_us"], lineterminator="\n"
        )
        if not self._rows:
            self._table.writeheader()
        self._runs = folder / f"{name}.runs.csv"

    @property
    def launches(self) -> int:
        """How many there are; the number of the next."""
        return 1 + max((int(row["launch"]) for row in self._rows), default=-1)

    def left_of(self, number: int) -> list[dict[str, Value]]:
        """The settings that this round is still to measure, in its order."""
        done = Counter(self._key(row) for row in self._rows if int(row["round"]) == number)
        left = []
        for setting in self._plan(number):
            key = self._key(self._row(setting))
            if done[key]:
                done[key] -= 1
            else:
                left.append(setting)
        return left

    def add_run(self, launch: Launch) -> None:
        """Writes down how the default runs undisturbed."""
        steps = " ".join(map(str, launch.run(RUN_STEPS)))
        with self._runs.open("a") as file:
            file.write(f"{launch.number},{os.getloadavg()[0]:.2f},{steps}\n")

    def add(self, number: int, launch: Launch, setting: Setting) -> None:
        """Measures a pair and writes it down."""
        order, blocks = launch.pair({**launch.default, **setting})
        row = {
            "round": str(number),
            "launch": str(launch.number),
            "order": order,
            "load": f"{os.getloadavg()[0]:.2f}",
            "t_s": f"{time.time() - self._began:.1f}",
            **self._row(setting),
            "steps_us": ";".join(" ".join(map(str, steps)) for steps in blocks),
        }
        self._rows.append(row)
        self._table.writerow(row)
        self._file.flush()

    def summary(self) -> str:
        loads = [float(row["load"]) for row in self._rows]
        return (
            f"{len(self._rows)} pairs in {self.launches} launches, load average "
            f"{statistics.median(loads) if loads else 0:.1f} (median)"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()

    def _plan(self, number: int) -> list[dict[str, Value]]:
        settings = self._scenario.settings()
        default = self._scenario.of(default_setting())
        again = [default, *random.Random(0).sample(settings, REPEATED - 1)]
        plan = settings + again * (REPEATS - 1)
        random.Random(f"round {number}").shuffle(plan)
        return plan

    def _row(self, setting: Setting) -> dict[str, str]:
        return {name: str(int(v) if isinstance(v, bool) else v) for name, v in setting.items()}

    def _key(self, row: dict[str, str]) -> tuple[str, ...]:
        return tuple(row[axis] for axis in self._axes)


def facts(name: str) -> dict[str, Any]:
    """A document of what was measured, and on which machine."""
    scenario = SCENARIOS[name]
    sizes = [4 * tensor.count for tensor in scenario.tensors()]
    return {
        "scenario": name,
        "title": scenario.title,
        "ranks": scenario.ranks,
        "hosts": scenario.hosts,
        "tensors": len(sizes),
        "bytes": sum(sizes),
        "axes": {axis: list(values) for axis, values in scenario.axes.items()},
        "default": default_setting(),
        "settle_steps": SETTLE_STEPS,
        "block_steps": BLOCK_STEPS,
        "began": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": next(_cpu_models(), platform.machine()),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "hvdtune": hvdtune.__version__,
    }


def _cpu_models() -> Iterator[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            yield value.strip()


if __name__ == "__main__":
    main()
