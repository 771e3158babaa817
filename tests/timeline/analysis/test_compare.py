"""Comparing two traces."""

import dataclasses

import pytest

from hvdtune.timeline.analysis import compare
from hvdtune.timeline.analysis.metrics import breakdown
from tests.kit.synthetic import Training


def test_a_part_that_takes_longer_is_told_with_its_interval() -> None:
    before = Training([10.0, 10.0], noise_ms=0.2).trace().events
    after = Training([10.0, 10.0], bucket_ms=3.0, noise_ms=0.2).trace().events
    table = compare.table(before, after).set_index("quantity")
    step = table.loc["step"]
    assert step["low_ms"] <= 2.0 <= step["high_ms"]
    assert step["differs"]
    assert table.loc["exposed", "change_ms"] == pytest.approx(2.0)
    assert "changed most is exposed" in compare.sentence(table.reset_index(), {}).replace(
        "communicate", "exposed"
    )


NOISY = Training([10.0, 10.0], noise_ms=2.0, steps=60)
LONGER = dataclasses.replace(NOISY, steps=80)
FEW, NONE = (dataclasses.replace(NOISY, steps=steps) for steps in (4, 0))


@pytest.mark.parametrize(
    "other", [pytest.param(NOISY, id="the same trace"), pytest.param(LONGER, id="noise")]
)
def test_no_difference_is_claimed_without_evidence(other: Training) -> None:
    table = compare.table(NOISY.trace().events, other.trace().events)
    assert not table["differs"].any()
    assert compare.sentence(table, {}).startswith("No difference of step times is shown")


@pytest.mark.parametrize(
    ("before", "after", "few"),
    [
        pytest.param(FEW, NOISY, "A has 3", id="too few steps"),
        pytest.param(NOISY, FEW, "B has 3", id="too few steps in the second"),
        pytest.param(NONE, NOISY, "A has 0", id="no steps"),
        pytest.param(FEW, NONE, "A has 3 and B has 0", id="too few steps in both"),
    ],
)
def test_of_too_few_steps_there_is_no_table(before: Training, after: Training, few: str) -> None:
    sides = {
        name: breakdown.steady(breakdown.table(training.trace().events))
        for name, training in (("A", before), ("B", after))
    }
    table = compare.of_steps(*sides.values())
    assert table.empty
    said = compare.sentence(table, sides)
    assert said.startswith("Too few steps to compare: ")
    assert said.endswith(f", {few}; at least 10 are needed.")
