"""Whether a training has lastingly changed its pace: a CUSUM on log step time. Pure.

Page, "Continuous inspection schemes", Biometrika 41 (1954): sums of what goes beyond an allowance,
one for slower and one for faster, that fall back to zero while nothing is the matter. A sample is
the median of a block's steps, so that checkpoints and evaluations, being rare, do not count.
"""

import math
import statistics
from dataclasses import dataclass
from typing import Final

_BASELINE_SAMPLES: Final = 40
# A change of the pace by less is nothing to tune for; more where the training itself is restless.
_SMALLEST_SHIFT: Final = math.log(1.05)
_SHIFT_IN_SDS: Final = 4.0
# As many samples of exactly the smallest shift raise the alarm, and no fewer of any.
_SAMPLES_OF_IT: Final = 30
_LASTING_SAMPLES: Final = 15


@dataclass(frozen=True)
class Change:
    """`factor`: how many times as long as before a step takes; `steps`: since when, about."""

    factor: float
    steps: int


class Drift:
    """Takes the steps of a training under one setting.

    Args:
        steps: how many make a sample.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._block: list[float] = []
        self._baseline: list[float] = []
        self._center = self._allowance = self._limit = 0.0
        self._slower: list[float] = []
        self._faster: list[float] = []

    def add(self, step_s: float) -> Change | None:
        """The next step; a Change when the pace has lastingly changed."""
        self._block.append(step_s)
        if len(self._block) < self._steps:
            return None
        sample = math.log(statistics.median(self._block))
        self._block.clear()
        if len(self._baseline) < _BASELINE_SAMPLES:
            self._baseline.append(sample)
            if len(self._baseline) == _BASELINE_SAMPLES:
                self._settle()
            return None
        beyond = sample - self._center
        for run, amount in ((self._slower, beyond), (self._faster, -beyond)):
            run.append(amount - self._allowance)
            if sum(run) <= 0:
                run.clear()
            elif sum(run) > self._limit and len(run) >= _LASTING_SAMPLES:
                sign = 1 if run is self._slower else -1
                shift = sign * (statistics.median(run) + self._allowance)
                return Change(math.exp(shift), len(run) * self._steps)
        return None

    def _settle(self) -> None:
        self._center = statistics.median(self._baseline)
        deviations = [abs(sample - self._center) for sample in self._baseline]
        sd = 1.4826 * statistics.median(deviations)
        shift = max(_SMALLEST_SHIFT, _SHIFT_IN_SDS * sd)
        self._allowance = shift / 2
        self._limit = _SAMPLES_OF_IT * (shift - self._allowance)
