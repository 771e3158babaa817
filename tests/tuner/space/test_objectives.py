import pytest

from hvdtune.errors import UsageError
from hvdtune.tuner.space.objectives import by_merit, check_objectives, pareto_set, recommended

Points = dict[int, tuple[float, float]]


def test_objectives_keep_their_order() -> None:
    assert check_objectives(["cpu_time", "step_time"]) == ("cpu_time", "step_time")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["speed"], "unknown objective speed; the objectives are step_time, samples_per_s"),
        (["cpu_time", "cpu_time"], "cpu_time is specified twice"),
        (["samples_per_s", "step_time"], "step_time and samples_per_s are one objective"),
        ([], "needs an objective"),
    ],
)
def test_objectives_that_cannot_be_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_objectives(names)


@pytest.mark.parametrize(
    ("points", "chosen"),
    [
        ([(0.0, 0.0), (0.1, -0.1), (0.05, 0.05), (0.05, 0.04), (-0.1, 0.2)], [1, 2, 4]),
        pytest.param([(0.1, 0.1), (0.1, 0.1)], [0, 1], id="equal-points-do-not-beat-each-other"),
    ],
)
def test_the_pareto_set_has_what_nothing_beats_in_everything(
    points: list[tuple[float, float]], chosen: list[int]
) -> None:
    assert pareto_set(points) == chosen


@pytest.mark.parametrize(
    ("points", "number"),
    [
        ({0: (0.0, 0.0), 3: (0.3, -0.1), 5: (0.05, 0.02), 7: (0.01, 0.03)}, 5),
        pytest.param({1: (0.5, -0.3), 2: (0.1, -0.02)}, 2, id="else-its-worst-is-the-best"),
        ({}, None),
    ],
)
def test_the_recommended_point_is_worse_than_the_default_in_nothing_where_one_is(
    points: Points, number: int | None
) -> None:
    assert recommended(points) == number


@pytest.mark.parametrize(
    ("points", "hopeful", "order"),
    [
        ({1: (0.02, -0.01), 2: (0.0, -0.3), 3: (-0.01, 0.2), 4: (0.01, -0.02)}, {1, 2, 4}, [1, 4]),
        ({2: (0.0, -0.3)}, {2}, []),
        ({}, set(), []),
        ({1: (0.1, 0.1), 2: (0.05, 0.05), 3: (0.3, -0.2)}, {1, 2, 3}, [1, 2, 3]),
    ],
    ids=["some-beaten-by-the-default", "all-beaten-by-it", "none", "some-beaten-by-another"],
)
def test_what_the_default_beats_is_not_verified_and_what_another_beats_comes_after_it(
    points: Points, hopeful: set[int], order: list[int]
) -> None:
    assert by_merit(points, hopeful=hopeful) == order
