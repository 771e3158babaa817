"""The A/A phase: how long steps take, and how much the default differs from itself."""

from dataclasses import dataclass

from hvdtune.errors import StudyError
from hvdtune.tuner.bench import Bench
from hvdtune.tuner.live import TrialFailed
from hvdtune.tuner.measure import BlockShape, shape_for
from hvdtune.tuner.options import TuneOptions
from hvdtune.tuner.plan import Cost
from hvdtune.tuner.restart import RestartRun
from hvdtune.tuner.statistics import Noise, noise_floor, noise_of


@dataclass(frozen=True)
class Calibration:
    """`floor` is the log ratio below which a difference is no different from A/A."""

    shape: BlockShape
    noise: Noise
    floor: float


def current_cost(bench: Bench, calibration: Calibration) -> Cost:
    """What pairs and launches take at the moment."""
    return Cost(bench.live.pair_s or calibration.shape.pair_s, bench.live.launch_s)


def choose_shape(bench: Bench, options: TuneOptions) -> BlockShape:
    """Bring the script to step and size the blocks after its step time."""
    bench.live.require()
    if isinstance(bench.live, RestartRun):
        return bench.live.shape
    return shape_for(bench.live.step_s, options.block_s, options.min_block_steps)


def calibrate(bench: Bench, shape: BlockShape, options: TuneOptions) -> Calibration:
    """Measure the default against itself, with the same proposals as any other setting.

    Raises StudyError when the script does not run with its own default.
    """
    bench.reporter.phase("calibrate", "measuring the default against itself")
    failures = 0
    while len(bench.log.of("calibrate", bench.default)) < options.calibrate_pairs:
        try:
            bench.pair("calibrate", bench.default, shape, trial=0)
        except TrialFailed as failure:
            failures += 1
            if failures >= options.max_crashes:
                raise StudyError(f"the default itself cannot be measured: {failure}") from failure
    noise = noise_of(bench.log_ratios("calibrate", bench.default))
    return Calibration(shape, noise, noise_floor(noise))
