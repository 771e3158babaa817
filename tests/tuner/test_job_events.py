from typing import Any

import pytest

from hvdtune.core.job import channel
from hvdtune.core.job.channel import event_from_dict
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
            channel.Formed((channel.RankAddress(0, "a", 7),), {"cycle_time_ms": 1.0}),
        ),
        (
            {"type": "step", "step": 3, "version": -1, "durations_ns": [5, 6], "t_ns": 9},
            channel.StepDone(3, -1, (5, 6), 9),
        ),
        ({"type": "adopted", "version": 2}, channel.Adopted(2)),
        ({"type": "rejected", "version": 2, "reason": "no"}, channel.Rejected(2, "no")),
        ({"type": "lost", "rank": 1, "message": "gone"}, channel.Lost(1, "gone")),
        ({"type": "closed"}, channel.Closed()),
    ],
)
def test_events_of_the_core_become_values(
    event: dict[str, Any], expected: channel.JobEvent
) -> None:
    assert event_from_dict(event) == expected


def test_an_event_of_unknown_type_is_an_error() -> None:
    with pytest.raises(HvdtuneError, match="'dance'"):
        event_from_dict({"type": "dance"})
