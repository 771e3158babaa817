"""What the phases of a study share."""

import math
import statistics
from dataclasses import dataclass, replace

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.measure.calibration import Calibration
from hvdtune.tuner.measure.pair_plan import LARGE_GAIN, PairCost
from hvdtune.tuner.measure.pair_runner import PairRunner
from hvdtune.tuner.measure.progress import Reporter
from hvdtune.tuner.measure.run import RECENT_PAIRS, Run
from hvdtune.tuner.space.tune_options import TuneOptions


@dataclass(frozen=True)
class StudyContext:
    """A calibrated study: what measures its pairs, how much they scatter, and what was asked for.

    Used from the tuner's thread.
    """

    runner: PairRunner
    calibration: Calibration
    options: TuneOptions

    @property
    def default(self) -> Setting:
        """The reference of every pair."""
        return self.runner.default

    @property
    def reporter(self) -> Reporter:
        """Tells the user how the study gets on."""
        return self.runner.reporter

    @property
    def run(self) -> Run:
        """The script that is measured."""
        return self.runner.run

    @property
    def cost(self) -> PairCost:
        """Seconds that pairs and launches take at the moment."""
        shape, in_use = self.calibration.shape, self.runner.in_use
        cost = self.run.cost(shape)
        if in_use.setting == self.default:
            return cost
        used_pair_s = shape.pair_s * self._step_s_of(in_use.setting) / shape.step_s
        times_longer = (1 + math.exp(in_use.log_ratio)) / 2
        return replace(
            cost,
            race_share=used_pair_s / cost.pair_s,
            verify_share=used_pair_s * times_longer / cost.pair_s,
        )

    def cost_with(self, gain: float) -> PairCost:
        """`cost`, where half of each pair of the verification runs under what gains so much."""
        shape = self.calibration.shape
        if gain < LARGE_GAIN or self.runner.in_use.setting != self.default:
            return self.cost
        default_s = shape.pair_s * self._step_s_of(self.default) / shape.step_s
        verify_pair_s = default_s * (1 + math.exp(-gain)) / 2
        return replace(self.cost, verify_share=verify_pair_s / self.cost.pair_s)

    def _step_s_of(self, setting: Setting) -> float:
        """Seconds of a step in the latest pairs with this setting, of which there is one."""
        found: list[float] = []
        for pair in reversed(self.runner.log.pairs):
            if setting in (pair.reference, pair.setting):
                is_reference = setting == pair.reference
                found.append(pair.reference_step_ms if is_reference else pair.setting_step_ms)
            if len(found) == RECENT_PAIRS:
                break
        return statistics.median(found) / 1e3
