"""What is said of jobs whose bottleneck is known."""

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import stdtrit

from hvdtune.timeline import Trace
from hvdtune.timeline.analysis.findings import Answer, unnamed, why
from hvdtune.timeline.analysis.findings.finding import (
    MOST_BLOCKS,
    T_975,
    TraceEvidence,
    TraceFinding,
)
from hvdtune.timeline.analysis.findings.negotiation import cache_remedy
from hvdtune.timeline.analysis.metrics import breakdown
from hvdtune.timeline.model.job_metadata import job_metadata_of
from tests.kit.synthetic import Recorder, Training


def ask(trace: Trace, link_gbps: float | None = None) -> Answer:
    return why(trace, job_metadata_of(trace, link_gbps))


def first(trace: Trace, link_gbps: float | None = None) -> Any:
    answer = ask(trace, link_gbps)
    assert answer.verdict == "found", answer
    return answer.findings[0]


BALANCED = Training([10.0] * 4, noise_ms=0.3, bucket_ms=0.1)
LARGE_BUCKETS = Training([10.0, 10.0], bucket_ms=8.0)  # on one host, which has no network


@pytest.mark.parametrize(
    ("training", "verdict", "kinds"),
    [
        pytest.param(BALANCED, "nothing", [], id="balanced"),
        pytest.param(LARGE_BUCKETS, "found", ["exposed-communication"], id="without a network"),
    ],
)
def test_nothing_is_found_that_is_not_there(
    training: Training, verdict: str, kinds: list[str]
) -> None:
    answer = ask(training.trace(), link_gbps=1.0)
    assert (answer.verdict, [finding.kind for finding in answer.findings]) == (verdict, kinds)


def test_the_largest_part_of_a_step_that_no_finding_is_about_is_named() -> None:
    trace = Training([10.0, 14.0], bucket_ms=4.0).trace()
    evidence = TraceEvidence.of(trace, job_metadata_of(trace))
    findings = {finding.kind: finding for finding in ask(trace).findings}
    share = 100 * 4.0 / evidence.step_ms
    left = f"waiting for buckets takes 4.00 ms of a step ({share:.0f} %, the mean of all ranks)"

    def note(*found: TraceFinding) -> str:
        return unnamed.shares(trace, evidence, found).note(of_ranks=True)

    assert note(findings["slow-compute"]).startswith(left)
    assert not note(*findings.values())
    ranks = "waiting for ranks takes 2.00 ms"
    assert note(findings["exposed-communication"]).startswith(ranks)
    assert not [note for note in ask(BALANCED.trace()).notes if "no finding explains it" in note]


def test_sleep_of_all_ranks_is_named_though_no_rank_is_slow() -> None:
    answer = ask(Training([17.0, 17.0], asleep_ms=[12.0, 12.0]).trace())
    assert answer.verdict == "unexplained"
    assert f"the largest other part is time {breakdown.OFF_PROCESSOR}, 12.00 ms" in answer.headline
    assert answer.explained_percent == pytest.approx(100 * 5.2 / answer.step_ms, abs=0.1)
    assert not [note for note in answer.notes if "no finding explains it" in note]


@pytest.mark.parametrize(
    ("asleep_ms", "verdict"), [(2.0, "nothing"), (5.0, "unexplained")], ids=["85 %", "60 %"]
)
def test_no_bottleneck_is_said_only_where_four_fifths_of_a_step_are_explained(
    asleep_ms: float, verdict: str
) -> None:
    answer = ask(Training([11.0] * 2, asleep_ms=[asleep_ms] * 2, bucket_ms=0.1).trace())
    assert (answer.verdict, answer.findings) == (verdict, ())
    assert ("No bottleneck found" in answer.headline) == (verdict == "nothing")
    assert answer.document()["explained_percent"] == pytest.approx(answer.explained_percent, abs=1)


def test_time_of_which_nothing_is_recorded_is_not_called_computing() -> None:
    answer = ask(Training([10.0] * 2, ran=False, bucket_ms=0.1).trace())
    assert answer.verdict == "unexplained"
    assert f"the largest other part is {breakdown.UNTOLD}, " in answer.headline


def test_a_rank_for_which_nobody_waits_is_not_said_to_pause() -> None:
    """Where its waits are missing in some steps, it only seems to be busy in them."""
    trace = Training([2.0, 2.0], steps=24, spans={(1, None): [("input", 18.0)]}).trace()
    events = trace.events
    number = events["begin_ns"] // events.loc[events["kind"] == "STEP", "end_ns"].min()
    lost = (events["kind"] == "BLOCKED") & (events["rank"] == 0) & (number % 3 == 0)
    answer = ask(Trace(events[~lost], trace.meta))
    assert not [found for found in answer.findings if found.ranks == (0,)], answer


DDP = Training([20.0, 20.0], tensors=30, names="allreduce.bucket {}: a.bias to a.weight")


@pytest.mark.parametrize(
    ("training", "buckets"),
    [
        pytest.param(
            dataclasses.replace(DDP, tensor_bytes=200 << 10, apart_ms=0.2), 30, id="of 200 KiB"
        ),
        pytest.param(dataclasses.replace(DDP, tensor_bytes=26 << 20), 0, id="of the default size"),
        pytest.param(
            Training([20.0, 20.0], tensors=30, tensor_bytes=200 << 10, apart_ms=0.2),
            0,
            id="of no DDP",
        ),
    ],
)
def test_buckets_of_ddp_that_are_too_small_are_a_finding(training: Training, buckets: int) -> None:
    found = {finding.kind: finding for finding in ask(training.trace()).findings}
    assert ("small-ddp-buckets" in found) == bool(buckets), found
    if buckets:
        finding = found["small-ddp-buckets"]
        assert f"sends {buckets} small buckets" in finding.summary
        assert "200 KiB (median); with DDP's default sizes there would be 2" in finding.evidence[0]
        assert "--knobs live,ddp_bucket_cap_mb" in finding.remedy
        # 28 calls less, of one and a half times 0.2 ms; joined buckets are ready later.
        assert 2.0 < finding.cost.mean <= 28 * 0.3


exactly = pytest.approx


def per_step(total_ms: float) -> object:
    """Pauses of so many ms in all, over the 55 steps of which the edges may cut some."""
    return pytest.approx(total_ms / 55, rel=0.05)


INPUT = {(1, None): [("input", 3.0)]}
INPUT_OF_ALL = {(rank, None): [("input", 5.0)] for rank in range(3)}
GC = {(0, step): [("gc", 30.0)] for step in range(8, 60, 6)}
CHECKPOINTS = {(0, step): [("checkpoint", 50.0)] for step in range(8, 60, 10)}
FEW_CHECKPOINTS = {(0, step): [("checkpoint", 80.0)] for step in (20, 45)}
UNNAMED = {(1, step): [("", 40.0)] for step in range(9, 60, 8)}
TWO_SLOW = Training([10.0, 13.0, 14.0])
ASLEEP = Training([10.0, 14.0], asleep_ms=[0.0, 4.0])
CROWDED = Training([10.0, 15.0], no_processor_ms=[0.0, 5.0])
ALL_CROWDED = Training([10.0] * 2, no_processor_ms=[5.0] * 2, bucket_ms=8.0)


@pytest.mark.parametrize(
    ("training", "kind", "ranks", "cost_ms"),
    [
        pytest.param(Training([10.0, 10.0, 14.0]), "slow-compute", (2,), exactly(4.0), id="slow"),
        pytest.param(TWO_SLOW, "slow-compute", (2,), exactly(1.0), id="two are slow"),
        pytest.param(ASLEEP, "slow-elsewhere", (1,), exactly(4.0), id="asleep"),
        pytest.param(
            Training([10.0] * 3, spans=INPUT), "slow-input", (1,), exactly(3.0), id="input"
        ),
        pytest.param(
            Training([10.0] * 3, spans=INPUT_OF_ALL), "slow-input", (), exactly(5.0), id="all"
        ),
        pytest.param(
            Training([10.0] * 2, spans=GC), "gc-pauses", (0,), per_step(30.0 * 9), id="gc"
        ),
        pytest.param(
            Training([9.0] * 2, spans=CHECKPOINTS),
            "checkpoint-pauses",
            (0,),
            per_step(50.0 * 6),
            id="io",
        ),
        pytest.param(
            Training([9.0] * 2, spans=FEW_CHECKPOINTS),
            "checkpoint-pauses",
            (0,),
            per_step(80.0 * 2),
            id="seldom",
        ),
        pytest.param(
            Training([10.0] * 2, spans=UNNAMED), "pauses", (1,), per_step(40.0 * 7), id="any"
        ),
        pytest.param(CROWDED, "oversubscribed", (1,), exactly(5.0, rel=0.05), id="no processor"),
        # Of 10 ms half have no processor, so half of the 8.1 ms that are waited for goes, too.
        pytest.param(
            ALL_CROWDED,
            "oversubscribed",
            (),
            pytest.approx(5 + 8.1 / 2, rel=0.02),
            id="nor for communication",
        ),
    ],
)
def test_what_slows_a_job_down_is_named_with_its_ranks_and_its_cost(
    training: Training, kind: str, ranks: tuple[int, ...], cost_ms: object
) -> None:
    found = first(training.trace())
    assert (found.kind, found.ranks) == (kind, ranks)
    assert found.cost.mean == cost_ms
    assert found.cost.percent > 2
    assert found.evidence and found.remedy


@pytest.mark.parametrize(
    ("lacks_ms", "bucket_ms", "scripts_ms", "communication_ms", "confidence"),
    [
        # The scripts lack a processor for this share of 10.2 ms, and wait for 20.1 ms or
        # 2.1 ms.
        pytest.param(2.0, 20.0, 2.0, 3.94, "medium", id="concluded"),
        pytest.param(1.5, 2.0, 1.5, 0.31, "high", id="measured"),
    ],
)
def test_the_evidence_of_lacking_processors_adds_up_to_the_cost(
    lacks_ms: float,
    bucket_ms: float,
    scripts_ms: float,
    communication_ms: float,
    confidence: str,
) -> None:
    lacks = [lacks_ms] * 2
    answer = ask(Training([10.0] * 2, no_processor_ms=lacks, bucket_ms=bucket_ms).trace())
    (found,) = (each for each in answer.findings if each.kind == "oversubscribed")
    assert found.confidence == confidence
    assert f"steps would be {scripts_ms:.2f} ms shorter" in found.evidence[1]
    assert f"takes {communication_ms:.2f} ms longer" in found.evidence[-1]
    assert found.cost.mean == pytest.approx(scripts_ms + communication_ms, abs=0.01)


def on_a_crowded_host(seed: int, ranks: int, slower_ms: float) -> Trace:
    """Ranks that lack processors in bursts, of which a part is recorded; rank 0 computes longer."""
    random = np.random.default_rng(seed)
    recorded = random.uniform(0.75, 0.95, ranks)
    often = random.gamma(2, 2.5, ranks)
    record, at = Recorder(), 0.0
    for step in range(60):
        lacks = often * random.exponential(size=ranks)
        busy = 10 + random.exponential(0.3, ranks) + lacks
        busy[0] += slower_ms
        end = at + busy.max() + 1
        for rank in range(ranks):
            told = lacks[rank] * recorded[rank]
            ran_us = round(1000 * (busy[rank] - lacks[rank]))
            values = {"seq": step, "arg": ran_us, "bucket": round(1000 * told)}
            record.add(rank, "STEP", at, end, **values)
            record.add(rank, "BLOCKED", at + busy[rank], end)
            key = {"seq": step, "bucket": step}
            record.add(rank, "NEGOTIATE", at + busy[rank], end - 1, "all", **key, arg=1)
            record.add(rank, "ALLREDUCE", end - 1, end, "all", **key, arg=999)
            record.add(rank, "BUCKET", end - 1, end, "cycle", seq=1, bucket=step, arg=999)
        at = end
    return record.trace(ranks)


def accused(trace: Trace) -> list[tuple[int, str]]:
    """The ranks that are said to be slow, each with how sure that is."""
    found = ask(trace).findings
    return [(row.ranks[0], row.confidence) for row in found if row.kind.startswith("slow-")]


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_crowded_host_makes_no_rank_slow(ranks: int) -> None:
    assert [accused(on_a_crowded_host(seed, ranks, 0.0)) for seed in range(12)] == [[]] * 12


def test_a_cold_cache_is_told_on_a_crowded_host_but_not_called_sure() -> None:
    cold = Training([40.0] * 2, no_processor_ms=[30.0] * 2, cached=False, response_ms=[0.0, 3.0])
    crowded, found = ask(cold.trace()).findings
    assert (crowded.kind, found.kind) == ("oversubscribed", "cold-cache")
    assert found.cost.mean < 0.25 * crowded.cost.mean and found.confidence != "high"


def test_a_slow_rank_is_named_on_a_crowded_host_too() -> None:
    found = [accused(on_a_crowded_host(seed, 2, 9.0)) for seed in range(8)]
    assert [[rank for rank, _ in each] for each in found] == [[0]] * 8


def test_what_lacking_processors_may_explain_is_less_sure() -> None:
    training = Training([10.0, 14.0], no_processor_ms=[6.0, 6.0], noise_ms=0.1)
    assert accused(training.trace()) == [(1, "medium")]


@pytest.mark.parametrize(("was_tuned", "advised"), [(False, True), (True, False)])
def test_a_study_is_advised_only_where_there_was_none(was_tuned: bool, advised: bool) -> None:
    trace = LARGE_BUCKETS.trace()
    job = dataclasses.replace(job_metadata_of(trace), was_tuned=was_tuned)
    (found,) = why(trace, job).findings
    assert ("hvdtune run --trials" in found.remedy) == advised
    assert "send less" in found.remedy and "`" not in found.remedy


def test_what_the_least_blocked_rank_and_what_all_ranks_wait_are_told_apart() -> None:
    # Rank 0 computes 5 ms less, which it waits for rank 1.
    training = Training([10.0, 15.0], bucket_ms=9.0)
    answer = ask(training.trace())
    (found,) = (each for each in answer.findings if each.kind == "exposed-communication")
    assert found.cost.mean == pytest.approx(9.1)
    assert "of all ranks is 11.60 ms, 48 % of a step" in found.evidence[1]
    steps = breakdown.steady(breakdown.table(training.trace().events, from_waits=True))
    assert "48 % waiting for communication" in breakdown.sentence(steps)


@pytest.mark.parametrize("lacks_ms", [0.0, 3.0])
def test_announcing_in_full_costs_until_the_last_rank_has_its_response(lacks_ms: float) -> None:
    lacks = [lacks_ms] * 2
    training = Training(
        [10.0] * 2,
        cached=False,
        response_ms=[0.0, 8.0],
        no_processor_ms=lacks,
        tensors=1,
        bucket_ms=4.0,
    )
    answer = ask(training.trace())
    # What scripts lack of processors meanwhile is no second finding.
    assert [(found.kind, found.ranks) for found in answer.findings] == [("cold-cache", ())]
    # Announcing is two thirds of what the runtime does meanwhile.
    assert answer.findings[0].cost.mean == pytest.approx(8.0 + lacks_ms * 2 / 3, rel=0.02)


def test_a_response_that_is_late_now_and_then_is_not_the_cost_of_announcing_in_full() -> None:
    training = Training([10.0] * 2, cached=False, response_ms=[0.0, 8.0], bucket_ms=10.0)
    trace = training.trace()
    events = trace.events
    # In every fifth step rank 0 has its response 16 ms later, and the bucket ends when it did.
    late = (events["rank"] == 0) & (events["begin_ns"] // 29_300_000 % 5 == 0)
    events.loc[late & (events["kind"] == "NEGOTIATE"), "end_ns"] += 16_000_000
    events.loc[late & (events["kind"] == "BUCKET"), "begin_ns"] += 16_000_000
    (found,) = (each for each in ask(trace).findings if each.kind == "cold-cache")
    assert found.cost.mean == pytest.approx(8.0, rel=0.02)


@pytest.mark.parametrize(
    ("setting", "names", "again", "remedy"),
    [
        (
            {"cache_enabled": False},
            ["a"],
            90.0,
            "enable the response cache with --cache-capacity 1024",
        ),
        ({"cache_capacity": 8}, [f"t{i}" for i in range(20)], 90.0, "32 instead of 8"),
        ({"cache_capacity": 1024}, ["a", "b"], 90.0, "the same shape in every step"),
        ({"cache_capacity": 1024}, ["a.1", "a.2"], 10.0, "the same name in every step"),
        ({"cache_capacity": 1024}, ["allreduce.bucket 0: a to b"], 90.0, "record later steps"),
        ({"cache_capacity": 1024}, ["allreduce.torch.7"], 10.0, "record later steps"),
        ({"cache_capacity": 8}, ["allreduce.bucket 0: a to b"], 90.0, "1024 instead of 8"),
    ],
)
def test_no_remedy_for_a_cold_cache_makes_it_colder(
    setting: dict[str, Any], names: list[str], again: float, remedy: str
) -> None:
    assert remedy in cache_remedy(setting, names, again)[0]


@pytest.mark.parametrize(
    ("training", "kind", "ranks", "cost_ms", "confidence", "evidence"),
    [
        (Training([10.0, 14.0], ran=False), "slow-compute", (1,), 4.0, "low", "not recorded"),
        (
            LARGE_BUCKETS,
            "exposed-communication",
            (),
            8.1,
            "medium",
            "8.00 ms for buckets, 0.10 ms for",
        ),
    ],
    ids=["without processor times", "much communication"],
)
def test_a_cause_that_is_left_open_is_less_sure(
    training: Training,
    kind: str,
    ranks: tuple[int, ...],
    cost_ms: float,
    confidence: str,
    evidence: str,
) -> None:
    found = first(training.trace())
    assert (found.kind, found.ranks, found.confidence) == (kind, ranks, confidence)
    assert found.cost.mean == pytest.approx(cost_ms)
    assert evidence in " ".join(found.evidence)


def backward(
    ready_ms: list[list[float]],
    *,
    bytes: list[int],
    per_bucket_ms: float,
    then_ms: float = 0.0,
    **setting: Any,
) -> Trace:
    """20 steps of 2 ranks with a bucket per tensor.

    Args:
        ready_ms: of each rank, for each tensor.
        then_ms: what ranks do before they wait.
    """
    record = Recorder()
    every = 100.0
    for step in range(20):
        at = every * step
        free = at
        ends = []
        for index, size in enumerate(bytes):
            known = at + max(row[index] for row in ready_ms) + 0.1
            begin = max(free, known)
            free = begin + per_bucket_ms + size / 1e6
            ends.append((known, begin, free))
        for rank, row in enumerate(ready_ms):
            record.add(rank, "STEP", at, at + every, seq=step, arg=1000)
            record.add(rank, "BLOCKED", at + max(row) + then_ms, max(end for *_, end in ends))
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
    return record.trace(2, **setting)


SMALL = {
    "ready_ms": [[30.0] * 50] * 2,
    "bytes": [1000 * (1 + k % 3) for k in range(50)],
    "per_bucket_ms": 0.5,
}
UNFUSED = SMALL | {"fusion_threshold_bytes": 0}
HUGE = {
    "ready_ms": [[10.0, 20.0, 30.0, 40.0]] * 2,
    "bytes": [10_000, 20_000, 15_000, 20_000_000],
    "per_bucket_ms": 0.05,
}

# As an optimizer announces them: three weights at once, then the small ones in one tensor.
PACKED = {
    "ready_ms": [[26.35, 26.35, 26.35, 35.5]] * 2,
    "bytes": [30_000_000, 60_000, 60_000, 3_000],
    "per_bucket_ms": 0.05,
}
EARLY = {
    "ready_ms": [[10.0, 40.0, 42.0, 45.0]] * 2,
    "bytes": [20_000_000, 2_000_000, 2_000_000, 2_000_000],
    "per_bucket_ms": 0.05,
}


@pytest.mark.parametrize(
    ("job", "kind", "knob", "said", "cost_ms"),
    [
        (UNFUSED, "tiny-buckets", "fusion_threshold_bytes", "small buckets", 49 * 0.5),
        (HUGE, "huge-late-tensor", "", "layer3", 20.0),
        # Of its 30 ms computing hides 9.
        (PACKED, "huge-late-tensor", "", "layer0", 30.0 - 9.15),
    ],
    ids=[
        "tiny buckets cost their fixed part",
        "a huge tensor comes last",
        "only packed gradients come after a huge tensor",
    ],
)
def test_the_sizes_of_buckets_are_told_of(
    job: dict[str, Any], kind: str, knob: str, said: str, cost_ms: float
) -> None:
    found = first(backward(**job))
    assert (found.kind, found.knob) == (kind, knob)
    assert said in found.summary
    assert found.cost.mean == pytest.approx(cost_ms, rel=0.1)


def test_shorter_buckets_save_all_that_nothing_hides() -> None:
    # Of 20 ms ranks compute for 5, of 10 ms, too.
    trace = backward(**HUGE, then_ms=5.0)
    evidence = TraceEvidence.of(trace, job_metadata_of(trace, None))
    assert evidence.blocked.mean() == pytest.approx(15.0, rel=0.02)
    assert evidence.saved_by_shorter(0.5).mean == pytest.approx(10.0, rel=0.02)


def test_a_huge_tensor_that_others_follow_is_no_finding() -> None:
    assert "huge-late-tensor" not in [finding.kind for finding in ask(backward(**EARLY)).findings]


def test_the_default_threshold_is_no_finding() -> None:
    assert "tiny-buckets" not in [finding.kind for finding in ask(backward(**SMALL)).findings]


def test_ranks_with_another_order_are_found() -> None:
    ready = [[10.0 * k for k in range(1, 7)], [10.0 * k for k in range(6, 0, -1)]]
    sizes = [3_000_000, 3_100_000, 3_200_000, 3_000_000, 3_100_000, 3_200_000]
    trace = backward(ready, bytes=sizes, per_bucket_ms=0.05)
    found = next(row for row in ask(trace).findings if row.kind == "different-order")
    assert found.ranks == ()  # of two, neither is the one with the wrong order
    assert found.cost.mean > 2


@pytest.mark.parametrize(
    ("is_there", "missing"),
    [
        pytest.param(
            lambda events: events["rank"] != 1, "events of rank 1 are missing", id="a rank"
        ),
        pytest.param(lambda events: events["kind"] != "STEP", "mark_step", id="steps"),
        pytest.param(
            lambda events: (events["kind"] != "NEGOTIATE") | (events["rank"] != 2),
            "announcements",
            id="a rank's announcements",
        ),
        pytest.param(
            lambda events: events["begin_ns"] < 40_000_000, "share only 2 steps", id="most"
        ),
        pytest.param(lambda events: events["rank"] < 0, "holds no slices", id="everything"),
    ],
)
def test_missing_evidence_names_nobody(
    is_there: Callable[[pd.DataFrame], "pd.Series[bool]"], missing: str
) -> None:
    trace = Training([10.0, 10.0, 14.0]).trace()
    answer = ask(dataclasses.replace(trace, recorded=trace.events[is_there(trace.events)]))
    assert (answer.verdict, answer.findings) == ("incomplete", ())
    assert missing in "; ".join(answer.missing)


def test_of_ranks_that_are_late_in_turn_none_is_named_alone() -> None:
    turns: dict[tuple[int, int | None], list[tuple[str, float]]]
    turns = {(step % 2, step): [("work", 12.0)] for step in range(60)}
    found = first(Training([5.0, 5.0, 5.0], spans=turns).trace())
    assert (found.kind, found.ranks, found.confidence) == ("slow-elsewhere", (0, 1), "medium")
    assert found.cost.mean == pytest.approx(12.0)
    assert found.summary.startswith("in turn, rank 0 or rank 1 is off the processor")
    assert "rank 0 in 49 %, rank 1 in 51 %" in found.evidence[0]


def test_on_a_crowded_host_ranks_that_compute_longer_in_turn_are_named_together() -> None:
    turns: dict[tuple[int, int | None], list[tuple[str, float]]]
    turns = {(step % 2, step): [("work", 12.0)] for step in range(60)}
    answer = ask(Training([25.0, 25.0], spans=turns, no_processor_ms=[14.0, 14.0]).trace())
    assert [(row.kind, row.ranks) for row in answer.findings] == [
        ("oversubscribed", ()),
        ("slow-elsewhere", (0, 1)),
    ]
    assert answer.findings[1].cost.mean == exactly(12.0)


def test_what_another_rank_does_meanwhile_bounds_the_cost_of_one_that_computes_longer() -> None:
    reading: dict[tuple[int, int | None], list[tuple[str, float]]]
    reading = {(0, None): [("input", 12.0)]}
    found = first(Training([5.0, 30.0], spans=reading).trace())
    assert (found.kind, found.ranks) == ("slow-compute", (1,))
    # Without its 25 ms more the other rank, which then has 17 ms, sets the length.
    assert found.cost.mean == exactly(13.0)


def test_on_a_crowded_host_one_rank_that_pauses_again_and_again_is_named() -> None:
    pauses: dict[tuple[int, int | None], list[tuple[str, float]]]
    pauses = {(1, step): [("work", 150.0)] for step in (10, 25, 40, 55)}
    answer = ask(Training([25.0, 25.0], spans=pauses, no_processor_ms=[14.0, 14.0]).trace())
    assert [(row.kind, row.ranks) for row in answer.findings] == [
        ("oversubscribed", ()),
        ("pauses", (1,)),
    ]


def test_ranks_that_are_not_there_are_counted_whatever_number_a_damaged_trace_has() -> None:
    trace = Training([10.0, 10.0]).trace()
    events = trace.events.assign(rank=trace.events["rank"].replace(1, 2**31 - 1))
    answer = ask(dataclasses.replace(trace, recorded=events))
    said = "events of ranks 1, 2, 3, 4, 5, 6, 7, 8 and 2,147,483,638 more are missing"
    assert said in "; ".join(answer.missing)


def test_dropped_records_make_a_trace_incomplete() -> None:
    trace = Training([10.0, 14.0]).trace()
    trace.meta["dropped"] = {0: len(trace.events)}
    assert "dropped" in ask(trace).missing[0]


def test_findings_come_in_the_order_of_their_cost_and_are_few() -> None:
    spans: dict[tuple[int, int | None], list[tuple[str, float]]]
    spans = {(rank, None): [("input", 4.0)] for rank in range(2)}
    trace = Training([10.0, 20.0], spans=spans, no_processor_ms=[1.0, 1.0]).trace()
    costs = [finding.cost.mean for finding in ask(trace).findings]
    assert costs == sorted(costs, reverse=True)
    assert 2 <= len(costs) <= 5


def test_an_answer_is_plain_data() -> None:
    document = ask(Training([10.0, 14.0]).trace()).document()
    again = json.loads(json.dumps(document, allow_nan=False))
    assert again["findings"][0]["ranks"] == [1]
    assert set(again["findings"][0]) == {
        *("kind", "ranks", "cost_ms_per_step", "interval_ms_per_step", "percent"),
        *("finding", "evidence", "remedy", "knob", "sure"),
    }


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
    assert "different ranks are late in different steps" in found.summary


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


@pytest.mark.parametrize(
    ("adopted", "notes"),
    [
        (
            ["a", "b"] * 3,
            ["2 settings were in use (6 changes); costs are means over all of them"],
        ),
        (["a", "a"], []),
    ],
)
def test_settings_are_counted_once_however_often_they_were_adopted(
    adopted: list[str], notes: list[str]
) -> None:
    record = Recorder()
    for at, setting in enumerate(adopted):
        record.add(0, "KNOB_ADOPTED", at, at, setting)
    job = job_metadata_of(record.trace(len(BALANCED.compute_ms)))
    trace = BALANCED.trace()
    known = dataclasses.replace(job_metadata_of(trace), changes=job.changes, settings=job.settings)
    assert [note for note in why(trace, known).notes if "settings" in note] == notes


def test_few_steps_name_a_rank_that_is_always_last_and_are_not_sure() -> None:
    answer = ask(Training([10.0, 14.0], steps=5).trace())
    (found,) = answer.findings
    assert (found.kind, found.ranks, found.confidence) == ("slow-compute", (1,), "medium")
    assert answer.notes[0] == "only 4 steps were recorded; rare problems may be missed"


@pytest.mark.parametrize("noise_ms", [0.5, 2.0, 5.0])
@pytest.mark.parametrize("ranks", [2, 3])
def test_few_steps_accuse_no_rank_of_what_all_have(ranks: int, noise_ms: float) -> None:
    answer = ask(Training([10.0] * ranks, steps=5, noise_ms=noise_ms).trace())
    assert [finding.ranks for finding in answer.findings if finding.ranks] == []


def test_intervals_are_those_of_students_t() -> None:
    assert len(T_975) == MOST_BLOCKS - 1
    exact = [float(stdtrit(count, 0.975)) for count in range(1, MOST_BLOCKS)]
    assert pytest.approx(exact, rel=1e-9) == T_975


def test_a_rank_that_computes_longer_is_the_cause_of_what_it_lacks_of_processors_for_that() -> None:
    answer = ask(Training([10.0, 22.0], no_processor_ms=[2.0, 8.0], noise_ms=0.1).trace())
    slow, crowded = answer.findings
    assert (slow.kind, slow.ranks, slow.confidence) == ("slow-compute", (1,), "high")
    # 6 ms more of work, of 14.2, and as large a share of the 8 ms without a processor.
    assert slow.cost.mean == pytest.approx(6 + 8 * 6 / 14.2, abs=0.3)
    assert crowded.kind == "oversubscribed"


def test_what_is_little_beside_a_lack_of_processors_is_not_told_and_this_is_said() -> None:
    work = {(rank, None): [("input", 2.0)] for rank in (0, 1)}
    told = {}
    for lacks_ms in (0.0, 20.0):
        compute = [10.0 + lacks_ms] * 2
        trace = Training(compute, spans=work, no_processor_ms=[lacks_ms] * 2).trace()
        told[lacks_ms] = ask(trace)
    assert [found.kind for found in told[0.0].findings] == ["slow-input"]
    assert [found.kind for found in told[20.0].findings] == ["oversubscribed"]
    assert any("CPU contention hides any cost below" in note for note in told[20.0].notes)
