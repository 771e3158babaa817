from typing import Any

import pytest

from hvdtune.core import job
from hvdtune.core.job import event_from_dict
from hvdtune.errors import HvdtuneError


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            {
                "type": "formed",
                "ranks": [{"rank": 0, "host": "a", "pid": 7}],
                "knobs": {"cycle_time_ms": 1.0},
            },
            job.Formed((job.RankAddress(0, "a", 7),), {"cycle_time_ms": 1.0}),
        ),
        (
            {"type": "step", "step": 3, "version": -1, "durations_ns": [5, 6], "t_ns": 9},
            job.StepDone(3, -1, (5, 6), 9),
        ),
        ({"type": "adopted", "version": 2}, job.Adopted(2)),
        ({"type": "rejected", "version": 2, "reason": "no"}, job.Rejected(2, "no")),
        ({"type": "lost", "rank": 1, "message": "gone"}, job.Lost(1, "gone")),
        ({"type": "closed"}, job.Closed()),
    ],
)
def test_events_of_the_core_become_values(event: dict[str, Any], expected: job.JobEvent) -> None:
    assert event_from_dict(event) == expected


def test_an_event_of_unknown_type_is_an_error() -> None:
    with pytest.raises(HvdtuneError, match="'dance'"):
        event_from_dict({"type": "dance"})
