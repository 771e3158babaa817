import math

import pytest

from hvdtune.tuner.stats.choice import choose
from hvdtune.tuner.stats.estimates import from_percent
from hvdtune.tuner.stats.posterior import Posterior, belief_of


def test_the_best_expectation_that_is_hardly_slower_is_chosen() -> None:
    believed = {
        "risky": Posterior(0.05, 0.06),
        "good": Posterior(0.02, 0.01),
        "sure": Posterior(0.01, 0.001),
    }
    assert choose(believed) == "good"


@pytest.mark.parametrize(
    "believed",
    [
        {},
        {"slower": Posterior(-0.002, 0.0001)},
        {"hardly faster": Posterior(0.0005, 0.0001)},
        {"may be slower": Posterior(0.001, 0.02)},
    ],
    ids=lambda believed: next(iter(believed), "nothing"),
)
def test_without_such_a_setting_it_is_the_default(believed: dict[str, Posterior]) -> None:
    assert choose(believed) is None


def test_the_bound_is_one_of_what_studies_have_shown_of_the_posteriors() -> None:
    """5 % below -1 %: 1.645 standard deviations, as sure as the ranges are that people see."""
    reach = (
        1.645
        * (
            from_percent(2.0)
            - math.log1p(belief_of(Posterior(from_percent(2.0), 0.01)).low_percent / 100)
        )
        / 1.96
        / 0.01
    )
    sd = (0.02 - from_percent(-1.0)) / reach
    assert choose({"a": Posterior(0.02, 0.99 * sd)}) == "a"
    assert choose({"a": Posterior(0.02, 1.01 * sd)}) is None
