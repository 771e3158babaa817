"""The A/A phase: how long steps take, and how much the default differs from itself."""

from dataclasses import dataclass

from hvdtune.errors import StudyError
from hvdtune.tuner.measure.blocks import BlockShape
from hvdtune.tuner.measure.pair_plan import calibration_pairs
from hvdtune.tuner.measure.pair_runner import PairRunner
from hvdtune.tuner.measure.run import JobCrashed, ScriptFailed, TrialFailed
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.estimates import Noise, noise_floor, noise_of


@dataclass(frozen=True)
class Calibration:
    """`noise` is that of pairs read by all steps, `search_noise` by typical ones."""

    shape: BlockShape
    noise: Noise
    search_noise: Noise

    def floor(self, pairs: int) -> float:
        """The log ratio below which a difference over so many pairs is none from A/A."""
        return noise_floor(self.noise, pairs)


def calibrate(runner: PairRunner, shape: BlockShape, options: TuneOptions) -> Calibration:
    """Measure the default against itself, with the same proposals as any other setting.

    Raises StudyError when the script does not run with its own default, or launches of it take so
    long that the time cannot pay for an answer.
    """
    runner.reporter.phase("calibrate", "measuring the default against itself")
    failures, seconds = 0, runner.seconds_left
    while (done := len(runner.log.of("calibrate", runner.default))) < calibration_pairs(
        options, runner.run.cost(shape).pair_s, seconds
    ):
        runner.run.check_affordable(runner.reporter.seconds_left, done)
        try:
            runner.pair("calibrate", runner.default, shape, trial=0)
        except TrialFailed as failure:
            failures += 1
            if failures >= options.limits.max_crashes:
                what = f"cannot measure the default: {failure}"
                if isinstance(failure, JobCrashed):
                    raise ScriptFailed(what, failure.exit_code) from failure
                raise StudyError(what) from failure
    noise = noise_of(runner.log_ratios("calibrate", runner.default))
    search_noise = noise_of(runner.search_log_ratios("calibrate", runner.default))
    runner.search_noise = search_noise
    return Calibration(shape, noise, search_noise)
