"""How often the verdict is right, over simulated studies' verification step.

python tests/tuner/verdict_rates.py 400
"""

import collections
import math
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.measure.calibration import calibrate
from hvdtune.tuner.measure.live_run import LiveRun
from hvdtune.tuner.measure.pair_plan import plan_verify
from hvdtune.tuner.measure.pair_runner import PairRunner
from hvdtune.tuner.measure.progress import Reporter, StudyProgress
from hvdtune.tuner.search.context import StudyContext
from hvdtune.tuner.search.verification import prove
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.tuner.storage.pair_log import PairLog
from tests.kit.simulated_job import DEFAULT, Script, SimulatedCluster, no_launch_gain

CANDIDATE = {**DEFAULT, "cycle_time_ms": 0.2}


@dataclass(frozen=True)
class Rates:
    """`kinds` counts verdicts, `covered` the intervals that hold the true gain."""

    studies: int
    kinds: collections.Counter[str]
    covered: int
    half_width_percent: float


def one_verdict(script: Script, directory: Path) -> Verdict:
    cluster = SimulatedCluster(script)
    options = TuneOptions(seed=script.seed)
    reporter = Reporter(ignore, cluster.clock, options.trials, options.time_budget_s)
    live = LiveRun(cluster.start, DEFAULT, options, cluster.clock, reporter)
    with PairLog(directory / f"{script.seed}.jsonl") as log:
        runner = PairRunner(live, log, reporter, DEFAULT, seed=options.seed)
        found = calibrate(runner, live.choose_shape(), options)
        context = StudyContext(runner, found, options)
        plan = plan_verify(options, found.noise, context.cost, 80.0, script.gain(CANDIDATE))
        return prove(context, CANDIDATE, plan)


def rates(
    studies: int,
    gain_percent: float,
    directory: Path,
    launch_gain: Callable[[Setting, random.Random], float] = no_launch_gain,
    *,
    quiet: bool = False,
) -> Rates:
    kinds: collections.Counter[str] = collections.Counter()
    covered, widths = 0, []
    for seed in range(studies):
        noise = Script(
            seed=seed,
            gain=lambda setting: math.log1p(gain_percent / 100),
            launch_gain=launch_gain,
            step_noise=0.03 if quiet else 0.08,
            slow_noise=0.01 if quiet else 0.04,
        )
        verdict = one_verdict(noise, directory)
        kinds[verdict.kind] += 1
        assert verdict.ci_percent is not None
        low, high = verdict.ci_percent
        covered += low <= gain_percent <= high
        widths.append((high - low) / 2)
    return Rates(studies, kinds, covered, sorted(widths)[len(widths) // 2])


def ignore(progress: StudyProgress) -> None:
    del progress


def launch_noise(setting: Setting, launch: random.Random) -> float:
    del setting
    return launch.gauss(0, 0.02)


def bimodal(setting: Setting, launch: random.Random) -> float:
    del setting
    return 0.15 if launch.random() < 0.5 else -0.20


if __name__ == "__main__":
    count = int(sys.argv[1])
    for label, percent, effect, quiet in (
        ("A/A", 0.0, no_launch_gain, False),
        ("A/A, quiet machine", 0.0, no_launch_gain, True),
        ("A/A, launch sd 2 %", 0.0, launch_noise, False),
        ("+5 %", 5.0, no_launch_gain, False),
        ("+5 %, quiet machine", 5.0, no_launch_gain, True),
        ("+5 %, launch sd 2 %", 5.0, launch_noise, False),
        ("bimodal +15/-20 %", 0.0, bimodal, False),
    ):
        with tempfile.TemporaryDirectory() as directory:
            found = rates(count, percent, Path(directory), effect, quiet=quiet)
        print(
            f"{label:22s} {dict(found.kinds)} covered {found.covered / count:.3f} "
            f"half width {found.half_width_percent:.2f} %",
            flush=True,
        )
