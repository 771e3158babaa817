"""What the phases of a study share."""

import math
from dataclasses import dataclass, replace

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.measure.calibration import Calibration
from hvdtune.tuner.measure.pair_plan import PairCost
from hvdtune.tuner.measure.pair_runner import PairRunner
from hvdtune.tuner.measure.progress import Reporter
from hvdtune.tuner.measure.run import Run
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
        ahead = self.runner.in_use.log_ratio
        cost = self.run.cost(self.calibration.shape)
        return replace(cost, verify_share=(1 + math.exp(ahead)) / 2)
