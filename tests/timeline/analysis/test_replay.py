"""Steps played again."""

import numpy as np
import pytest

from hvdtune.timeline.analysis.replay import (
    CostModel,
    Rules,
    Step,
    finish_ms,
    fit_costs,
    plan,
    steps_of,
)
from tests.kit.synthetic import Recorder, Training

MODEL = CostModel(bucket_ms=1.0, tensor_ms=0.0, byte_ms=0.001)
WHOLE = Rules(cycle_time_ms=0.0, fusion_threshold_bytes=1e9)


def step(ready: list[float], bytes: list[float]) -> Step:
    count = len(ready)
    return Step(np.array([ready, ready]), np.array(bytes), np.ones(count, bool), ("t",) * count)


def test_buckets_follow_one_another() -> None:
    assert finish_ms(step([0, 0.5, 10], [100, 100, 100]), WHOLE, MODEL) == pytest.approx(11.1)
    assert finish_ms(step([0, 0.5, 0.6], [100, 100, 100]), WHOLE, MODEL) == pytest.approx(2.3)


def test_a_threshold_closes_buckets() -> None:
    small = Rules(cycle_time_ms=0.0, fusion_threshold_bytes=200)
    together = step([0, 0, 0, 0], [100, 100, 100, 100])
    assert finish_ms(together, WHOLE, MODEL) == pytest.approx(1.4)
    assert finish_ms(together, small, MODEL) == pytest.approx(2.4)
    assert plan(together, np.arange(4), 0) == [[0], [1], [2], [3]]


def test_what_never_fuses_does_not_close_a_bucket() -> None:
    mixed = Step(np.zeros((2, 3)), np.full(3, 100.0), np.array([True, False, True]))
    assert plan(mixed, np.arange(3), 1e9) == [[0, 2], [1]]


def test_a_window_collects_until_everybody_waits() -> None:
    slow = Rules(cycle_time_ms=50.0, fusion_threshold_bytes=1e9)
    spread = step([0, 1, 20, 30], [100, 100, 100, 100])
    # The first goes at once; the others wait for the window, which ends when all are announced.
    assert finish_ms(spread, slow, MODEL) == pytest.approx(31.3)


def test_a_long_window_never_delays_what_everybody_waits_for() -> None:
    slow = Rules(cycle_time_ms=500.0, fusion_threshold_bytes=1e9)
    assert finish_ms(step([5.0], [100]), slow, MODEL) == pytest.approx(6.1)


def test_costs_are_fitted_to_buckets() -> None:
    events = Training([5.0, 6.0], tensors=2, bucket_ms=3.0).trace().events
    model = fit_costs(events)
    assert model.lasts_ms(2, 2 << 20) == pytest.approx(3.0)
    assert model.reply_ms == pytest.approx(0.1)


def test_buckets_that_queue_cost_what_they_add_to_the_end() -> None:
    record = Recorder()
    at = 0.0
    for number in range(100):
        # One rank begins late since it still is in the bucket before; every fifth bucket is long.
        end = at + (1.0 if number % 5 == 0 else 0.01)
        for rank in range(2):
            begin = at if rank == 0 else (at + end) / 2
            record.add(rank, "BUCKET", begin, end, seq=1, bucket=number, arg=4096)
        at = end
    model = fit_costs(record.trace(2).events)
    assert 100 * model.lasts_ms(1, 4096) == pytest.approx(at, rel=0.02)


def test_steps_hold_what_every_rank_announced() -> None:
    events = Training([5.0, 6.0, 9.0]).trace().events
    (found,) = steps_of(events, [7])
    assert found.announced_ms.shape == (3, 4)
    assert found.ready_ms.tolist() == pytest.approx([9.0] * 4)
    assert found.bytes.tolist() == [1 << 20] * 4
    assert set(found.names) == {"layer0", "layer1", "layer2", "layer3"}
    assert found.without(0).announced_ms.shape == (3, 3)
