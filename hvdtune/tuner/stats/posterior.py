"""What all readings of a study together make of one setting. Pure."""

import math
from dataclasses import dataclass
from typing import Final

from hvdtune.tuner.stats.estimates import Estimate, from_percent, to_percent

# Half the width of a normal 95 % interval, in standard deviations.
_REACH: Final = 1.96
# The process is surer than it should be: in 46 simulated studies of recorded grids, 11 or 12 of
# each, the interval of the setting believed best held the truth 38 times, and widened so 44 times.
# The factor was chosen by the same studies.
_WIDENED: Final = 1.3


@dataclass(frozen=True)
class Posterior:
    """The log ratio that is believed of a setting, and how sure that is."""

    mean: float
    sd: float

    @property
    def widened(self) -> "Posterior":
        """As sure as studies have shown that it may be."""
        return Posterior(self.mean, _WIDENED * self.sd)

    def chance(self, log_ratio: float) -> float:
        """How likely the setting is better than this."""
        return float(0.5 * math.erfc((log_ratio - self.mean) / (math.sqrt(2) * self.sd)))

    def given(self, fresh: Estimate) -> "Posterior":
        """The same after fresh pairs, weighed by their interval at 95 %; one of them says nothing.

        Student's interval of few launches is wider than a normal one: so is what is made of it.
        """
        spread = posterior_of(fresh).sd
        if not math.isfinite(spread):
            return self
        own, other = self.sd**-2, spread**-2
        mean = (own * self.mean + other * fresh.mean) / (own + other)
        return Posterior(mean, (own + other) ** -0.5)


@dataclass(frozen=True)
class Belief:
    """A posterior for people: a gain over the default with a range, in percent.

    The range is made to hold the truth of the setting that is believed best in 95 % of studies.
    Settings that are unlike those around them lie outside theirs more often.
    """

    gain_percent: float
    low_percent: float
    high_percent: float

    @property
    def interval_text(self) -> str:
        """The range, as "-0.3 to +3.9"."""
        return f"{self.low_percent:+.1f} to {self.high_percent:+.1f}"

    @property
    def unproved_text(self) -> str:
        """What is said of a setting that is used without proof, whose range may lie above zero."""
        alone, basis = (
            (" by fresh pairs alone", " by all readings") if self.low_percent > 0 else ("", "")
        )
        return (
            f"expected {self.gain_percent:+.1f} %, not yet proved{alone} "
            f"(95 %{basis}: {self.interval_text} %)"
        )


def posterior_of(fresh: Estimate) -> Posterior:
    """What fresh pairs alone make of a setting, by their interval at 95 %."""
    return Posterior(fresh.mean, max((fresh.high - fresh.low) / 2 / _REACH, 1e-6))


def posterior_from(belief: Belief) -> Posterior:
    """The posterior that a belief was made of."""
    mean, high = from_percent(belief.gain_percent), from_percent(belief.high_percent)
    return Posterior(mean, (high - mean) / (_REACH * _WIDENED))


def belief_of(posterior: Posterior) -> Belief:
    """The belief that a posterior is."""
    reach = _REACH * posterior.widened.sd
    return Belief(
        to_percent(posterior.mean),
        to_percent(posterior.mean - reach),
        to_percent(posterior.mean + reach),
    )
