"""What all readings of a study together make of one setting. Pure."""

import math
from dataclasses import dataclass
from typing import Final, Literal

from hvdtune.tuner.stats.estimates import Estimate, from_percent, to_percent

# Half the width of a normal 95 % interval, in standard deviations.
REACH: Final = 1.96

Scope = Literal["over launches", "in this launch", "in the launch of the search"]


@dataclass(frozen=True)
class Posterior:
    """The log ratio that is believed of a setting, and how sure that is."""

    mean: float
    sd: float

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

    The range is made to hold the truth in 95 % of studies. `scope` says of what: of the mean over
    launches, or of one launch. Where no other has been seen than the one that runs,
    `others_percent` is the range over launches, which is wider.
    """

    gain_percent: float
    low_percent: float
    high_percent: float
    scope: Scope = "over launches"
    others_percent: tuple[float, float] | None = None

    @property
    def interval_text(self) -> str:
        """The range, as "-0.3 to +3.9"."""
        return _range(self.low_percent, self.high_percent)

    @property
    def others_text(self) -> str:
        """What is said of launches that were not seen, to stand at the end; "" where some were."""
        if self.others_percent is None:
            return ""
        return f"; other launches (not measured): {_range(*self.others_percent)} %"

    @property
    def others_by_all_text(self) -> str:
        """The same behind a range that is of fresh pairs alone, and may be the wider one."""
        if self.others_percent is None:
            return ""
        return f"; expected of other launches, by all readings: {_range(*self.others_percent)} %"

    @property
    def unproved_text(self) -> str:
        """What is said of a setting that is used without proof, whose range may lie above zero."""
        return self._unproved(self.scope)

    @property
    def unproved_elsewhere_text(self) -> str:
        """The same for whoever reads it when the launch of the study has ended."""
        is_of_one = self.scope == "in this launch"
        return self._unproved("in the only launch that was measured" if is_of_one else self.scope)

    def _unproved(self, scope: str) -> str:
        alone, basis = (
            (" by fresh pairs alone", " by all readings") if self.low_percent > 0 else ("", "")
        )
        return (
            f"expected {self.gain_percent:+.1f} % {scope}, not yet proved{alone} "
            f"(95 %{basis}: {self.interval_text} %{self.others_text})"
        )


def posterior_of(fresh: Estimate) -> Posterior:
    """What fresh pairs alone make of a setting, by their interval at 95 %."""
    return Posterior(fresh.mean, max((fresh.high - fresh.low) / 2 / REACH, 1e-6))


def posterior_from(belief: Belief) -> Posterior:
    """The posterior that a belief was made of."""
    mean, high = from_percent(belief.gain_percent), from_percent(belief.high_percent)
    return Posterior(mean, (high - mean) / REACH)


def belief_of(posterior: Posterior) -> Belief:
    """The belief over launches that a posterior is."""
    return Belief(to_percent(posterior.mean), *interval_of(posterior))


def interval_of(posterior: Posterior) -> tuple[float, float]:
    """The range at 95 %, in percent."""
    reach = REACH * posterior.sd
    return to_percent(posterior.mean - reach), to_percent(posterior.mean + reach)


def _range(low_percent: float, high_percent: float) -> str:
    return f"{low_percent:+.1f} to {high_percent:+.1f}"
