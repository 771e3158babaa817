"""Comparing two traces."""

import dataclasses

import pandas as pd
import pytest

from hvdtune.timeline.analysis import compare
from hvdtune.timeline.analysis.metrics import breakdown
from hvdtune.timeline.analysis.quantities import QUANTITIES
from tests.kit.synthetic import Training


def test_a_part_that_takes_longer_is_told_with_its_interval() -> None:
    before = Training([10.0, 10.0], noise_ms=0.2).trace()
    after = Training([10.0, 10.0], bucket_ms=3.0, noise_ms=0.2).trace()
    table = compare.table(before, after).set_index("quantity")
    step = table.loc["step"]
    assert step["low_ms"] <= 2.0 <= step["high_ms"]
    assert step["differs"]
    assert table.loc["exposed", "change_ms"] == pytest.approx(2.0)
    says = compare.sentence(table.reset_index(), {})
    assert "changed most is waiting for buckets: +2.00 ms (95 % interval +" in says
    assert "chance" not in says


def test_a_sleep_is_told_as_time_off_the_processor_and_not_as_computing() -> None:
    before = Training([10.0, 10.0]).trace()
    after = Training([10.0, 16.0], asleep_ms=[0.0, 6.0]).trace()
    table = compare.table(before, after)
    rows = table.set_index("quantity")["change_ms"]
    assert rows["compute"] == pytest.approx(0.0, abs=0.01)
    assert rows["off_processor"] == pytest.approx(3.0, abs=0.01)  # the mean of both ranks
    assert "off the processor" in " ".join(compare.shown(table)["quantity"]).lower()
    unknown = compare.table(Training([10.0] * 2, ran=False).trace(), after)
    assert "off_processor" not in set(unknown["quantity"])


def test_the_part_that_changed_most_is_told_where_its_change_may_be_chance() -> None:
    rows = pd.DataFrame(
        [
            ("step", 63.8, 50.2, -13.6, -26.6, -0.6, -21.3, True),
            ("compute", 8.4, 6.4, -2.0, -3.0, -0.9, -23.8, True),
            ("no_processor", 40.2, 28.8, -11.4, -24.1, 1.3, -28.4, False),
            ("communicate", 44.9, 13.2, -31.7, -33.0, -30.0, -70.6, True),
        ],
        columns=compare.table(NOISY.trace(), NOISY.trace()).columns,
    )
    assert compare.sentence(rows, {}) == (
        "Steps are 21.3 % shorter in the second: -13.60 ms (95 % interval -26.60 to -0.60). The "
        "part that changed most is without a processor: -11.40 ms (95 % interval -24.10 to +1.30), "
        "which may be chance."
    )


def test_the_part_that_changed_most_may_change_the_other_way_than_the_step() -> None:
    rows = pd.DataFrame(
        [
            ("step", 17.2, 17.0, -0.2, -0.3, -0.1, -1.2, True),
            ("off_processor", 6.0, 11.9, 5.9, 5.8, 6.0, 98.0, True),
            ("wait", 6.0, 0.0, -6.1, -6.2, -6.0, -100.0, True),
            ("exposed", 1.0, 7.2, 6.2, 6.1, 6.3, 620.0, True),
        ],
        columns=compare.table(NOISY.trace(), NOISY.trace()).columns,
    )
    assert "changed most is waiting for buckets: +6.20 ms" in compare.sentence(rows, {})


def test_a_manifold_is_told_in_times_and_not_in_percent() -> None:
    before, after = Training([1.0, 1.0], noise_ms=0.01), Training([80.0, 80.0], noise_ms=0.01)
    table = compare.table(before.trace(), after.trace())
    times = table["b_ms"][0] / table["a_ms"][0]
    assert compare.relative(table["percent"][0]) == f"{times:.0f}x"
    assert f"Steps take {times:.0f}x as long in the second: " in compare.sentence(table, {})
    assert compare.relative(-25.0) == "-25.00"
    assert compare.relative(899.0) == "899.00"
    assert compare.relative(123_456.0) == "1,200x"


def test_parts_that_neither_trace_has_are_not_shown() -> None:
    trace = Training([10.0, 10.0], noise_ms=0.2).trace()
    table = compare.table(trace, trace)
    assert set(table["quantity"]) == set(compare.TITLES)
    titles = list(compare.shown(table)["quantity"])
    assert titles[:2] == ["Step time", "Computing"]
    assert "Collecting garbage" not in titles
    assert "Waiting for ranks" in titles


def test_quantities_with_a_definition_are_called_as_there() -> None:
    defined = {each.column.removesuffix("_ms"): each.title for each in QUANTITIES.values()}
    for quantity in compare.TITLES.keys() & defined.keys():
        assert compare.TITLES[quantity] == defined[quantity]


NOISY = Training([10.0, 10.0], noise_ms=2.0, steps=60)
LONGER = dataclasses.replace(NOISY, steps=80)
FEW, NONE = (dataclasses.replace(NOISY, steps=steps) for steps in (4, 0))


@pytest.mark.parametrize(
    "other", [pytest.param(NOISY, id="the same trace"), pytest.param(LONGER, id="noise")]
)
def test_no_difference_is_claimed_without_evidence(other: Training) -> None:
    table = compare.table(NOISY.trace(), other.trace())
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
    assert said.startswith(f"Too few steps to compare: {few}; at least 10 are needed. The first")
