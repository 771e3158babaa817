"""Steps played again."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import nnls

from hvdtune.timeline.analysis.replay import (
    CostModel,
    Rules,
    Step,
    exposed_ms,
    finish_ms,
    fit_costs,
    least_squares,
    plan,
    steps_of,
)
from tests.kit.synthetic import Recorder, Training

MODEL = CostModel(bucket_ms=1.0, tensor_ms=0.0, byte_ms=0.001)


def step(ready: list[float], bytes: list[float]) -> Step:
    count = len(ready)
    return Step(np.array([ready, ready]), np.array(bytes), np.ones(count, bool), ("t",) * count)


TOGETHER = step([0, 0, 0, 0], [100] * 4)
SPREAD = step([0, 1, 20, 30], [100] * 4)


@pytest.mark.parametrize(
    ("played", "cycle_time_ms", "threshold_bytes", "ends_ms"),
    [
        pytest.param(step([0, 0.5, 10], [100] * 3), 0, 1e9, 11.1, id="the last is ready last"),
        pytest.param(step([0, 0.5, 0.6], [100] * 3), 0, 1e9, 2.3, id="buckets follow one another"),
        pytest.param(TOGETHER, 0, 1e9, 1.4, id="one bucket"),
        pytest.param(TOGETHER, 0, 200, 2.4, id="a threshold closes buckets"),
        # The first goes at once; the others wait for the window, which ends when all are announced.
        pytest.param(SPREAD, 50, 1e9, 31.3, id="a window collects until everybody waits"),
        pytest.param(step([5], [100]), 500, 1e9, 6.1, id="a window delays nothing awaited by all"),
        # 50 ms after the step before sent its last, 30 ms are left: all go when all are there.
        pytest.param(
            replace(SPREAD, sent_ms=-20.0), 50, 1e9, 31.4, id="a window goes on from step to step"
        ),
        pytest.param(
            replace(SPREAD, sent_ms=-60.0), 50, 1e9, 31.3, id="a window that is over is no window"
        ),
    ],
)
def test_a_step_ends_when_its_buckets_do(
    played: Step, cycle_time_ms: float, threshold_bytes: float, ends_ms: float
) -> None:
    rules = Rules(cycle_time_ms=cycle_time_ms, fusion_threshold_bytes=threshold_bytes)
    assert finish_ms(played, rules, MODEL) == pytest.approx(ends_ms)


@pytest.mark.parametrize(
    ("fuses", "threshold_bytes", "buckets"),
    [
        pytest.param([True] * 4, 0, [[0], [1], [2], [3]], id="fusion is off"),
        pytest.param([True, False, True], 1e9, [[0, 2], [1]], id="what never fuses closes none"),
    ],
)
def test_buckets_are_planned(
    fuses: list[bool], threshold_bytes: float, buckets: list[list[int]]
) -> None:
    count = len(fuses)
    played = Step(np.zeros((2, count)), np.full(count, 100.0), np.array(fuses))
    assert plan(played, np.arange(count), threshold_bytes) == buckets


@pytest.mark.parametrize(
    ("waits_ms", "waited_ms"),
    [(-np.inf, 1.1), (10.4, 0.7), (12.0, 0.0)],
    ids=["they wait at once", "they compute first", "they compute for longer than it takes"],
)
def test_what_ranks_do_after_their_last_announcement_hides_communication(
    waits_ms: float, waited_ms: float
) -> None:
    played = replace(step([0, 10], [100] * 2), waits_ms=waits_ms)
    waited = exposed_ms([played], Rules(1.0, 1e9), MODEL)
    assert waited.tolist() == pytest.approx([waited_ms])


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


def test_what_is_exchanged_once_does_not_split_the_cost_of_buckets_that_are_alike() -> None:
    record = Recorder()
    for number in range(50):
        size, took = (12, 0.1) if number == 0 else (16_384, 1.5)
        for rank in range(2):
            begin = 10.0 * number
            record.add(rank, "BUCKET", begin, begin + took, seq=1, bucket=number, arg=size)
    model = fit_costs(record.trace(2).events)
    assert model.bucket_ms == pytest.approx(1.5)
    assert model.byte_ms == 0


def test_steps_hold_what_every_rank_announced() -> None:
    events = Training([5.0, 6.0, 9.0]).trace().events
    (found,) = steps_of(events, [7])
    assert found.announced_ms.shape == (3, 4)
    assert found.ready_ms.tolist() == pytest.approx([9.0] * 4)
    assert found.bytes.tolist() == [1 << 20] * 4
    assert set(found.names) == {"layer0", "layer1", "layer2", "layer3"}
    assert found.without(0).announced_ms.shape == (3, 3)


def test_steps_know_what_was_sent_before_them_and_when_all_ranks_waited() -> None:
    record = Recorder()
    for number in range(3):
        at = 100.0 * number
        for rank in range(2):
            record.add(rank, "STEP", at, at + 100, seq=number, arg=1000)
            key = {"seq": number, "bucket": number}
            record.add(rank, "NEGOTIATE", at + 40, at + 42, "t", **key, arg=1)
            record.add(rank, "BUCKET", at + 42, at + 80, **key, arg=4096)
            record.add(rank, "ALLREDUCE", at + 42, at + 80, "t", **key, arg=4096)
            record.add(rank, "BLOCKED", at + 10, at + 20)  # for nothing of these
            record.add(rank, "BLOCKED", at + 50 + 10 * rank, at + 80)
    before, after = steps_of(record.trace(2).events, [0, 2])
    assert before.sent_ms == -np.inf
    assert after.sent_ms == pytest.approx(42 - 100)
    assert before.waits_ms == after.waits_ms == pytest.approx(60)
    assert after.own_ms == after.waits_ms


def test_costs_that_are_fitted_are_those_of_the_algorithm_of_lawson_and_hanson() -> None:
    random = np.random.default_rng(3)
    for _ in range(50):
        columns = np.column_stack((np.ones(6), random.random((6, 2))))
        values = columns @ random.normal(size=3) + random.normal(size=6)
        assert least_squares(columns, values) == pytest.approx(nnls(columns, values)[0], abs=1e-9)
    alike = np.ones((5, 2))
    assert least_squares(alike, np.arange(5.0)).tolist() == pytest.approx([2, 0])
