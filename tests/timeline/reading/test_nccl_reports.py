"""What NCCL's Inspector and its RAS say: who is late, who is gone, who has not called."""

import gzip
import json
from pathlib import Path

import pytest

from hvdtune.errors import TraceFormatError
from hvdtune.timeline import open_trace, write_slices
from hvdtune.timeline.analysis.findings.why import why
from hvdtune.timeline.model.job_metadata import job_metadata_of
from hvdtune.timeline.reading import cache
from hvdtune.timeline.reading.opening import open_light
from tests.kit.nccl_reports import NOW_US, line, ras_rank, write_inspector, write_ras
from tests.kit.traces import event, rows, write


def answer_of(path, read=open_trace):  # type: ignore[no-untyped-def]
    trace = read(path)
    return why(trace, job_metadata_of(trace))


@pytest.mark.parametrize("read", [open_trace, open_light])
def test_the_rank_whose_kernels_are_shortest_came_last(tmp_path: Path, read) -> None:  # type: ignore[no-untyped-def]
    answer = answer_of(write_inspector(tmp_path, late=1), read)
    (found,) = answer.findings
    assert (found.kind, found.ranks) == ("late-rank", (1,))
    assert "its kernels are the shortest in 100 % of 20 collectives" in found.evidence[0]
    assert "recorded 20 collectives of several ranks" in answer.headline


def test_a_balanced_job_accuses_nobody(tmp_path: Path) -> None:
    answer = answer_of(write_inspector(tmp_path))
    assert (answer.verdict, answer.findings) == ("nothing", ())


def test_the_log_of_one_rank_is_not_enough(tmp_path: Path) -> None:
    answer = answer_of(write_inspector(tmp_path, ranks=1))
    assert answer.verdict == "incomplete"
    assert "pass the logs of all ranks" in answer.missing[0]


def test_collectives_of_the_inspector_are_drawn(tmp_path: Path) -> None:
    trace = open_trace(write_inspector(tmp_path, count=2) / "node7-pid101.log")
    assert trace.slices["kind"].astype(str).tolist() == ["ALLREDUCE"] * 2
    assert set(trace.slices["rank"]) == {1}
    assert trace.slices["seq"].tolist() == [0, 1]
    assert trace.slices["bytes"].tolist() == [4096] * 2
    first = trace.slices.iloc[0]
    assert first["end_ns"] - first["begin_ns"] == 2_501_000
    assert trace.origin_unix_ns == NOW_US * 1000 - 2_501_000
    told = json.loads(first["args"])
    assert told == {"seq": 0, "bytes": 4096, "rank": 1, "busbw_gbs": 2.25}


def test_where_kernels_are_traced_their_times_are_taken(tmp_path: Path) -> None:
    kernels = [{"channel_id": 0, "kernel_start_ts": NOW_US - 900, "kernel_stop_ts": NOW_US - 400}]
    traced = line(0, 1, 500, event_trace_ts={"coll_start_ts": 1, "kernel_events": kernels})
    path = tmp_path / "a.log"
    path.write_text(json.dumps(traced))
    assert open_trace(path).origin_unix_ns == (NOW_US - 900) * 1000


def test_a_log_is_the_same_gzipped_through_its_cache_and_through_an_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_inspector(tmp_path) / "node7-pid101.log"
    plain = rows(open_trace(path))
    packed = tmp_path / "packed.log.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert rows(open_trace(packed)) == plain
    write_slices(open_trace(path), tmp_path / "out.json", "chrome")
    assert rows(open_trace(tmp_path / "out.json")) == plain
    monkeypatch.setattr(cache, "MIN_BYTES", 0)
    assert rows(open_trace(path)) == plain


def test_damaged_lines_are_counted_with_the_place_of_the_first(tmp_path: Path) -> None:
    path = write_inspector(tmp_path) / "node7-pid101.log"
    whole = path.read_bytes()
    at = whole.index(b"\n") + 1
    path.write_bytes(whole[:at] + b"#" + whole[at + 1 : -30])
    trace = open_trace(path)
    assert len(trace.slices) == 18
    assert any(f"2 lines are damaged or cut off, the first at byte {at}" in text
               for text in trace.warnings)  # fmt: skip


def test_a_rank_that_has_called_less_is_named(tmp_path: Path) -> None:
    path = write_ras(tmp_path / "ras.json", [ras_rank(0), ras_rank(1, 41), ras_rank(2)])
    answer = answer_of(path)
    (found,) = answer.findings
    assert (found.kind, found.ranks, found.confidence) == ("missing-call", (1,), "medium")
    assert "rank 1 has called 41 AllReduce, others 42" in found.evidence
    assert "reported 1 communicator at 2026-01-02 03:04:05" in answer.headline


@pytest.mark.parametrize(
    ("status", "what", "sure"),
    [
        ({"unresponsive": True, "considered_dead": True}, "is dead", "high"),
        ({"unresponsive": True, "considered_dead": False}, "is unresponsive", "medium"),
    ],
)
def test_a_rank_that_is_missing_is_named(tmp_path: Path, status, what, sure) -> None:  # type: ignore[no-untyped-def]
    missing = {"rank": 2, "host": "10.0.0.9", "pid": 7, "status": status}
    path = write_ras(tmp_path / "ras.json", [ras_rank(0), ras_rank(1)], [missing])
    (found,) = answer_of(path).findings
    assert (found.kind, found.ranks, found.confidence) == ("rank-gone", (2,), sure)
    assert what in found.summary
    assert found.evidence == ("rank 2 is process 7 on 10.0.0.9",)


def test_errors_of_a_rank_are_told(tmp_path: Path) -> None:
    path = write_ras(tmp_path / "ras.json", [ras_rank(0), ras_rank(1, async_error=6)])
    (found,) = answer_of(path).findings
    assert (found.kind, found.ranks) == ("communicator-error", (1,))
    assert "asynchronous error 6" in found.evidence[0]


def test_a_healthy_job_has_no_finding(tmp_path: Path) -> None:
    answer = answer_of(write_ras(tmp_path / "ras.json", [ras_rank(0), ras_rank(1)]))
    assert answer.verdict == "nothing"
    assert "all made the same number of calls" in answer.headline


def test_half_an_answer_is_refused(tmp_path: Path) -> None:
    path = write_ras(tmp_path / "ras.json", [ras_rank(0), ras_rank(1)])
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(TraceFormatError, match="damaged or cut off"):
        open_trace(path)


def test_an_answer_for_people_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "ras.txt"
    path.write_text("NCCL version 2.28.9 compiled with CUDA 12.8\n\nJob summary\n===========\n")
    with pytest.raises(TraceFormatError, match="ncclras -f json"):
        open_trace(path)


@pytest.mark.parametrize("key", ["nsys", "rocpd", "flight_recorder", "nccl_inspector", "nccl_ras"])
@pytest.mark.parametrize("said", [5, {}, {"rank": "x", "ranks": 5, "communicators": [1]}])
def test_a_trace_that_only_says_so_opens_all_the_same(tmp_path: Path, key: str, said) -> None:  # type: ignore[no-untyped-def]
    path = write(tmp_path / "t.json", event("X", 5, dur=2), **{key: said})
    trace = open_trace(path)
    assert len(trace.slices) == 1
    assert why(trace, job_metadata_of(trace)).verdict == "incomplete"
