from dataclasses import replace

from hvdtune.core.config.knobs import Setting, Value
from hvdtune.tuner.search.beliefs import Believed
from hvdtune.tuner.search.choice import with_simpler
from hvdtune.tuner.stats.posterior import Posterior
from hvdtune.tuner.stats.verdict import SimplerSetting, nothing_verified
from tests.kit.simulated_job import DEFAULT


def at(**changes: Value) -> Setting:
    return {**DEFAULT, **changes}


def simpler_than(
    chosen: Setting, gains: list[tuple[Setting, float]], sd: float = 0.01
) -> SimplerSetting | None:
    """What the verdict on a setting says of others, of whose log ratios means are believed."""
    settings = {number: setting for number, (setting, _) in enumerate(gains)}
    posteriors = [Posterior(mean, sd) for _, mean in gains]
    found = {n: Believed(each, each, each) for n, each in enumerate(posteriors)}
    verdict = replace(nothing_verified(DEFAULT, 0.01, 20, ""), setting=chosen)
    return with_simpler(verdict, DEFAULT, settings, found).simpler


ONE = at(cycle_time_ms=20.0)
TWO = at(cycle_time_ms=20.0, fusion_threshold_bytes=1 << 20)
THREE = at(cycle_time_ms=20.0, fusion_threshold_bytes=1 << 20, cache_capacity=64)


def test_the_fewest_changes_that_gain_nearly_as_much_are_named() -> None:
    simpler = simpler_than(THREE, [(THREE, 0.50), (TWO, 0.51), (ONE, 0.46)])
    assert simpler is not None
    assert simpler.setting == ONE
    assert 58 < simpler.believed.gain_percent < 59


def test_a_simpler_setting_that_gains_much_less_is_not_named() -> None:
    assert simpler_than(TWO, [(TWO, 0.50), (ONE, 0.44)]) is None


def test_a_simpler_setting_that_may_gain_nothing_is_not_named() -> None:
    assert simpler_than(TWO, [(TWO, 0.010), (ONE, 0.010)]) is None


def test_other_values_and_other_knobs_are_not_a_part_of_the_setting() -> None:
    others = [(at(cycle_time_ms=10.0), 0.6), (at(cache_capacity=64), 0.6)]
    assert simpler_than(TWO, [(TWO, 0.5), *others]) is None
    assert simpler_than(DEFAULT, [(ONE, 0.5)]) is None


def test_a_setting_of_which_nothing_is_believed_has_no_simpler_one() -> None:
    assert simpler_than(TWO, [(ONE, 0.5)]) is None
