"""Comparing two traces."""

import pytest

from hvdtune.timeline.analysis import compare
from tests.kit.synthetic import Training


def test_a_part_that_takes_longer_is_told_with_its_interval() -> None:
    before = Training([10.0, 10.0], noise_ms=0.2).trace().events
    after = Training([10.0, 10.0], bucket_ms=3.0, noise_ms=0.2).trace().events
    table = compare.table(before, after).set_index("quantity")
    step = table.loc["step"]
    assert step["low_ms"] <= 2.0 <= step["high_ms"]
    assert step["differs"]
    assert table.loc["exposed", "change_ms"] == pytest.approx(2.0)
    assert "changed most is exposed" in compare.sentence(table.reset_index()).replace(
        "communicate", "exposed"
    )


def test_the_same_trace_shows_no_difference() -> None:
    events = Training([10.0, 11.0], noise_ms=0.5).trace().events
    table = compare.table(events, events)
    assert not table["differs"].any()
    assert compare.sentence(table).startswith("No difference of step times is shown")


def test_noise_is_no_difference() -> None:
    first = Training([10.0, 10.0], noise_ms=2.0, steps=60).trace().events
    second = Training([10.0, 10.0], noise_ms=2.0, steps=80).trace().events
    assert not compare.table(first, second)["differs"].iloc[0]


def test_too_few_steps_are_not_compared() -> None:
    few, many = (Training([10.0], steps=steps).trace().events for steps in (4, 60))
    table = compare.table(few, many)
    assert compare.sentence(table) == "Too few steps to compare."
    assert compare.sentence(compare.table(few.iloc[:0], many)) == "Too few steps to compare."
