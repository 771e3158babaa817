import pytest

from hvdtune.errors import UsageError
from hvdtune.tuner.space.objectives import by_merit, check_objectives, pareto_set, recommended


def test_objectives_keep_their_order() -> None:
    assert check_objectives(["cpu_time", "step_time"]) == ("cpu_time", "step_time")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["speed"], "unknown objective speed; there are step_time, samples_per_s"),
        (["cpu_time", "cpu_time"], "cpu_time is given twice"),
        (["samples_per_s", "step_time"], "step_time and samples_per_s are one objective"),
        ([], "needs an objective"),
    ],
)
def test_objectives_that_cannot_be_are_refused(names: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_objectives(names)


def test_the_pareto_set_has_what_nothing_beats_in_everything() -> None:
    points = [(0.0, 0.0), (0.1, -0.1), (0.05, 0.05), (0.05, 0.04), (-0.1, 0.2)]
    assert pareto_set(points) == [1, 2, 4]


def test_equal_points_do_not_beat_each_other() -> None:
    assert pareto_set([(0.1, 0.1), (0.1, 0.1)]) == [0, 1]


def test_the_recommended_point_is_worse_than_the_default_in_nothing_where_one_is() -> None:
    points = {0: (0.0, 0.0), 3: (0.3, -0.1), 5: (0.05, 0.02), 7: (0.01, 0.03)}
    assert recommended(points) == 5


def test_else_its_worst_is_the_best() -> None:
    assert recommended({1: (0.5, -0.3), 2: (0.1, -0.02)}) == 2
    assert recommended({}) is None


def test_what_the_default_beats_in_everything_is_never_verified() -> None:
    points = {1: (0.02, -0.01), 2: (0.0, -0.3), 3: (-0.01, 0.2), 4: (0.01, -0.02)}
    assert by_merit(points, hopeful={1, 2, 4}) == [1, 4]
    assert by_merit({2: (0.0, -0.3)}, hopeful={2}) == []
    assert by_merit({}, hopeful=()) == []


def test_what_another_beats_comes_after_it() -> None:
    points = {1: (0.1, 0.1), 2: (0.05, 0.05), 3: (0.3, -0.2)}
    assert by_merit(points, hopeful={1, 2, 3}) == [1, 2, 3]
