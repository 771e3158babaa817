import dataclasses

import optuna
import pytest

from hvdtune.core.config.knobs import Knob, Value
from hvdtune.errors import UsageError
from hvdtune.tuner.space.search_space import KnobRange, Space, describe, key_of, make_space
from tests.kit.simulated_job import DEFAULT, KNOBS


def sample(space: Space, count: int) -> list[dict[str, Value]]:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    return [space.suggest(study.ask()) for _ in range(count)]


def test_only_live_knobs_that_matter_on_these_hosts_are_tuned() -> None:
    one = [knob.name for knob in make_space(KNOBS, DEFAULT, hosts=1).knobs]
    two = [knob.name for knob in make_space(KNOBS, DEFAULT, hosts=2).knobs]

    assert one == ["fusion_threshold_bytes", "cycle_time_ms", "chunk_bytes", "cache_enabled"]
    assert set(two) - set(one) == {"hierarchical_allreduce"}


def test_samples_stay_in_range_and_keep_what_is_not_tuned() -> None:
    table = {knob.name: knob for knob in KNOBS}
    for setting in sample(make_space(KNOBS, DEFAULT, fixed=("chunk_bytes",)), 200):
        assert setting["chunk_bytes"] == DEFAULT["chunk_bytes"]
        assert setting["cache_capacity"] == 1024
        for name, value in setting.items():
            assert table[name].low <= value <= table[name].high


def test_off_is_sampled_now_and_then() -> None:
    settings = sample(make_space(KNOBS, DEFAULT), 400)

    for name in ("fusion_threshold_bytes", "cycle_time_ms"):
        assert 10 < sum(setting[name] == 0 for setting in settings) < 60


def test_small_values_are_sampled_as_often_as_large_ones() -> None:
    settings = sample(make_space(KNOBS, DEFAULT), 400)

    small = sum(0 < setting["fusion_threshold_bytes"] < 2**22 for setting in settings)
    large = sum(setting["fusion_threshold_bytes"] >= 2**22 for setting in settings)
    assert 0.6 < small / large < 1.2


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"fusion_threshold_bytes": 0},
        {"cycle_time_ms": 0.0, "cache_enabled": False},
        {"fusion_threshold_bytes": 100_000_001, "cycle_time_ms": 1.2345},
        {"fusion_threshold_bytes": 17},
    ],
)
def test_an_enqueued_default_comes_back_exactly(changes: dict[str, Value]) -> None:
    default = {**DEFAULT, **changes}
    space = make_space(KNOBS, default)
    study = optuna.create_study()
    study.enqueue_trial(space.params_of(default))

    assert key_of(space.suggest(study.ask())) == key_of(default)


def test_values_too_close_to_tell_apart_are_one_setting() -> None:
    space = make_space(KNOBS, DEFAULT, tunable=("fusion_threshold_bytes",))
    trials = [
        optuna.trial.FixedTrial({"fusion_threshold_bytes": value}) for value in (4.0e6, 4.1e6)
    ]

    first, second = (space.suggest(trial) for trial in trials)
    assert first == second
    assert first["fusion_threshold_bytes"] == 4 * 2**20


@pytest.mark.parametrize(
    ("tunable", "fixed", "message"),
    [
        (("cycle",), (), "unknown knob cycle"),
        (None, ("cycle",), "unknown knob cycle"),
        (("cache_capacity",), (), "cache_capacity cannot change in a live run"),
        (("hierarchical_allreduce",), (), "hierarchical_allreduce has no effect on fewer than 2"),
        (("cycle_time_ms",), ("cycle_time_ms",), "no knob is left to tune"),
    ],
)
def test_a_space_with_nothing_to_tune_is_refused(
    tunable: tuple[str, ...] | None, fixed: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make_space(KNOBS, DEFAULT, tunable=tunable, fixed=fixed)


def test_a_category_is_tuned_where_there_are_several_hosts_or_it_is_named() -> None:
    algorithm = Knob("allreduce_algorithm", "", "category", 0, 1, False, "auto", "live")
    knobs = (*KNOBS, dataclasses.replace(algorithm, choices=("auto", "chain")))
    default = {**DEFAULT, "allreduce_algorithm": "auto"}
    assert "allreduce_algorithm" not in [knob.name for knob in make_space(knobs, default).knobs]
    assert "allreduce_algorithm" in [k.name for k in make_space(knobs, default, hosts=2).knobs]

    space = make_space(knobs, default, tunable=("allreduce_algorithm",))
    chain = {**default, "allreduce_algorithm": "chain"}
    assert space.suggest(optuna.trial.FixedTrial(space.params_of(chain))) == chain
    assert describe(chain, default) == "allreduce_algorithm=chain"


def test_knobs_of_other_scopes_are_tuned_where_each_setting_has_a_start_of_its_own() -> None:
    names = [k.name for k in make_space(KNOBS, DEFAULT, scopes=("live", "reinit")).knobs]
    assert "cache_capacity" in names


def test_a_knob_with_one_choice_is_not_searched() -> None:
    only = {"cache_enabled": KnobRange(choices=(True,))}
    assert "cache_enabled" not in [k.name for k in make_space(KNOBS, DEFAULT, ranges=only).knobs]


def test_a_grid_holds_all_choices_and_as_many_values_as_fit() -> None:
    space = make_space(KNOBS, DEFAULT, fixed=("chunk_bytes",))
    grid = space.grid(40)

    assert grid["cache_enabled"] == [False, True]
    assert {name: len(values) for name, values in grid.items()} == {
        "fusion_threshold_bytes": 4, "cycle_time_ms": 4, "cache_enabled": 2,
    }  # fmt: skip
    trial = optuna.trial.FixedTrial({name: values[0] for name, values in grid.items()})
    assert space.suggest(trial)["cycle_time_ms"] == 0.0


def test_an_incomplete_start_setting_is_refused() -> None:
    with pytest.raises(UsageError, match="the start setting lacks fusion_threshold_bytes"):
        make_space(KNOBS, {"cycle_time_ms": 1.0})


def test_a_setting_is_described_by_what_differs() -> None:
    setting = {**DEFAULT, "fusion_threshold_bytes": 3 * 2**20, "cache_enabled": False}

    assert describe(setting, DEFAULT) == "fusion_threshold_bytes=3 MiB, cache_enabled=false"
    assert describe(DEFAULT, DEFAULT) == "default"
