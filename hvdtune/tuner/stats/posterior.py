"""Estimate of one setting from all measurements of a study. Pure."""

import math
from dataclasses import dataclass
from typing import Final, Literal

from hvdtune.tuner.stats.estimates import Estimate, from_percent, to_percent

# Half the width of a normal 95 % interval, in standard deviations.
REACH: Final = 1.96

Scope = Literal["over launches", "in this launch", "in the launch of the search"]


@dataclass(frozen=True)
class Posterior:
    """Normal distribution of a setting's log ratio."""

    mean: float
    sd: float

    def chance(self, log_ratio: float) -> float:
        """Return how likely the setting is better than this."""
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
        """Suffix about launches that were not measured; "" if some were."""
        if self.others_percent is None:
            return ""
        return f"; other launches (not measured): {_range(*self.others_percent)} %"

    @property
    def others_by_all_text(self) -> str:
        """The same suffix for an interval from fresh pairs alone, which may be wider."""
        if self.others_percent is None:
            return ""
        return (
            "; estimate for other launches, from all measurements: "
            f"{_range(*self.others_percent)} %"
        )

    @property
    def unproved_text(self) -> str:
        """Description of a setting that is used without proof; its interval may be above zero."""
        return self._unproved(self.scope)

    @property
    def unproved_elsewhere_text(self) -> str:
        """The same description after the launch of the study has ended."""
        is_of_one = self.scope == "in this launch"
        return self._unproved("in the only launch that was measured" if is_of_one else self.scope)

    def _unproved(self, scope: str) -> str:
        alone, basis = (
            (" by fresh pairs alone", " from all measurements")
            if self.low_percent > 0
            else ("", "")
        )
        return (
            f"expected {self.gain_percent:+.1f} % {scope}, not yet proved{alone} "
            f"(95 %{basis}: {self.interval_text} %{self.others_text})"
        )


def posterior_of(fresh: Estimate) -> Posterior:
    """Return the posterior from fresh pairs alone, by their 95 % interval."""
    return Posterior(fresh.mean, max((fresh.high - fresh.low) / 2 / REACH, 1e-6))


def posterior_from(belief: Belief) -> Posterior:
    """Return the posterior of a belief."""
    mean, high = from_percent(belief.gain_percent), from_percent(belief.high_percent)
    return Posterior(mean, (high - mean) / REACH)


def belief_of(posterior: Posterior) -> Belief:
    """Return a posterior as a belief over launches."""
    return Belief(to_percent(posterior.mean), *interval_of(posterior))


def interval_of(posterior: Posterior) -> tuple[float, float]:
    """The range at 95 %, in percent."""
    reach = REACH * posterior.sd
    return to_percent(posterior.mean - reach), to_percent(posterior.mean + reach)


def _range(low_percent: float, high_percent: float) -> str:
    return f"{low_percent:+.1f} to {high_percent:+.1f}"
