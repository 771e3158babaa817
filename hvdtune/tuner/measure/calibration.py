"""The A/A phase: how long steps take, and how much the default differs from itself."""

import math
from dataclasses import dataclass

from hvdtune.errors import StudyError
from hvdtune.tuner.measure.blocks import BlockShape, shape_for
from hvdtune.tuner.measure.live_run import TrialFailed
from hvdtune.tuner.measure.pair_plan import PairCost, least_pairs, least_s
from hvdtune.tuner.measure.pair_runner import PairRunner
from hvdtune.tuner.measure.restart_run import RestartRun
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.estimates import Noise, noise_floor, noise_of

# The budget that is asked for is not to be too short again.
_MARGIN = 1.1


@dataclass(frozen=True)
class Calibration:
    """`noise` is that of pairs read by all steps, `search_noise` by typical ones."""

    shape: BlockShape
    noise: Noise
    search_noise: Noise

    def floor(self, pairs: int) -> float:
        """The log ratio below which a difference over so many pairs is none from A/A."""
        return noise_floor(self.noise, pairs)


def current_cost(runner: PairRunner, calibration: Calibration) -> PairCost:
    """What pairs and launches take at the moment."""
    return PairCost(runner.run.pair_s or calibration.shape.pair_s, runner.run.launch_s)


def choose_shape(runner: PairRunner, options: TuneOptions) -> BlockShape:
    """Bring the script to step and size the blocks after its step time."""
    runner.run.ensure_running()
    if isinstance(runner.run, RestartRun):
        return runner.run.shape
    return shape_for(runner.run.step_s, options.block_s, options.min_block_steps)


def calibrate(runner: PairRunner, shape: BlockShape, options: TuneOptions) -> Calibration:
    """Measure the default against itself, with the same proposals as any other setting.

    Raises StudyError when the script does not run with its own default, or launches of it take so
    long that the time cannot pay for an answer.
    """
    runner.reporter.phase("calibrate", "measuring the default against itself")
    failures = 0
    while (done := len(runner.log.of("calibrate", runner.default))) < options.calibrate_pairs:
        if isinstance(runner.run, RestartRun):
            _check_time(runner.run, runner.reporter.seconds_left, options, done)
        try:
            runner.pair("calibrate", runner.default, shape, trial=0)
        except TrialFailed as failure:
            failures += 1
            if failures >= options.max_crashes:
                raise StudyError(f"the default itself cannot be measured: {failure}") from failure
    noise = noise_of(runner.log_ratios("calibrate", runner.default))
    search_noise = noise_of(runner.search_log_ratios("calibrate", runner.default))
    runner.search_noise = search_noise
    return Calibration(shape, noise, search_noise)


def _check_time(run: RestartRun, left_s: float, options: TuneOptions, done: int) -> None:
    """A live run costs nothing that was not to be run anyway: only launches are asked to pay."""
    if least_s(options, run.least_pair_s, done) <= left_s:
        return
    pair_s = run.pair_s or 2 * run.launch_wall_s
    calibration, trial, verification = least_pairs(options)
    tried = f"{trial} of one other setting, " if trial else ""
    needed_s = _MARGIN * (run.launch_wall_s + least_s(options, pair_s))
    raise StudyError(
        f"the time budget is too short: a pair of launches takes {pair_s:.3g} s, and the least is "
        f"{calibration + trial + verification} pairs ({calibration} of the default with itself, "
        f"{tried}{verification} to verify it); give it --time-budget "
        f"{_rounded_up(needed_s)} or more"
    )


def _rounded_up(seconds: float) -> str:
    return f"{math.ceil(seconds)}s" if seconds < 600 else f"{math.ceil(seconds / 60)}m"
