"""The A/A phase: how long steps take, and how much the default differs from itself."""

import statistics
from dataclasses import dataclass

from hvdtune.errors import StudyError
from hvdtune.tuner.bench import Bench
from hvdtune.tuner.live import TrialFailed
from hvdtune.tuner.measure import BlockShape, shape_for
from hvdtune.tuner.options import TuneOptions
from hvdtune.tuner.plan import Cost
from hvdtune.tuner.statistics import Noise, noise_floor, noise_of


@dataclass(frozen=True)
class Calibration:
    """`floor` is the log ratio below which a difference is no different from A/A."""

    shape: BlockShape
    noise: Noise
    floor: float
    cost: Cost


def choose_shape(bench: Bench, options: TuneOptions) -> BlockShape:
    """Bring the script to step and size the blocks after its step time."""
    bench.live.require()
    return shape_for(bench.live.step_s, options.block_s, options.min_block_steps)


def calibrate(bench: Bench, shape: BlockShape, options: TuneOptions) -> Calibration:
    """Measure the default against itself, with the same proposals as any other setting.

    Raises StudyError when the script does not run with its own default.
    """
    bench.reporter.phase("calibrate", "measuring the default against itself")
    durations_s: list[float] = []
    failures = 0
    while len(bench.log.of("calibrate", bench.default)) < options.calibrate_pairs:
        try:
            bench.pair("calibrate", bench.default, shape, trial=0)
            durations_s.append(bench.live.pair_s)
        except TrialFailed as failure:
            failures += 1
            if failures >= options.max_crashes:
                raise StudyError(f"the default itself cannot be measured: {failure}") from failure
    noise = noise_of(bench.log_ratios("calibrate", bench.default))
    pair_s = statistics.median(durations_s) if durations_s else shape.pair_s
    cost = Cost(pair_s, launch_s=bench.live.launch_s)
    return Calibration(shape, noise, noise_floor(noise), cost)
