"""What is said of jobs on several hosts."""

from typing import Any

import pytest

from hvdtune.timeline import Trace
from hvdtune.timeline.analysis.findings import TraceFinding, why
from hvdtune.timeline.analysis.findings.network import crossing_bytes
from hvdtune.timeline.model.job_metadata import job_metadata_of
from tests.kit.synthetic import Recorder

RANKS = 4
STEP_MS = 50.0


def job(
    last_peer: list[int],
    hosts: list[str],
    exchange_ms: float = 20.0,
    size: int = 4_000_000,
    waited_us: int = 0,
    **setting: Any,
) -> Trace:
    """30 steps; the last three quarters of an exchange lack the part of `last_peer` alone."""
    record = Recorder()
    for step in range(30):
        at = STEP_MS * step
        for rank in range(RANKS):
            ready, heard = at + 20, at + 20.1
            end = heard + exchange_ms
            record.add(rank, "STEP", at, at + STEP_MS, seq=step, arg=20_000, bucket=waited_us)
            record.add(rank, "BLOCKED", ready, end)
            key = {"seq": step, "bucket": step}
            record.add(rank, "NEGOTIATE", ready, heard, "all", **key, arg=1)
            record.add(rank, "ALLREDUCE", heard, end, "all", **key, arg=size)
            record.add(
                rank, "BUCKET", heard, end, "nothing else was ready", seq=1, bucket=step, arg=size
            )
            record.add(rank, "EXCHANGE", heard, end, bucket=step, arg=size)
            alone = heard + exchange_ms / 4
            record.add(rank, "PEER", alone, end, seq=last_peer[rank], bucket=step)
    return record.trace(RANKS, hosts, **setting)


def first(trace: Trace, link_gbps: float | None = None) -> TraceFinding:
    return why(trace, job_metadata_of(trace, link_gbps)).findings[0]


APART = [f"host-{rank}" for rank in range(RANKS)]
PAIRS = ["left", "left", "right", "right"]


IN_TURN, ELSEWHERE = [1, 2, 3, 0], [2, 3, 0, 1]
ROUGHLY_10, ROUGHLY_20 = (pytest.approx(cost_ms, rel=0.01) for cost_ms in (10.0, 20.0))
HIERARCHY = {"hierarchical_allreduce": True}


@pytest.mark.parametrize(
    ("last_peer", "hosts", "setting", "kind", "said", "cost_ms"),
    [
        ([2, 2, 1, 2], APART, {}, "slow-link", "rank 2 (host-2) is slow", pytest.approx(15.0)),
        (IN_TURN, APART, {}, "network", "bytes between hosts", ROUGHLY_20),
        (ELSEWHERE, PAIRS, {}, "hierarchy-off", "2 ranks of each host", ROUGHLY_10),
        (ELSEWHERE, PAIRS, HIERARCHY, "network", "bytes between hosts", ROUGHLY_20),
    ],
    ids=["all wait for one rank", "no link is slower", "two ranks per host", "hierarchy is on"],
)
def test_what_exchanges_wait_for_is_named_with_its_cost(
    last_peer: list[int],
    hosts: list[str],
    setting: dict[str, Any],
    kind: str,
    said: str,
    cost_ms: object,
) -> None:
    found = first(job(last_peer, hosts, **setting))
    assert (found.kind, found.ranks) == (kind, (2,) if "rank 2" in said else ())
    assert said in found.summary
    assert found.cost.mean == cost_ms


@pytest.mark.parametrize(("ranks", "per_host", "times"), [(4, 2, 2.0), (4, 1, 1.0), (16, 8, 8.0)])
def test_two_levels_let_each_byte_cross_once(ranks: int, per_host: int, times: float) -> None:
    assert crossing_bytes(ranks, per_host) == pytest.approx(times)


def test_what_computing_does_not_hide_goes_first() -> None:
    record = Recorder()
    for step in range(30):
        at = STEP_MS * step
        for rank in range(RANKS):
            record.add(rank, "STEP", at, at + STEP_MS, seq=step, arg=20_000)
            record.add(rank, "BLOCKED", at + 20, at + 35)
            # The first travels while the second is computed, and holds it up.
            for name, ready, begin, end in (("a", 5, 5, 25), ("b", 20, 25, 35)):
                size = (end - begin) * 400_000
                key = {"seq": step, "bucket": 2 * step + (name == "b")}
                record.add(rank, "NEGOTIATE", at + ready, at + begin, name, **key, arg=1)
                record.add(rank, "ALLREDUCE", at + begin, at + end, name, **key, arg=size)
                place = {"bucket": key["bucket"], "arg": size}
                why_sent = "nothing else was ready"
                record.add(rank, "BUCKET", at + begin, at + end, why_sent, seq=1, **place)
                record.add(rank, "EXCHANGE", at + begin, at + end, **place)
    found = first(record.trace(RANKS, PAIRS))
    # With half the bytes the first is over at 15 ms and the second at 25: ten of 15 ms are gone.
    assert found.kind == "hierarchy-off"
    assert found.cost.mean == pytest.approx(10.0, rel=0.02)


def test_the_network_is_charged_with_what_no_other_finding_saves() -> None:
    record = Recorder()
    for step in range(30):
        at = STEP_MS * step
        for rank in range(RANKS):
            record.add(rank, "STEP", at, at + STEP_MS, seq=step, arg=20_000)
            record.add(rank, "BLOCKED", at + 26, at + 40)
            # The first goes at once and the others when all is announced, the second of which a
            # shorter cycle would hide behind computing.
            times = ((2, 2, 2.5), (4, 26, 38), (26, 38, 40))
            for index, (ready, begin, end) in enumerate(times):
                key = {"seq": 3 * step + index, "bucket": 3 * step + index}
                size, name = int((end - begin) * 400_000), f"layer{index}"
                heard = begin if index < 2 else 26
                record.add(rank, "NEGOTIATE", at + ready, at + heard, name, **key, arg=1)
                record.add(rank, "ALLREDUCE", at + begin, at + end, name, **key, arg=size)
                place = {"bucket": key["bucket"], "arg": size}
                record.add(rank, "BUCKET", at + begin, at + end, "threshold", seq=1, **place)
                record.add(rank, "EXCHANGE", at + begin, at + end, **place)
    trace = record.trace(RANKS, APART, cycle_time_ms=50.0, fusion_threshold_bytes=1)
    assert [found.kind for found in why(trace, job_metadata_of(trace)).findings] == ["long-cycle"]
    trace = record.trace(RANKS, APART, cycle_time_ms=1.0, fusion_threshold_bytes=1)
    kinds = [found.kind for found in why(trace, job_metadata_of(trace)).findings]
    assert "network" in kinds


@pytest.mark.parametrize(
    ("trace", "link_gbps", "kind", "knob", "confidence"),
    [
        (job(IN_TURN, APART), 10.0, "channels", "channels", "low"),
        (job(IN_TURN, APART), 1.0, "network", "", "medium"),
        (job(ELSEWHERE, PAIRS), None, "hierarchy-off", "hierarchical_allreduce", "medium"),
    ],
    ids=["links could carry more", "links carry what they can", "two ranks per host"],
)
def test_a_finding_names_the_knob_that_helps(
    trace: Trace, link_gbps: float | None, kind: str, knob: str, confidence: str
) -> None:
    found = first(trace, link_gbps)
    assert (found.kind, found.knob, found.confidence) == (kind, knob, confidence)


def test_exchanges_of_few_bytes_are_no_lack_of_bandwidth() -> None:
    trace = job(IN_TURN, APART, size=9_000)
    (found,) = why(trace, job_metadata_of(trace)).findings
    assert found.kind == "exposed-communication"


def test_a_lack_of_bandwidth_is_doubted_where_processors_are_lacking() -> None:
    trace = job(IN_TURN, APART, waited_us=14_000)
    found = {each.kind: each for each in why(trace, job_metadata_of(trace)).findings}
    assert found["network"].confidence == "low"
    assert "14.00 ms of processor time" in found["network"].evidence[-1]
