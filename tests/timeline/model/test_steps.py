from collections.abc import Callable
from pathlib import Path

import pytest

from hvdtune.timeline import merge
from hvdtune.timeline.model.steps import common_steps, cut_before, cut_to_steps
from hvdtune.timeline.model.trace import Trace
from tests.kit import rank_files as files


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    def step(number: int, late: int = 0) -> list[bytes]:
        begin = 1000 * number + late
        inside = files.record("ALLREDUCE", begin + 100, begin + 200, name=1, seq=number)
        return [files.record("STEP", begin, begin + 1000, seq=number), inside]

    adopted = files.record("KNOB_ADOPTED", 50, name=2, arg=3)
    return merge(
        [
            files.rank_file(
                tmp_path, 0, [adopted, *(r for n in range(5) for r in step(n))], size=2
            ),
            files.rank_file(tmp_path, 1, [r for n in range(1, 5) for r in step(n, 30)], size=2),
        ]
    )


def test_the_steps_of_a_trace_are_those_that_all_ranks_have(trace: Trace) -> None:
    assert common_steps(trace) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("cut", "steps"),
    [
        pytest.param(lambda trace: cut_to_steps(trace, 2, 4), [2, 3], id="two steps"),
        pytest.param(lambda trace: cut_to_steps(trace, 3, 4), [3], id="one step"),
        pytest.param(lambda trace: cut_before(trace, 3000), [3, 4], id="from a time on"),
    ],
)
def test_a_cut_has_its_steps_of_all_ranks_what_is_in_them_and_the_setting_in_force(
    trace: Trace, cut: Callable[[Trace], Trace], steps: list[int]
) -> None:
    events = cut(trace).events
    for kind in ("STEP", "ALLREDUCE"):
        seqs = events[events["kind"] == kind].groupby("rank")["seq"].apply(list)
        assert seqs.to_dict() == {0: steps, 1: steps}
    assert events.loc[events["kind"] == "KNOB_ADOPTED", "arg"].tolist() == [3]


def test_steps_that_are_not_there_leave_nothing(trace: Trace) -> None:
    cut = cut_to_steps(trace, 90, 95)
    assert len(cut.events) == 0
    assert cut.meta == trace.meta
