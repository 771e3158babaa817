"""Generations of an elastic job on one clock."""

from pathlib import Path

import pytest

from hvdtune.timeline.model.trace import Trace
from hvdtune.timeline.reading.generations import _Generation, _shift, worker_of


def generation(number: int, boot: str, origin_ns: int, unix_ns: int | None) -> _Generation:
    meta = {"ranks": {0: {"boot_id": boot}}, "origin_ns": origin_ns}
    known = {} if unix_ns is None else {"origin_unix_ns": unix_ns}
    return _Generation(number, Trace(meta=meta | known), {0: 0})


@pytest.mark.parametrize(
    ("boot", "unix_ns", "shift", "says"),
    [
        ("here", 10_900, 400, False),  # one machine's clock needs no time of day
        ("there", 10_900, 900, False),
        ("there", None, 0, True),
    ],
)
def test_generations_meet_on_the_first_ones_clock(
    boot: str, unix_ns: int | None, shift: int, says: bool
) -> None:
    first, warnings = generation(0, "here", 100, 10_000), list[str]()
    assert _shift(generation(1, boot, 500, unix_ns), first, warnings) == shift
    assert any("generation 1: its clock is unknown" in text for text in warnings) == says


def test_a_workers_file_is_known_by_its_name() -> None:
    assert worker_of(Path("x/worker-3.hvt")) == (3, 0)
    assert worker_of(Path("worker-12-job2.hvt")) == (12, 2)
    assert worker_of(Path("rank-3-job2.hvt")) is None
