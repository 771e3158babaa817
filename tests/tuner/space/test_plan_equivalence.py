import itertools
import random

import pytest

from hvdtune.core.config.knobs import Setting
from hvdtune.timeline.analysis.fusion import plan_buckets
from hvdtune.tuner.space.plan_equivalence import plan_key, possible_sums
from tests.kit.simulated_job import DEFAULT

MIB = 2**20
VERY_MANY_SUMS = [2**k + 1 for k in range(20)]


def with_threshold(threshold: int, **changes: object) -> Setting:
    return {**DEFAULT, "fusion_threshold_bytes": threshold, **changes}  # type: ignore[dict-item]


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


@pytest.mark.parametrize(
    ("sizes", "one", "other"),
    [
        pytest.param([3 * MIB, 2 * MIB], 6 * MIB, 128 * MIB, id="above-all-a-step-sends"),
        pytest.param([3 * MIB, 2 * MIB], 6 * MIB, 512 * MIB, id="far-above-all-a-step-sends"),
        pytest.param(VERY_MANY_SUMS, 2**22, 2**28, id="upper-end-of-very-many-sums"),
    ],
)
def test_thresholds_are_one_plan(sizes: list[int], one: int, other: int) -> None:
    key = plan_key(sizes)
    assert key(with_threshold(one)) == key(with_threshold(other))


@pytest.mark.parametrize(
    ("sizes", "one", "other"),
    [
        pytest.param([3 * MIB, 2 * MIB], 4 * MIB, 6 * MIB, id="below-and-above-what-a-step-sends"),
        pytest.param(VERY_MANY_SUMS, 2**10, 2**10 + 1, id="within-very-many-sums"),
        pytest.param([], 100 * MIB, 128 * MIB, id="without-tensors"),
        pytest.param([2**32 - 1, 100], 2**28, 2**29, id="tensors-too-large-to-be-told"),
    ],
)
def test_thresholds_are_two_plans(sizes: list[int], one: int, other: int) -> None:
    key = plan_key(sizes)
    assert key(with_threshold(one)) != key(with_threshold(other))


@pytest.mark.parametrize(("cycle_time_ms", "is_one"), [(0.0, True), (1.0, False)])
def test_off_and_tiny_are_one_plan_only_where_nothing_is_collected(
    cycle_time_ms: float, is_one: bool
) -> None:
    off, tiny = (with_threshold(size, cycle_time_ms=cycle_time_ms) for size in (0, 99))
    key = plan_key([100, 200])
    assert (key(off) == key(tiny)) == is_one


@pytest.mark.parametrize(("algorithm", "is_one"), [("direct", True), ("auto", False)])
def test_a_named_algorithm_makes_the_ways_of_auto_irrelevant(algorithm: str, is_one: bool) -> None:
    setting = {**DEFAULT, "allreduce_algorithm": algorithm}
    key = plan_key([])
    assert (key(setting) == key({**setting, "hierarchical_allreduce": True})) == is_one


def test_very_many_sums_are_kept_in_part() -> None:
    assert possible_sums(VERY_MANY_SUMS).partial
