"""What is said of jobs whose bottleneck is known."""

import dataclasses
import re
from typing import Any

import pytest

from hvdtune.timeline import Trace
from hvdtune.timeline.analysis.findings import Answer, why
from hvdtune.timeline.model.job_metadata import job_metadata_of
from tests.kit.synthetic import Recorder, Training


def ask(trace: Trace, link_gbps: float | None = None) -> Answer:
    return why(trace, job_metadata_of(trace, link_gbps))


def first(trace: Trace, link_gbps: float | None = None) -> Any:
    answer = ask(trace, link_gbps)
    assert answer.verdict == "found", answer
    return answer.findings[0]


def test_a_balanced_job_has_no_bottleneck() -> None:
    answer = ask(Training([10.0] * 4, noise_ms=0.3, bucket_ms=0.1).trace())
    assert (answer.verdict, answer.findings) == ("nothing", ())


@pytest.mark.parametrize(
    ("training", "kind", "rank", "cost"),
    [
        (Training([10.0, 10.0, 14.0]), "slow-compute", 2, 4.0),
        (Training([10.0, 14.0], asleep_ms=[0.0, 4.0]), "slow-elsewhere", 1, 4.0),
        (Training([10.0] * 3, spans={(1, None): [("input", 3.0)]}), "slow-input", 1, 3.0),
        (
            Training([10.0] * 2, spans={(0, step): [("gc", 30.0)] for step in range(8, 60, 6)}),
            "gc-pauses",
            0,
            30.0 * 9 / 55,
        ),
        (
            Training([9.0] * 2, spans={(0, k): [("checkpoint", 50.0)] for k in range(8, 60, 10)}),
            "checkpoint-pauses",
            0,
            50.0 * 6 / 55,
        ),
        (Training([10.0, 15.0], no_processor_ms=[0.0, 5.0]), "oversubscribed", 1, 5.0),
        (
            Training([10.0] * 2, spans={(1, step): [("", 40.0)] for step in range(9, 60, 8)}),
            "pauses",
            1,
            40.0 * 7 / 55,
        ),
    ],
)
def test_a_slow_rank_is_named_with_what_it_costs(
    training: Training, kind: str, rank: int, cost: float
) -> None:
    found = first(training.trace())
    assert (found.kind, found.ranks) == (kind, (rank,))
    assert found.cost.mean == pytest.approx(cost, rel=0.05)
    assert found.cost.percent > 2
    assert found.evidence and found.remedy


def test_what_every_rank_does_names_none() -> None:
    slow = Training([10.0] * 3, spans={(rank, None): [("input", 5.0)] for rank in range(3)})
    found = first(slow.trace())
    assert (found.kind, found.ranks) == ("slow-input", ())
    assert found.cost.mean == pytest.approx(5.0)


@pytest.mark.parametrize("lacks_ms", [0.0, 3.0])
def test_announcing_in_full_costs_until_the_last_rank_has_its_response(lacks_ms: float) -> None:
    lacks = [lacks_ms] * 2
    training = Training([10.0] * 2, cached=False, response_ms=[0.0, 8.0], no_processor_ms=lacks)
    answer = ask(training.trace())
    # What scripts lack of processors meanwhile is no second finding.
    assert [(found.kind, found.ranks) for found in answer.findings] == [("cold-cache", ())]
    assert answer.findings[0].cost.mean == pytest.approx(8.0 + lacks_ms, rel=0.02)


def test_threads_of_communication_lack_a_processor_as_often_as_the_scripts() -> None:
    training = Training([10.0] * 2, no_processor_ms=[5.0] * 2, bucket_ms=8.0)
    found = first(training.trace())
    assert (found.kind, found.ranks) == ("oversubscribed", ())
    # Of 10 ms half have no processor, so half of the 8.1 ms that are waited for goes, too.
    assert found.cost.mean == pytest.approx(5 + 8.1 / 2, rel=0.02)


def test_a_rank_that_is_late_while_others_wait_anyway_costs_only_the_difference() -> None:
    found = first(Training([10.0, 13.0, 14.0]).trace())
    assert found.ranks == (2,)
    assert found.cost.mean == pytest.approx(1.0)


def backward(
    ready_ms: list[list[float]], *, bytes: list[int], per_bucket_ms: float, **setting: Any
) -> Trace:
    """20 steps of 2 ranks with a bucket per tensor: `ready_ms` of each rank, for each tensor."""
    record = Recorder()
    every = 100.0
    for step in range(20):
        at = every * step
        free = at
        ends = []
        for index, size in enumerate(bytes):
            known = at + max(row[index] for row in ready_ms) + setting.get("lag", 0.1)
            begin = max(free, known)
            free = begin + per_bucket_ms + size / 1e6
            ends.append((known, begin, free))
        for rank, row in enumerate(ready_ms):
            record.add(rank, "STEP", at, at + every, seq=step, arg=1000)
            record.add(rank, "BLOCKED", at + max(row), max(end for *_, end in ends))
            for index, (known, begin, end) in enumerate(ends):
                key = {"seq": step * len(bytes) + index, "bucket": step * len(bytes) + index}
                name = f"layer{index}"
                record.add(rank, "NEGOTIATE", at + row[index], known, name, **key, arg=1)
                record.add(rank, "ALLREDUCE", begin, end, name, **key, arg=bytes[index])
                why = (
                    "fusion is off"
                    if setting.get("fusion_threshold_bytes") == 0
                    else "nothing else was ready"
                )
                record.add(
                    rank, "BUCKET", begin, end, why, seq=1, arg=bytes[index], bucket=key["bucket"]
                )
    setting.pop("lag", None)
    return record.trace(2, **setting)


def test_tiny_buckets_cost_their_fixed_part() -> None:
    sizes = [1000 * (1 + k % 3) for k in range(50)]
    trace = backward([[30.0] * 50] * 2, bytes=sizes, per_bucket_ms=0.5, fusion_threshold_bytes=0)
    found = first(trace)
    assert (found.kind, found.knob) == ("tiny-buckets", "fusion_threshold_bytes")
    assert found.cost.mean == pytest.approx(49 * 0.5, rel=0.1)


def test_the_default_threshold_is_no_finding() -> None:
    sizes = [1000 * (1 + k % 3) for k in range(50)]
    trace = backward([[30.0] * 50] * 2, bytes=sizes, per_bucket_ms=0.5)
    assert "tiny-buckets" not in [finding.kind for finding in ask(trace).findings]


def test_a_huge_tensor_that_comes_last_is_named() -> None:
    ready = [[10.0, 20.0, 30.0, 40.0]] * 2
    trace = backward(ready, bytes=[10_000, 20_000, 15_000, 20_000_000], per_bucket_ms=0.05)
    found = first(trace)
    assert found.kind == "huge-late-tensor"
    assert "layer3" in found.summary
    assert found.cost.mean == pytest.approx(20.0, rel=0.1)


def test_ranks_with_another_order_are_found() -> None:
    ready = [[10.0 * k for k in range(1, 7)], [10.0 * k for k in range(6, 0, -1)]]
    sizes = [3_000_000, 3_100_000, 3_200_000, 3_000_000, 3_100_000, 3_200_000]
    trace = backward(ready, bytes=sizes, per_bucket_ms=0.05)
    found = next(row for row in ask(trace).findings if row.kind == "different-order")
    assert found.ranks == ()  # of two, neither is the one with the wrong order
    assert found.cost.mean > 2


def test_missing_evidence_names_nobody() -> None:
    trace = Training([10.0, 10.0, 14.0]).trace()
    events = trace.events
    without_rank = dataclasses.replace(trace, recorded=events[events["rank"] != 1])
    without_steps = dataclasses.replace(trace, recorded=events[events["kind"] != "STEP"])
    announced = (events["kind"] == "NEGOTIATE") & (events["rank"] == 2)
    without_announcements = dataclasses.replace(trace, recorded=events[~announced])
    few = Training([10.0, 10.0, 14.0], steps=5).trace()
    nothing = dataclasses.replace(trace, recorded=events.iloc[:0])
    said = []
    for cut in (without_rank, without_steps, without_announcements, few, nothing):
        answer = ask(cut)
        assert (answer.verdict, answer.findings) == ("incomplete", ())
        said.append("; ".join(answer.missing))
    assert "no events of rank 1" in said[0]
    assert "mark_step" in said[1]
    assert "announcements" in said[2]
    assert "too few" in said[3]
    assert "no events" in said[4]


def test_dropped_records_make_a_trace_incomplete() -> None:
    trace = Training([10.0, 14.0]).trace()
    trace.meta["dropped"] = {0: len(trace.events)}
    assert "dropped" in ask(trace).missing[0]


def test_without_processor_times_the_cause_is_left_open() -> None:
    found = first(Training([10.0, 14.0], ran=False).trace())
    assert (found.kind, found.ranks, found.confidence) == ("slow-compute", (1,), "low")
    assert "not recorded" in " ".join(found.evidence)


def test_findings_come_in_the_order_of_their_cost_and_are_few() -> None:
    spans: dict[tuple[int, int | None], list[tuple[str, float]]]
    spans = {(rank, None): [("input", 4.0)] for rank in range(2)}
    trace = Training([10.0, 20.0], spans=spans, no_processor_ms=[1.0, 1.0]).trace()
    costs = [finding.cost.mean for finding in ask(trace).findings]
    assert costs == sorted(costs, reverse=True)
    assert 2 <= len(costs) <= 5


def test_an_answer_is_plain_data() -> None:
    import json

    document = ask(Training([10.0, 14.0]).trace()).document()
    again = json.loads(json.dumps(document, allow_nan=False))
    assert again["findings"][0]["ranks"] == [1]
    assert set(again["findings"][0]) == {
        *("kind", "ranks", "cost_ms_per_step", "interval_ms_per_step", "percent"),
        *("finding", "evidence", "remedy", "knob", "sure"),
    }


def test_much_communication_without_a_cause_is_told_of() -> None:
    found = first(Training([10.0, 10.0], bucket_ms=8.0).trace())
    assert (found.kind, found.ranks) == ("exposed-communication", ())
    assert found.cost.mean == pytest.approx(8.1)
    assert found.evidence[0].startswith("of that, 8.00 ms for buckets, 0.10 ms for their neg")
    assert found.confidence == "medium"


def test_ranks_that_wait_in_turn_are_no_sure_case_of_much_communication() -> None:
    record = Recorder()
    for step in range(20):
        at = 20.0 * step
        # The one rank is late with the first tensor, the other with the second.
        for name, order, begin in (("first", (0, 1), at + 1), ("second", (1, 0), at + 10)):
            for rank, asked in zip(order, (begin, begin + 6), strict=True):
                key = {"seq": step, "bucket": 2 * step + (name == "second")}
                heard, end = begin + 6.25, begin + 7
                record.add(rank, "BLOCKED", asked, end)
                record.add(rank, "NEGOTIATE", asked, heard, name, **key, arg=1)
                record.add(rank, "ALLREDUCE", heard, end, name, **key, arg=999)
                reason = "nothing else was ready"
                record.add(rank, "BUCKET", heard, end, reason, seq=1, arg=999, bucket=key["bucket"])
        for rank in range(2):
            record.add(rank, "STEP", at, at + 20, seq=step, arg=12_000)
    found = first(record.trace(2))
    assert (found.kind, found.ranks, found.confidence) == ("exposed-communication", (), "low")
    assert found.cost.mean == pytest.approx(8.0)
    parts = [float(number) for number in re.findall(r"([0-9.]+) ms for", found.evidence[0])]
    assert parts == [1.5, 0.5, 6.0]
    assert "in turn" in found.summary


def test_ranks_of_one_host_have_no_network() -> None:
    answer = ask(Training([10.0, 10.0], bucket_ms=8.0).trace(), link_gbps=1.0)
    assert {finding.kind for finding in answer.findings} == {"exposed-communication"}


def test_copying_into_buckets_and_out_of_them_is_told_of() -> None:
    record = Recorder()
    for step in range(20):
        at = 30.0 * step
        for rank in range(2):
            record.add(rank, "STEP", at, at + 30, seq=step, arg=15_000)
            record.add(rank, "BLOCKED", at + 15, at + 25)
            record.add(rank, "NEGOTIATE", at + 15, at + 15, "all", seq=step, bucket=step, arg=1)
            record.add(rank, "ALLREDUCE", at + 15, at + 25, "all", seq=step, bucket=step, arg=999)
            record.add(
                rank,
                "BUCKET",
                at + 15,
                at + 25,
                "nothing else was ready",
                seq=1,
                bucket=step,
                arg=999,
            )
            for kind, begin, end in (("PACK", 15, 18), ("REDUCE", 18, 20), ("UNPACK", 20, 23)):
                record.add(rank, kind, at + begin, at + end, bucket=step, arg=999)
    found = first(record.trace(2))
    assert found.kind == "copy-bound"
    assert found.cost.mean == pytest.approx(10 * 6 / 8 / 2)  # two ranks read each other instead
