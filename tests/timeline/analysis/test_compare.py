"""Comparing two traces."""

import dataclasses

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


NOISY = Training([10.0, 10.0], noise_ms=2.0, steps=60)
LONGER = dataclasses.replace(NOISY, steps=80)
FEW, NONE = (dataclasses.replace(NOISY, steps=steps) for steps in (4, 0))


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        pytest.param(NOISY, NOISY, "No difference of step times is shown", id="the same trace"),
        pytest.param(NOISY, LONGER, "No difference of step times is shown", id="noise"),
        pytest.param(FEW, NOISY, "Too few steps to compare.", id="too few steps"),
        pytest.param(NONE, NOISY, "Too few steps to compare.", id="no steps"),
    ],
)
def test_no_difference_is_claimed_without_evidence(
    before: Training, after: Training, said: str
) -> None:
    table = compare.table(before.trace().events, after.trace().events)
    assert not table["differs"].any()
    assert compare.sentence(table).startswith(said)
