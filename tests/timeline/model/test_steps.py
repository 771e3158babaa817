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


def test_a_cut_has_its_steps_of_all_ranks_and_what_is_in_them(trace: Trace) -> None:
    events = cut_to_steps(trace, 2, 4).events
    for kind in ("STEP", "ALLREDUCE"):
        seqs = events[events["kind"] == kind].groupby("rank")["seq"].apply(list)
        assert seqs.to_dict() == {0: [2, 3], 1: [2, 3]}


def test_a_cut_keeps_the_setting_in_force(trace: Trace) -> None:
    events = cut_to_steps(trace, 3, 4).events
    assert events.loc[events["kind"] == "KNOB_ADOPTED", "arg"].tolist() == [3]


def test_steps_that_are_not_there_leave_nothing(trace: Trace) -> None:
    cut = cut_to_steps(trace, 90, 95)
    assert len(cut.events) == 0
    assert cut.meta == trace.meta


def test_what_began_before_a_time_is_cut_off_but_not_the_setting(trace: Trace) -> None:
    events = cut_before(trace, 3000).events
    assert set(events.loc[events["kind"] == "STEP", "seq"]) == {3, 4}
    assert (events["kind"] == "KNOB_ADOPTED").sum() == 1
