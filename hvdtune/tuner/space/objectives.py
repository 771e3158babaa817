"""What a study makes better, and the choice among settings that are better in different things.

Every objective is a time or a cost per step that is to be small, so each gives a log ratio of its
own, positive when the setting is better. `samples_per_s` is to be large, but the batch of a script
is the same under every setting: its ratio is that of the step time.
"""

import math
from collections.abc import Container, Mapping, Sequence
from typing import Final, Literal, get_args

from hvdtune.errors import UsageError

Objective = Literal["step_time", "samples_per_s", "exposed_communication", "cpu_time"]
OBJECTIVES: Final[tuple[Objective, ...]] = get_args(Objective)
_DEFAULT: Final = -1  # the number of no trial
_ONE_AND_THE_SAME: Final = {"step_time", "samples_per_s"}


def check_objectives(names: Sequence[str]) -> tuple[Objective, ...]:
    """The objectives of these names, in their order.

    Raises UsageError for none, an unknown one, one given twice, or two that are one.
    """
    known = tuple(name for name in OBJECTIVES for given in names if given == name)
    for name in names:
        if name not in OBJECTIVES:
            raise UsageError(
                f"unknown objective {name}; the objectives are {', '.join(OBJECTIVES)}"
            )
        if names.count(name) > 1:
            raise UsageError(f"the objective {name} is specified twice")
    if set(names) >= _ONE_AND_THE_SAME:
        raise UsageError(
            "step_time and samples_per_s are one objective, since a script's batch is the same "
            "under every setting: specify one of them"
        )
    if not names:
        raise UsageError("a study needs an objective")
    return tuple(sorted(known, key=list(names).index))


def pareto_set(points: Sequence[Sequence[float]]) -> list[int]:
    """Indexes of the points that no other one beats in everything; more is better."""
    return [
        index
        for index, point in enumerate(points)
        if not any(_dominates(other, point) for other in points)
    ]


def recommended(points: Mapping[int, Sequence[float]]) -> int | None:
    """Return the number of the point to take from the Pareto set, None if there are no points.

    `points` maps numbers to log ratios over the default, one for each objective. Points that are
    worse than the default in no objective come first, and among them the one with the largest
    sum wins. If there is none, the point whose worst objective is best wins.
    """
    numbers = list(points)
    front = [numbers[index] for index in pareto_set(list(points.values()))]
    if not front:
        return None
    harmless = [number for number in front if min(points[number]) >= 0]
    if harmless:
        return max(harmless, key=lambda number: math.fsum(points[number]))
    return max(front, key=lambda number: min(points[number]))


def by_merit(points: Mapping[int, Sequence[float]], hopeful: Container[int]) -> list[int]:
    """The numbers of `hopeful` in the order in which they are to be verified: the recommended
    point, then that of those left, and so on; none that the default beats in everything."""
    left = dict(points)
    ordered: list[int] = []
    while left:
        numbers = [*left, _DEFAULT]
        found = pareto_set([*left.values(), [0.0] * len(next(iter(left.values())))])
        front = [numbers[index] for index in found]
        best = recommended({n: left[n] for n in front if n in left and n in hopeful})
        if best is None:
            break
        ordered.append(best)
        del left[best]
    return ordered


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)
