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


def job(last_peer: list[int], hosts: list[str], exchange_ms: float = 20.0, **setting: Any) -> Trace:
    """30 steps; the last three quarters of an exchange lack the part of `last_peer` alone."""
    record = Recorder()
    size = 4_000_000
    for step in range(30):
        at = STEP_MS * step
        for rank in range(RANKS):
            ready, heard = at + 20, at + 20.1
            end = heard + exchange_ms
            record.add(rank, "STEP", at, at + STEP_MS, seq=step, arg=20_000)
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


def test_the_rank_that_everybody_waits_for_has_a_slow_link() -> None:
    found = first(job([2, 2, 1, 2], APART))
    assert (found.kind, found.ranks) == ("slow-link", (2,))
    assert "host-2" in found.summary
    assert found.cost.mean == pytest.approx(15.0)


def test_a_link_that_is_no_slower_than_the_others_is_not_blamed() -> None:
    found = first(job([1, 2, 3, 0], APART))
    assert (found.kind, found.ranks) == ("network", ())
    assert found.cost.mean == pytest.approx(20.0, rel=0.01)


def test_several_ranks_per_host_without_hierarchy_are_told_of() -> None:
    found = first(job([2, 3, 0, 1], PAIRS))
    assert (found.kind, found.knob) == ("hierarchy-off", "hierarchical_allreduce")
    assert found.cost.mean == pytest.approx(20 * (1 - 1 / crossing_bytes(4, 2)), rel=0.01)
    assert crossing_bytes(4, 2) == pytest.approx(2.0)


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


def test_with_hierarchy_on_it_is_the_network() -> None:
    assert first(job([2, 3, 0, 1], PAIRS, hierarchical_allreduce=True)).kind == "network"


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


def test_links_that_could_carry_more_need_other_channels() -> None:
    found = first(job([1, 2, 3, 0], APART), link_gbps=10.0)
    assert (found.kind, found.knob, found.confidence) == ("channels", "channels", "low")
    assert first(job([1, 2, 3, 0], APART), link_gbps=1.0).kind == "network"
