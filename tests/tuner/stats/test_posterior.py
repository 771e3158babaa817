import math

import pytest

from hvdtune.tuner.stats.estimates import estimate, from_percent
from hvdtune.tuner.stats.posterior import Belief, Posterior, belief_of


def test_fresh_pairs_move_what_is_believed_by_how_sure_they_are() -> None:
    believed = Posterior(0.08, 0.02)
    sure = believed.given(estimate([0.010, 0.011, 0.009, 0.010] * 5))
    unsure = believed.given(estimate([0.2, -0.2, 0.1, -0.1]))
    assert sure.mean == pytest.approx(0.01, abs=0.001) and sure.sd < 0.001
    assert 0.06 < unsure.mean < believed.mean and unsure.sd < believed.sd


def test_a_single_fresh_pair_whose_spread_is_unknown_moves_nothing() -> None:
    believed = Posterior(0.08, 0.02)
    assert believed.given(estimate([0.5])) == believed


def test_few_launches_weigh_less_than_a_normal_interval_would_have_it() -> None:
    two = estimate([0.04, 0.06])
    assert Posterior(0.0, 0.02).given(two).mean < 0.05 / (1 + (two.stderr / 0.02) ** 2)


def test_a_belief_is_in_percent_of_speed() -> None:
    belief = belief_of(Posterior(from_percent(2.0), 0.0115))
    assert belief.gain_percent == pytest.approx(2.0)
    assert belief.high_percent == pytest.approx(100 * math.expm1(math.log(1.02) + 1.96 * 0.0115))
    assert belief.interval_text == "-0.3 to +4.3"
    assert (
        belief.unproved_text
        == "expected +2.0 % over launches, not yet proved (95 %: -0.3 to +4.3 %)"
    )


def test_a_range_above_zero_is_said_not_to_be_the_proof() -> None:
    assert Belief(5.2, 1.2, 9.5).unproved_text == (
        "expected +5.2 % over launches, not yet proved by fresh pairs alone "
        "(95 % from all measurements: +1.2 to +9.5 %)"
    )


@pytest.mark.parametrize(("gain", "chance"), [(0.02, 0.5), (0.0, 0.977), (0.04, 0.023)])
def test_the_chance_to_be_better_falls_with_what_is_asked(gain: float, chance: float) -> None:
    assert Posterior(0.02, 0.01).chance(gain) == pytest.approx(chance, abs=0.001)
