"""What each metric says of jobs whose times are known."""

import dataclasses
import re
import tracemalloc
from types import ModuleType

import numpy as np
import pandas as pd
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
    tensors,
)
from hvdtune.timeline.analysis.report import MetricTable, measure
from tests.kit.synthetic import Recorder, Training

# Rank 1 computes 5 ms longer; 2 ms of its step are input.
UNEVEN = Training([10.0, 15.0], spans={(1, None): [("input", 2.0)]})
NEVER_STEPPED = dataclasses.replace(UNEVEN, steps=0)
APART = Training([10.0, 13.0])
UNCACHED = Training([1.0], steps=10, cached=False)


INPUT = Training([10.0, 10.0], spans={(1, None): [("input", 4.0)]})
GARBAGE = Training([10.0, 10.0], spans={(1, None): [("gc", 4.0)]})
CROWDED = Training([10.0, 14.0], no_processor_ms=[0.0, 4.0])
ASLEEP = Training([10.0, 14.0], asleep_ms=[0.0, 4.0])
LACKING = Training([10.0], no_processor_ms=[3.0], asleep_ms=[4.0])


@pytest.mark.parametrize(
    ("training", "part", "of_each_rank_ms"),
    [
        (UNEVEN, "wait_ms", [7.0, 0.0]),
        (UNEVEN, "negotiate_ms", [0.1, 0.1]),
        (UNEVEN, "exposed_ms", [1.0, 1.0]),
        (UNEVEN, "input_ms", [0.0, 2.0]),
        (UNEVEN, "compute_ms", [10.2, 15.2]),
        (LACKING, "no_processor_ms", [3.0]),
        (LACKING, "compute_ms", [7.2]),
        (LACKING, "off_processor_ms", [4.0]),
    ],
)
def test_the_parts_of_a_step_add_up_to_it(
    training: Training, part: str, of_each_rank_ms: list[float]
) -> None:
    steps = breakdown.table(training.trace().events)
    assert len(steps) == 60 * len(of_each_rank_ms)
    assert steps[list(breakdown.PARTS)].sum(axis=1).to_numpy() == pytest.approx(steps["step_ms"])
    assert steps.groupby("rank").first()[part].tolist() == pytest.approx(of_each_rank_ms)


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


@pytest.mark.parametrize(
    ("training", "reason", "it", "excess_ms", "cost_ms"),
    [
        (UNEVEN, "computing", "computes longer", 5.0, 7.0),
        (INPUT, "input", "waits for input", 4.0, 4.0),
        (GARBAGE, "garbage collection", "collects garbage", 4.0, 4.0),
        (CROWDED, "no processor", "has no processor to run on", 4.0, 4.0),
        (ASLEEP, stragglers.REASONS["off_processor_ms"], "is off the processor", 4.0, 4.0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_straggler_is_named_with_its_cost_and_reason(
    training: Training, reason: str, it: str, excess_ms: float, cost_ms: float
) -> None:
    table = stragglers.table(breakdown.table(training.trace().events))
    worst = table.iloc[0]
    assert (worst["rank"], worst["reason"], worst["late_percent"]) == (1, reason, 100)
    assert worst["excess_ms"] == pytest.approx(excess_ms)
    assert worst["cost_ms_per_step"] == pytest.approx(cost_ms)
    assert "Rank 1 is last in 100 % of steps" in stragglers.sentence(table)
    assert f"all steps would be {cost_ms:.2f} ms shorter" in stragglers.sentence(table)
    assert f"{excess_ms:.2f} ms of that because it {it}" in stragglers.sentence(table)


def test_a_rank_that_costs_nothing_has_no_cause() -> None:
    table = stragglers.table(breakdown.table(UNEVEN.trace().events)).set_index("rank")
    assert (table.loc[0, "reason"], table.loc[0, "excess_ms"]) == ("", 0.0)
    alike = stragglers.table(breakdown.table(Training([10.0, 10.0]).trace().events))
    assert set(alike["reason"]) == {""}
    assert "No rank delays the others" in stragglers.sentence(alike)


def test_the_main_cause_is_what_makes_a_rank_the_last_not_what_it_has_more_of_on_average() -> None:
    # In one step of two one rank lacks a processor for 20 ms, in the other the other one does, and
    # rank 1 sleeps for 2 ms in each.
    rows = [
        dict.fromkeys(breakdown.COLUMNS, 0.0)
        | {"rank": rank, "step": step, "step_ms": 40.0, "no_processor_ms": lacks}
        | {"blocked_ms": 30.0 - lacks - 2 * rank, "wait_ms": 30.0 - lacks - 2 * rank}
        | {"compute_ms": 10.0 + 2 * rank, "ran_ms": 10.0, "off_processor_ms": 2.0 * rank}
        for step in range(40)
        for rank, lacks in ((0, 20.0 * (step % 2)), (1, 20.0 * (1 - step % 2)))
    ]
    table = stragglers.table(pd.DataFrame(rows)).set_index("rank")
    assert table.loc[1, "reason"] == "no processor"
    assert table.loc[1, "cost_ms_per_step"] == pytest.approx(11.0)
    assert table.loc[1, "excess_ms"] == pytest.approx(10.0)


def test_a_rank_costs_no_more_than_the_others_waited_for_it() -> None:
    # Ranks 0 and 1 are busy for 10 ms less than rank 2, which they wait for in every other step.
    rows = [
        dict.fromkeys(breakdown.COLUMNS, 0.0)
        | {"rank": rank, "step": step, "step_ms": 30.0, "compute_ms": busy}
        | {"blocked_ms": 30.0 - busy, "exposed_ms": 20.0 - busy - waits, "wait_ms": waits}
        for step in range(40)
        for rank, busy, waits in ((0, 10.0, 4.0 * (step % 2)), (1, 10.0, 6.0), (2, 20.0, 0.0))
    ]
    table = stragglers.table(pd.DataFrame(rows)).set_index("rank")
    assert table.loc[2, "cost_ms_per_step"] == table.loc[2, "excess_ms"] == pytest.approx(2.0)
    assert table.loc[2, "late_percent"] == 100.0
    of_streams = stragglers.table(pd.DataFrame(rows), of_streams=True).set_index("rank")
    assert of_streams.loc[2, "cost_ms_per_step"] == pytest.approx(10.0)


def test_waits_are_for_the_rank_that_announces_last() -> None:
    trace = UNEVEN.trace()
    steps = breakdown.steady_steps(trace)
    assert stragglers.waits_for(trace, steps).to_numpy() == pytest.approx(
        np.array([[0.0, 7.0], [0.0, 0.0]])
    )


def test_waits_for_ranks_add_up_however_many_are_waited_for() -> None:
    # Rank 0 announces two tensors, which rank 1 and rank 2 announce 4 and 6 ms later.
    record = Recorder()
    for step in range(20):
        at = 20.0 * step
        for rank in range(3):
            record.add(rank, "STEP", at, at + 20, seq=step)
            record.add(rank, "BLOCKED", at + 2, at + 10)
            for name, late in (("one", 1), ("two", 2)):
                asked = at + 2 + (rank == late) * (2 + 2 * late)
                record.add(rank, "NEGOTIATE", asked, at + 9, name, seq=step, bucket=step)
            record.add(rank, "BUCKET", at + 9, at + 10, seq=2, bucket=step, arg=99)
    trace = record.trace(3)
    steps = breakdown.steady(breakdown.table(trace.events))
    waits = stragglers.waits_for(trace, steps)
    assert waits.to_numpy() == pytest.approx(np.array([[0, 0, 6], [0, 0, 6], [0, 4, 0]]))
    rows = stragglers.table(steps).set_index("rank")["waited_ms_per_step"]
    assert waits.sum(axis=1).to_numpy() == pytest.approx(rows.sort_index().to_numpy())


def test_efficiency_is_the_product_of_its_factors() -> None:
    steps = breakdown.steady(breakdown.table(UNEVEN.trace().events, from_waits=True))
    table = efficiency.table(steps)
    shares = [100 * 13.7 / 18.3, 100 * 13.7 / 17.2, 100.0, 100 * 17.2 / 18.3]
    assert table["percent"].tolist() == pytest.approx(shares)
    assert "the lowest factor is load balance (80 %)." in efficiency.sentence(table)


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


def test_what_is_broadcast_before_the_first_step_is_in_no_step() -> None:
    trace = UNEVEN.trace()
    events = trace.events
    first = events[events["kind"] == "BUCKET"].head(2)
    before = first.assign(begin_ns=-9 * 10**6, end_ns=-(10**6), arg=1 << 30)
    after = first.assign(begin_ns=10**12, end_ns=10**12 + 1, arg=1 << 30)
    events = pd.concat([before, events, after], ignore_index=True)
    steps = breakdown.steady(breakdown.table(events))
    assert fusion.bytes_per_step(events, steps) == UNEVEN.tensors * UNEVEN.tensor_bytes
    assert np.isnan(fusion.bytes_per_step(events[events["kind"] != "BUCKET"], steps))


def test_bus_bandwidth_counts_what_a_link_carries() -> None:
    events = Training([1.0] * 4, tensors=1, tensor_bytes=1 << 20, bucket_ms=2.0).trace().events
    table = bandwidth.table(events)
    assert table["from_bytes"].tolist() == [1 << 20]
    assert table["gb_per_s_p50"].item() == pytest.approx(2 * 3 / 4 * 2**20 / 2e6)
    assert "50 % of" in bandwidth.sentence(table, link_gbps=16 * table["gb_per_s_p50"].item())


@pytest.mark.parametrize(
    ("metric", "training", "column", "values"),
    [
        pytest.param(cycles, Training([1.0, 1.0]), "cycles", [1] * 60, id="cycles of a step"),
        pytest.param(cycles, Training([1.0, 1.0]), "tensors_per_cycle", [4] * 60, id="tensors"),
        pytest.param(queueing, APART, "others_p50_ms", [3.0, 0.0], id="wait for the other ranks"),
        pytest.param(queueing, APART, "response_p50_ms", [0.1, 0.1], id="wait for the response"),
        pytest.param(queueing, APART, "queue_p95_ms", [0, 0], id="wait in the queue"),
        pytest.param(cache, UNCACHED, "cached_percent", [0], id="hits of the cache"),
        pytest.param(cache, UNCACHED, "again", [36], id="names seen before"),
        pytest.param(cache, UNCACHED, "again_cached_percent", [0], id="hits of names seen before"),
    ],
)
def test_what_becomes_of_tensors_is_counted(
    metric: ModuleType, training: Training, column: str, values: list[float]
) -> None:
    assert metric.table(training.trace().events)[column].tolist() == pytest.approx(values)


@pytest.fixture(scope="module", params=[UNEVEN, NEVER_STEPPED], ids=["a job", "an empty trace"])
def measured(request: pytest.FixtureRequest) -> tuple[Training, dict[str, MetricTable]]:
    return request.param, measure(request.param.trace())


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_a_table_with_a_sentence(
    measured: tuple[Training, dict[str, MetricTable]], name: str
) -> None:
    training, metrics = measured
    assert list(metrics) == list(METRICS)
    assert (len(metrics[name].table) > 0) == (training.steps > 0)
    assert metrics[name].summary.endswith(".") and "nan" not in metrics[name].summary


def test_steps_that_a_rank_lacks_are_left_out() -> None:
    trace = UNEVEN.trace()
    events = trace.events
    lost = (events["kind"] == "STEP") & (events["rank"] == 1) & (events["seq"] == 30)
    kept = breakdown.steady(breakdown.table(events[~lost]))
    assert 30 not in set(kept["step"])
    assert kept["step"].min() == 5
    assert np.isfinite(kept["step_ms"]).all()


def test_the_breakdown_takes_less_memory_than_the_events() -> None:
    events = Training([1.0] * 16, steps=200).trace().events
    tracemalloc.start()
    breakdown.table(events)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < events.memory_usage().sum()


def test_what_tensors_are_counted_and_what_their_names_mean_is_said():
    table = pd.DataFrame(
        {
            "tensor": ["allreduce.0.weight+199", "allreduce.1.weight", "allreduce.layouts.0.weight",
                       "broadcast.parameters.0.weight"],
            "operation": ["ALLREDUCE"] * 3 + ["BROADCAST"],
            "bytes": [800 << 10, 4 << 10, 8, 4 << 10],
            "communicate_p50_us": [160.0, 20.0, 5.0, 9.0],
        }
    )  # fmt: skip
    said = tensors.sentence(table)
    assert said.startswith("4 tensors: 3 in allreduces, 1 in broadcasts; the largest is allreduce.")
    assert "the gradient of 0.weight and 199 more small gradients are packed." in said
    assert "allreduce.layouts.0.weight is hvdtune's own" in said
    plain = tensors.sentence(table.iloc[[1]])
    assert plain.startswith("1 tensor; ") and "packed" not in plain and "own" not in plain


@pytest.mark.parametrize(
    ("gb_per_s", "said"),
    [(5.263, "5.26 GB/s"), (0.25, "250 MB/s"), (0.0000892, "89.2 kB/s"), (5e-8, "50 B/s")],
)
def test_rates_are_in_a_unit_that_people_read(gb_per_s, said):
    assert bandwidth.rated(gb_per_s) == said


@pytest.mark.parametrize("bucket_ms", [1.0, 2.1, 3.3, 4.7, 6.2])
@pytest.mark.parametrize("input_ms", [0.6, 3.4])
def test_the_shares_of_a_step_add_up(bucket_ms, input_ms):
    spans = {(1, None): [("input", input_ms)]}
    steps = breakdown.steady_steps(Training([9.7, 13.2], bucket_ms=bucket_ms, spans=spans).trace())
    said = breakdown.sentence(steps).partition(": ")[2]
    waited, of_waiting = re.fullmatch(r".*?([0-9]+) % waiting for comm.* \((.*)\)\.", said).groups()
    inner = [int(share) for share in re.findall("([0-9]+) %", of_waiting)]
    outer = [int(share) for share in re.findall("([0-9]+) %", said.replace(of_waiting, ""))]
    assert (sum(outer), sum(inner)) == (100, int(waited)) and len(inner) > 1
    exact = 100 * float(steps["blocked_ms"].sum() / steps["step_ms"].sum())
    assert abs(int(waited) - exact) < 1


def test_steps_are_counted_once_and_not_for_each_rank():
    steps = breakdown.steady_steps(Training([10.0, 14.0]).trace())
    assert f"the mean of {steps['step'].nunique()} steps on 2 ranks:" in breakdown.sentence(steps)


def test_buckets_are_closed_for_a_reason_of_several():
    rows = pd.DataFrame(
        {"reason": ["operation never fuses"], "buckets": [2], "tensors_per_bucket": [1.0],
         "bytes_p50": [4096.0]}
    )  # fmt: skip
    assert "100 % were closed because their operation cannot be fused" in fusion.sentence(rows)


def test_the_path_is_told_in_words():
    rows = pd.DataFrame(
        {"rank": [1, 1], "part": ["no_processor", "exposed"], "ms_per_step": [9.0, 1.0],
         "percent": [90.0, 10.0]}
    )  # fmt: skip
    assert "is rank 1 without a processor: 9.00 ms per step" in critical_path.sentence(rows)
    assert "is rank 1 waiting for buckets: 1.00 ms" in critical_path.sentence(rows.iloc[1:])


def test_the_path_does_not_call_sleep_computing():
    steps = breakdown.steady_steps(Training([10.0, 16.0], asleep_ms=[0.0, 6.0]).trace())
    path = critical_path.table(steps).set_index(["rank", "part"])["ms_per_step"]
    assert path[1, "off_processor"] == pytest.approx(6.0, abs=0.1)
    assert path[1, "compute"] == pytest.approx(10.0, abs=0.3)
