import dataclasses
import math

import pytest

from hvdtune.tuner.measure.pair_plan import (
    PairCost,
    calibration_pairs,
    plan_verify,
    reserve_s,
    trial_pairs,
    verify_reserve_s,
    wanted_pairs,
)
from hvdtune.tuner.space.tune_options import BY_RESTARTING, SamplerName, TuneOptions
from hvdtune.tuner.stats.estimates import Noise

OPTIONS = TuneOptions()
COST = PairCost(pair_s=1.3, launch_s=8.0)


def test_a_noisier_run_gets_more_pairs_per_trial() -> None:
    wanted = [wanted_pairs(OPTIONS, Noise(sd, 8)) for sd in (0.001, 0.01, 0.08, 0.2)]
    assert wanted == sorted(wanted)


@pytest.mark.parametrize(
    ("sampler", "sd", "pairs"),
    [
        ("noisy_gp", 0.001, OPTIONS.pairs.min_per_trial),
        ("noisy_gp", 0.2, OPTIONS.pairs.max_per_trial),
        ("tpe", 0.001, 3),
    ],
)
def test_pairs_per_trial_have_limits(sampler: SamplerName, sd: float, pairs: int) -> None:
    options = dataclasses.replace(OPTIONS, sampler=sampler)
    assert wanted_pairs(options, Noise(sd, 8)) == pairs


def test_a_sampler_that_knows_no_noise_gets_less_of_it() -> None:
    tpe = dataclasses.replace(OPTIONS, sampler="tpe")
    assert wanted_pairs(tpe, Noise(0.02, 8)) > wanted_pairs(OPTIONS, Noise(0.02, 8))


def test_verification_uses_fresh_launches_when_there_is_time() -> None:
    plan = plan_verify(OPTIONS, Noise(0.02, 8), COST, 150.0, 0.05)

    assert plan.restart
    assert OPTIONS.proof.launches <= plan.launches <= OPTIONS.proof.max_launches
    assert plan.pairs * COST.pair_s + plan.launches * COST.launch_s < 150.0


@pytest.mark.parametrize(("seconds", "launches"), [(48.0, 3), (40.0, 2), (30.0, 1)])
def test_short_of_time_the_running_launch_is_the_first(seconds: float, launches: int) -> None:
    plan = plan_verify(OPTIONS, Noise(0.02, 8), COST, seconds, 0.05)

    assert (plan.restart, plan.launches) == (False, launches)
    assert plan.pairs in (20, 21)


@pytest.mark.parametrize(("seconds", "pairs"), [(20.0, 13), (0.0, 8)])
def test_without_time_for_the_usual_pairs_there_are_as_many_as_fit(
    seconds: float, pairs: int
) -> None:
    plan = plan_verify(OPTIONS, Noise(0.02, 8), COST, seconds, 0.05)

    assert (plan.looks, plan.restart, plan.launches) == ((pairs,), False, 1)
    by_restarting = plan_verify(BY_RESTARTING, Noise(0.02, 8), COST, seconds, 0.05)
    assert by_restarting.pairs >= BY_RESTARTING.proof.min_pairs


def test_a_small_gain_is_verified_with_more_pairs_and_a_large_one_with_fewer() -> None:
    small, usual, large = (
        plan_verify(OPTIONS, Noise(0.02, 8), COST, 1000.0, gain) for gain in (0.01, 0.04, 0.50)
    )

    assert usual.pairs == OPTIONS.proof.min_pairs < small.pairs <= OPTIONS.proof.max_pairs
    assert large.looks == (10,)
    assert large.launches == OPTIONS.proof.max_launches


def test_launches_that_are_all_of_the_verification_are_no_fewer_for_a_large_gain() -> None:
    noise, cost = Noise(0.02, 8), PairCost(pair_s=1.0, launch_s=0.0)
    plan = plan_verify(BY_RESTARTING, noise, cost, 1000.0, 0.50)
    assert plan.pairs == BY_RESTARTING.proof.min_pairs


def test_what_is_asked_for_is_not_exceeded_for_a_large_gain() -> None:
    asked = dataclasses.replace(
        OPTIONS,
        proof=dataclasses.replace(OPTIONS.proof, min_pairs=6, max_pairs=6),
    )
    assert plan_verify(asked, Noise(0.02, 8), COST, 1000.0, 0.50).pairs == 6


def test_the_first_trials_may_cut_the_verification() -> None:
    reserves = [reserve_s(OPTIONS, Noise(0.02, 8), COST, 40.0, trials) for trials in range(6)]
    short, usual = 8 * 1.3 * 1.1, 20 * 1.3 * 1.1
    assert reserves == pytest.approx([short, short, short, short, usual, usual])


def test_where_the_usual_verification_does_not_fit_the_short_one_is_kept_for() -> None:
    reserves = [reserve_s(OPTIONS, Noise(0.02, 8), COST, 10.0, trials) for trials in range(6)]
    short = 8 * 1.3 * 1.1
    # The first other setting may be what halves it.
    assert reserves == pytest.approx([5.0, 5.0, short, short, short, short])


def test_where_little_fits_a_very_large_gain_is_verified_with_six_pairs() -> None:
    noise = Noise(0.2, 2)
    assert plan_verify(OPTIONS, noise, COST, 4.0, 2.0).pairs == 6
    assert plan_verify(OPTIONS, noise, COST, 9.0, 2.0).pairs == 6
    assert plan_verify(OPTIONS, noise, COST, 4.0, 0.3).pairs == 8
    assert plan_verify(BY_RESTARTING, noise, COST, 4.0, 2.0).pairs == 12
    assert reserve_s(OPTIONS, noise, COST, 9.0, 2, gain=2.0) == pytest.approx(6 * 1.3 * 1.1)


def test_a_calibration_that_takes_a_quarter_of_the_time_has_fewer_pairs() -> None:
    wanted = [calibration_pairs(OPTIONS, pair_s, 180.0) for pair_s in (1.0, 9.0, 9.1, 12.0, 90.0)]
    assert wanted == [5, 5, 4, 3, 3]
    assert calibration_pairs(OPTIONS, 1.0, math.inf) == 5
    assert (
        calibration_pairs(
            dataclasses.replace(OPTIONS, pairs=dataclasses.replace(OPTIONS.pairs, calibration=2)),
            90.0,
            180.0,
        )
        == 2
    )
    assert calibration_pairs(BY_RESTARTING, 90.0, 180.0) == 6


def test_a_slow_default_makes_the_verification_dearer_than_the_search() -> None:
    slow = dataclasses.replace(COST, verify_share=2.0)
    usual = plan_verify(OPTIONS, Noise(0.02, 8), COST, 80.0, 0.05)
    fitted = plan_verify(OPTIONS, Noise(0.02, 8), slow, 80.0, 0.05)

    assert usual.restart and not fitted.restart
    # 17 pairs of the race as before, 22 of the verification at twice the price.
    wanted = 1.1 * (17 * 1.3 + 22 * 2.6 + 3 * 8.0)
    assert reserve_s(OPTIONS, Noise(0.02, 8), slow, 480.0) == pytest.approx(wanted)


def test_a_large_gain_in_use_leaves_the_search_more_of_the_time() -> None:
    slow = dataclasses.replace(COST, verify_share=2.0)
    small, large = (
        reserve_s(OPTIONS, Noise(0.02, 8), slow, 480.0, gain=gain) for gain in (0.05, 0.7)
    )
    # 10 pairs of the verification fewer, at twice the price.
    assert large == pytest.approx(small - 1.1 * 10 * 2.6)


def test_a_large_gain_in_use_is_to_be_proved_before_it_is_increased() -> None:
    full = reserve_s(OPTIONS, Noise(0.02, 8), COST, 480.0, gain=0.7)
    for left in (full + 1.0, 2 * full - 1.0):
        assert reserve_s(OPTIONS, Noise(0.02, 8), COST, left, gain=0.7) == full
        assert reserve_s(OPTIONS, Noise(0.02, 8), COST, left, trials=3, gain=0.7) < full
    # A search that has taken a little too long ends, too.
    assert reserve_s(OPTIONS, Noise(0.02, 8), COST, full - 1.0, gain=0.7) == full
    assert reserve_s(OPTIONS, Noise(0.02, 8), COST, full / 2, gain=0.7) < full / 2


@pytest.mark.parametrize(
    ("seconds", "reserve"),
    [
        # 17 pairs of the race, 22 of the verification in 3 launches.
        pytest.param(480.0, 1.1 * (39 * 1.3 + 3 * 8.0), id="less-than-half"),
        pytest.param(100.0, 50.0, id="half"),
        pytest.param(30.0, 20 * 1.3 * 1.1, id="the-least"),
        pytest.param(10.0, 8 * 1.3 * 1.1, id="less-than-the-least"),
    ],
)
def test_the_reserve_is_at_most_half_unless_the_least_needs_more(
    seconds: float, reserve: float
) -> None:
    assert reserve_s(OPTIONS, Noise(0.02, 8), COST, seconds) == pytest.approx(reserve)


@pytest.mark.parametrize(
    ("options", "gain", "seconds", "pairs"),
    [
        pytest.param(OPTIONS, 0.05, 60.0, 20, id="usual"),
        pytest.param(OPTIONS, 0.05, 20.0, 8, id="short of time"),
        pytest.param(OPTIONS, 0.5, 60.0, 10, id="large gain"),
        pytest.param(OPTIONS, 0.5, 10.0, 6, id="large gain, short of time"),
        pytest.param(BY_RESTARTING, 0.5, 10.0, 12, id="by restarting"),
    ],
)
def test_a_race_leaves_time_for_the_verification(
    options: TuneOptions, gain: float, seconds: float, pairs: int
) -> None:
    reserve = verify_reserve_s(options, Noise(0.02, 8), COST, seconds, gain)
    assert reserve == pytest.approx(pairs * 1.3 * 1.1)


@pytest.mark.parametrize(
    ("seconds", "trials", "pairs"),
    [
        (400.0, 10, OPTIONS.pairs.max_per_trial),
        (130.0, 40, 5),
        (130.0, 400, OPTIONS.pairs.min_per_trial),
        (1.0, 40, 0),
    ],
)
def test_trials_share_what_time_is_left(seconds: float, trials: int, pairs: int) -> None:
    assert trial_pairs(OPTIONS, Noise(0.2, 8), COST, seconds, trials) == pairs


def test_options_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        OPTIONS.trials = 3  # type: ignore[misc]
