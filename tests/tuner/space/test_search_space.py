import dataclasses
from typing import Any

import optuna
import pytest

from hvdtune.core.config.knobs import Knob, Value
from hvdtune.errors import UsageError
from hvdtune.tuner.space.search_space import KnobRange, Space, describe, key_of, make_space
from tests.kit.simulated_job import DEFAULT, KNOBS

ALGORITHM = Knob("allreduce_algorithm", "", "category", 0, 1, False, "auto", "live")
WITH_ALGORITHM = (*KNOBS, dataclasses.replace(ALGORITHM, choices=("auto", "chain")))
AUTO = {**DEFAULT, "allreduce_algorithm": "auto"}
ON_ONE_HOST = ["fusion_threshold_bytes", "cycle_time_ms", "chunk_bytes", "cache_enabled"]


def sample(space: Space, count: int) -> list[dict[str, Value]]:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    return [space.suggest(study.ask()) for _ in range(count)]


TWO_HOSTS = [*ON_ONE_HOST, "hierarchical_allreduce", "allreduce_algorithm"]
ONLY = KnobRange(choices=(True,))


@pytest.mark.parametrize(
    ("options", "names"),
    [
        pytest.param({}, ON_ONE_HOST, id="live-ones"),
        pytest.param({"hosts": 2}, TWO_HOSTS, id="those-that-matter-on-these-hosts"),
        pytest.param({"tunable": ["allreduce_algorithm"]}, ["allreduce_algorithm"], id="named"),
        pytest.param({"ranges": {"cache_enabled": ONLY}}, ON_ONE_HOST[:-1], id="not-of-one-choice"),
        pytest.param(
            {"scopes": ("live", "reinit")}, [*ON_ONE_HOST, "cache_capacity"], id="other-scopes"
        ),
    ],
)
def test_the_knobs_that_are_tuned(options: dict[str, Any], names: list[str]) -> None:
    space = make_space(WITH_ALGORITHM, AUTO, **options)
    assert sorted(knob.name for knob in space.knobs) == sorted(names)


def test_samples_stay_in_range_and_keep_what_is_not_tuned() -> None:
    table = {knob.name: knob for knob in KNOBS}
    for setting in sample(make_space(KNOBS, DEFAULT, fixed=("chunk_bytes",)), 200):
        assert setting["chunk_bytes"] == DEFAULT["chunk_bytes"]
        assert setting["cache_capacity"] == 1024
        for name, value in setting.items():
            assert table[name].low <= value <= table[name].high


@pytest.mark.parametrize("name", ["fusion_threshold_bytes", "cycle_time_ms"])
def test_off_is_sampled_now_and_then(name: str) -> None:
    settings = sample(make_space(KNOBS, DEFAULT), 400)

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
    ("options", "message"),
    [
        ({"tunable": ["cycle"]}, "unknown knob cycle"),
        ({"fixed": ["cycle"]}, "unknown knob cycle"),
        ({"tunable": ["cache_capacity"]}, "cache_capacity cannot change in a live run"),
        (
            {"tunable": ["hierarchical_allreduce"]},
            "hierarchical_allreduce has no effect on fewer than 2",
        ),
        ({"tunable": ["chunk_bytes"], "fixed": ["chunk_bytes"]}, "no knob is left to tune"),
        ({"default": {"cycle_time_ms": 1.0}}, "the start setting lacks fusion_threshold_bytes"),
    ],
)
def test_a_space_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_space(**{"knobs": KNOBS, "default": DEFAULT, **options})


def test_a_category_is_suggested_as_it_was_asked_for() -> None:
    space = make_space(WITH_ALGORITHM, AUTO, tunable=("allreduce_algorithm",))
    chain = {**AUTO, "allreduce_algorithm": "chain"}
    assert space.suggest(optuna.trial.FixedTrial(space.params_of(chain))) == chain


def test_a_grid_holds_all_choices_and_as_many_values_as_fit() -> None:
    space = make_space(KNOBS, DEFAULT, fixed=("chunk_bytes",))
    grid = space.grid(40)

    assert grid["cache_enabled"] == [False, True]
    assert {name: len(values) for name, values in grid.items()} == {
        "fusion_threshold_bytes": 4, "cycle_time_ms": 4, "cache_enabled": 2,
    }  # fmt: skip
    trial = optuna.trial.FixedTrial({name: values[0] for name, values in grid.items()})
    assert space.suggest(trial)["cycle_time_ms"] == 0.0


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"fusion_threshold_bytes": 3 * 2**20, "cache_enabled": False},
            "fusion_threshold_bytes=3 MiB, cache_enabled=false",
        ),
        ({"allreduce_algorithm": "chain"}, "allreduce_algorithm=chain"),
        ({}, "default"),
    ],
)
def test_a_setting_is_described_by_what_differs(changes: dict[str, Value], text: str) -> None:
    assert describe({**AUTO, **changes}, AUTO) == text
