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
# So many more samples beyond the allowance than within it raise the alarm. How far beyond does not
# count, or a short pause would be a change.
_LASTING_SAMPLES: Final = 30


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
        self._center = self._allowance = 0.0
        self._slower = _Run()
        self._faster = _Run()

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
        shift = sample - self._center
        for run, sign in ((self._slower, 1), (self._faster, -1)):
            if run.add(sign * shift, self._allowance):
                factor = math.exp(sign * statistics.median(run.shifts))
                return Change(factor, len(run.shifts) * self._steps)
        return None

    def _settle(self) -> None:
        self._center = statistics.median(self._baseline)
        deviations = [abs(sample - self._center) for sample in self._baseline]
        sd = 1.4826 * statistics.median(deviations)
        shift = max(_SMALLEST_SHIFT, _SHIFT_IN_SDS * sd)
        self._allowance = shift / 2


class _Run:
    """One of the two sums, and the shifts it consists of."""

    def __init__(self) -> None:
        self.shifts: list[float] = []
        self._sum = 0.0

    def add(self, shift: float, allowance: float) -> bool:
        """Return whether the change is lasting with this sample."""
        self._sum += min(shift / allowance - 1.0, 1.0)
        self.shifts.append(shift)
        if self._sum <= 0:
            self._sum = 0.0
            self.shifts.clear()
        return self._sum >= _LASTING_SAMPLES
