import itertools
import random

import pytest

from hvdtune.core.config.knobs import Setting
from hvdtune.timeline.analysis.fusion import plan_buckets
from hvdtune.tuner.space.plan_equivalence import plan_key, possible_sums
from tests.kit.simulated_job import DEFAULT

MIB = 2**20


def with_threshold(threshold: int, **changes: object) -> Setting:
    return {**DEFAULT, "fusion_threshold_bytes": threshold, **changes}  # type: ignore[dict-item]


def test_thresholds_above_everything_a_step_sends_are_one_plan() -> None:
    key = plan_key([3 * MIB, 2 * MIB])
    above = {key(with_threshold(size)) for size in (6 * MIB, 128 * MIB, 512 * MIB)}

    assert len(above) == 1
    assert key(with_threshold(4 * MIB)) not in above


def test_equal_tensors_make_as_many_plans_as_there_are_tensors() -> None:
    key = plan_key([1000] * 8)
    keys = {key(with_threshold(size)) for size in range(1001, 8000, 7) if size % 1000}

    assert len(keys) == 7


@pytest.mark.parametrize("seed", range(20))
def test_settings_of_one_key_make_the_same_decisions_whatever_is_ready(seed: int) -> None:
    generator = random.Random(seed)
    sizes = [generator.choice([1, 3, 4, 8, 20]) for _ in range(5)]
    key = plan_key(sizes)
    by_key: dict[str, list[int]] = {}
    for threshold in range(1, sum(sizes) + 4):
        by_key.setdefault(key(with_threshold(threshold)), []).append(threshold)

    for alike in by_key.values():
        for count in range(1, 6):
            for ready in itertools.permutations(sizes, count):
                made = {str(plan_buckets(ready, [0] * count, threshold)) for threshold in alike}
                full = {sum(ready) >= threshold for threshold in alike}
                assert (len(made), len(full)) == (1, 1)


def test_off_and_tiny_are_one_plan_only_where_nothing_is_collected() -> None:
    key = plan_key([100, 200])
    assert key(with_threshold(0)) != key(with_threshold(99))
    at_once = {"cycle_time_ms": 0.0}
    assert key(with_threshold(0, **at_once)) == key(with_threshold(99, **at_once))


def test_a_named_algorithm_makes_the_ways_of_auto_irrelevant() -> None:
    key = plan_key([])
    direct = {**DEFAULT, "allreduce_algorithm": "direct"}
    assert key(direct) == key({**direct, "hierarchical_allreduce": True})
    auto = {**DEFAULT, "allreduce_algorithm": "auto"}
    assert key(auto) != key({**auto, "hierarchical_allreduce": True})


def test_without_tensors_every_value_is_a_plan_of_its_own() -> None:
    key = plan_key([])
    assert key(with_threshold(100 * MIB)) != key(with_threshold(128 * MIB))


def test_very_many_sums_leave_only_the_ends_alike() -> None:
    sizes = [2**k + 1 for k in range(20)]
    assert possible_sums(sizes).partial
    key = plan_key(sizes)
    assert key(with_threshold(2**22)) == key(with_threshold(2**28))
    assert key(with_threshold(2**10)) != key(with_threshold(2**10 + 1))


def test_tensors_too_large_to_be_told_are_never_taken_for_small_ones() -> None:
    key = plan_key([2**32 - 1, 100])
    assert key(with_threshold(2**28)) != key(with_threshold(2**29))
