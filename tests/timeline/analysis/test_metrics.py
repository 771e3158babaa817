"""What each metric says of jobs whose times are known."""

import numpy as np
import pytest

from hvdtune.timeline.analysis.metrics import (
    METRICS,
    bandwidth,
    breakdown,
    cache,
    critical_path,
    cycles,
    efficiency,
    fusion,
    overlap,
    queueing,
    stragglers,
)
from hvdtune.timeline.analysis.report import measure
from hvdtune.timeline.model.trace import Trace
from tests.kit.synthetic import Recorder, Training

# Rank 1 computes 5 ms longer; 2 ms of its step are input.
UNEVEN = Training([10.0, 15.0], spans={(1, None): [("input", 2.0)]})


def test_the_parts_of_a_step_add_up_to_it() -> None:
    steps = breakdown.table(UNEVEN.trace().events)
    assert len(steps) == 120
    assert steps[list(breakdown.PARTS)].sum(axis=1).to_numpy() == pytest.approx(steps["step_ms"])
    first = steps.groupby("rank").first()
    assert first["wait_ms"].tolist() == pytest.approx([7.0, 0.0])
    assert first["negotiate_ms"].tolist() == pytest.approx([0.1, 0.1])
    assert first["exposed_ms"].tolist() == pytest.approx([1.0, 1.0])
    assert first["input_ms"].tolist() == pytest.approx([0.0, 2.0])
    assert first["compute_ms"].tolist() == pytest.approx([10.2, 15.2])


def test_time_without_a_processor_is_no_computing() -> None:
    steps = breakdown.table(Training([10.0], no_processor_ms=[3.0], asleep_ms=[4.0]).trace().events)
    assert steps["no_processor_ms"].iloc[0] == pytest.approx(3.0)
    assert steps["compute_ms"].iloc[0] == pytest.approx(7.2)
    assert steps["off_processor_ms"].iloc[0] == pytest.approx(4.0)


def test_waits_that_are_not_recorded_are_inferred() -> None:
    trace = UNEVEN.trace()
    old = trace.events[trace.events["kind"] != "BLOCKED"]
    told, inferred = (breakdown.table(events) for events in (trace.events, old))
    assert inferred["blocked_ms"].to_numpy() == pytest.approx(told["blocked_ms"])


@pytest.mark.parametrize(
    ("between_ms", "step_ms"),
    [
        # Cut at the waits, which end 4 ms before the marks: nothing is lost but at the very ends.
        (0.0, [16.0, 20.0, 20.0]),
        (0.5, [16.0, 20.5, 20.5]),
        # They do not follow one another, so each stays as it was marked.
        (9.0, [20.0, 20.0, 20.0]),
    ],
)
def test_steps_are_cut_at_waits_where_they_follow_one_another(
    between_ms: float, step_ms: list[float]
) -> None:
    record = Recorder()
    for step in range(3):
        at = (20.0 + between_ms) * step
        record.add(0, "STEP", at, at + 20, seq=step)
        record.add(0, "BLOCKED", at + 12, at + 16)
    steps = breakdown.table(record.trace(1).events, from_waits=True)
    assert steps["step_ms"].to_numpy() == pytest.approx(step_ms)


def test_communication_behind_computing_is_hidden() -> None:
    record = Recorder()
    for step in range(3):
        at = 20.0 * step
        record.add(0, "STEP", at, at + 20, seq=step)
        record.add(0, "BUCKET", at + 5, at + 15, seq=1, arg=1000, bucket=step)
        record.add(0, "BLOCKED", at + 12, at + 15)
    table = overlap.table(breakdown.table(record.trace(1).events))
    assert table["communicate_ms_per_step"].item() == pytest.approx(10)
    assert table["exposed_ms_per_step"].item() == pytest.approx(3)
    assert table["hidden_percent"].item() == pytest.approx(70)


def test_the_straggler_is_named_with_its_cost_and_reason() -> None:
    table = stragglers.table(breakdown.table(UNEVEN.trace().events))
    worst = table.iloc[0]
    assert (worst["rank"], worst["reason"], worst["late_percent"]) == (1, "compute", 100)
    assert worst["cost_ms_per_step"] == pytest.approx(7.0)
    assert "Rank 1 is the last in 100 % of steps" in stragglers.sentence(table)


@pytest.mark.parametrize(
    ("training", "reason"),
    [
        (Training([10.0, 10.0], spans={(1, None): [("input", 4.0)]}), "input"),
        (Training([10.0, 10.0], spans={(1, None): [("gc", 4.0)]}), "garbage collection"),
        (Training([10.0, 14.0], no_processor_ms=[0.0, 4.0]), "no processor"),
        (Training([10.0, 14.0], asleep_ms=[0.0, 4.0]), stragglers.REASONS["off_processor_ms"]),
    ],
)
def test_stragglers_are_told_apart_by_their_reason(training: Training, reason: str) -> None:
    table = stragglers.table(breakdown.table(training.trace().events))
    assert (table.iloc[0]["rank"], table.iloc[0]["reason"]) == (1, reason)
    assert table.iloc[0]["excess_ms"] == pytest.approx(4.0)


def test_waits_are_for_the_rank_that_announces_last() -> None:
    events = UNEVEN.trace().events
    steps = breakdown.steady(breakdown.table(events, from_waits=True))
    assert stragglers.waits_for(events, steps).to_numpy() == pytest.approx(
        np.array([[0.0, 7.0], [0.0, 0.0]])
    )


def test_efficiency_is_the_product_of_its_factors() -> None:
    steps = breakdown.steady(breakdown.table(UNEVEN.trace().events, from_waits=True))
    table = efficiency.table(steps)
    shares = [100 * 13.7 / 18.3, 100 * 13.7 / 17.2, 100.0, 100 * 17.2 / 18.3]
    assert table["percent"].tolist() == pytest.approx(shares)
    assert "load balance (80 %) takes most" in efficiency.sentence(table)


def test_the_critical_path_goes_through_the_slowest_rank() -> None:
    table = critical_path.table(breakdown.table(UNEVEN.trace().events))
    assert set(table["rank"]) == {1}
    parts = table.set_index("part")["ms_per_step"]
    assert parts["compute"] == pytest.approx(15.2)
    assert parts["exposed"] == pytest.approx(1.0)
    assert table["percent"].sum() == pytest.approx(100)


def test_buckets_are_counted_by_the_reason_they_were_closed_for() -> None:
    record = Recorder()
    for index, (why, size) in enumerate(
        [("fusion threshold", 100), ("fusion threshold", 300), ("nothing else was ready", 50)]
    ):
        record.add(0, "BUCKET", index, index + 1, why, seq=2, arg=size, bucket=index)
    table = fusion.table(record.trace(1).events).set_index("reason")
    assert table["buckets"].to_dict() == {"fusion threshold": 2, "nothing else was ready": 1}
    assert table.loc["fusion threshold", "bytes_p50"] == 200
    assert "67 % were closed because the next tensor would not have fitted" in fusion.sentence(
        table.reset_index(), 1000
    )


def test_bus_bandwidth_counts_what_a_link_carries() -> None:
    events = Training([1.0] * 4, tensors=1, tensor_bytes=1 << 20, bucket_ms=2.0).trace().events
    table = bandwidth.table(events)
    assert table["from_bytes"].tolist() == [1 << 20]
    assert table["gb_per_s_p50"].item() == pytest.approx(2 * 3 / 4 * 2**20 / 2e6)
    assert "50 % of" in bandwidth.sentence(table, link_gbps=16 * table["gb_per_s_p50"].item())


def test_cycles_are_counted_per_step() -> None:
    table = cycles.table(Training([1.0, 1.0]).trace().events)
    assert table["cycles"].tolist() == [1] * 60
    assert table["tensors_per_cycle"].tolist() == [4] * 60


def test_a_tensor_waits_for_ranks_then_for_the_response() -> None:
    table = queueing.table(Training([10.0, 13.0]).trace().events).set_index("rank")
    assert table["others_p50_ms"].tolist() == pytest.approx([3.0, 0.0])
    assert table["response_p50_ms"].tolist() == pytest.approx([0.1, 0.1])
    assert table["queue_p95_ms"].tolist() == [0, 0]


def test_misses_of_names_seen_before_are_counted() -> None:
    table = cache.table(Training([1.0], steps=10, cached=False).trace().events)
    assert table["cached_percent"].item() == 0
    assert table["again"].item() == 36
    assert table["again_cached_percent"].item() == 0


def test_every_metric_says_something_of_an_empty_trace() -> None:
    empty = Trace(UNEVEN.trace().events.iloc[:0])
    for name, metric in measure(empty).items():
        assert metric.summary.endswith("."), name
        assert len(metric.table) == 0


def test_every_metric_is_a_table_with_a_sentence() -> None:
    found = measure(UNEVEN.trace())
    assert list(found) == list(METRICS)
    for metric in found.values():
        assert len(metric.table) > 0
        assert metric.summary.endswith(".") and "nan" not in metric.summary


def test_steps_that_a_rank_lacks_are_left_out() -> None:
    trace = UNEVEN.trace()
    events = trace.events
    lost = (events["kind"] == "STEP") & (events["rank"] == 1) & (events["seq"] == 30)
    kept = breakdown.steady(breakdown.table(events[~lost]))
    assert 30 not in set(kept["step"])
    assert kept["step"].min() == 5
    assert np.isfinite(kept["step_ms"]).all()
