"""Findings from traces of other programs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hvdtune.timeline import open_trace
from hvdtune.timeline.analysis.findings import why
from hvdtune.timeline.analysis.metrics import bandwidth, breakdown, fusion, stragglers, tensors
from hvdtune.timeline.model.job_metadata import job_metadata_of
from tests.kit.traces import DATA, KINETO, event, write

STEP_US = 40_000


def test_ranks_of_torch_profiler_are_compared() -> None:
    trace = open_trace(KINETO)
    kinds = set(trace.events["kind"].astype(str))
    assert {"STEP", "NEGOTIATE", "BUCKET", "ALLREDUCE"} <= kinds
    steps = breakdown.table(trace.events)
    assert set(steps["rank"]) == {0, 1}
    assert (steps["blocked_ms"] <= steps["step_ms"]).all()
    assert stragglers.busy_times(steps).shape[1] == 2


def test_one_rank_of_several_is_incomplete() -> None:
    (first, *_) = sorted(KINETO.glob("*rank0*"))
    trace = open_trace(first)
    answer = why(trace, job_metadata_of(trace))
    assert (answer.verdict, answer.findings) == ("incomplete", ())
    assert "events of rank 1 are missing" in "; ".join(answer.missing)


@pytest.mark.parametrize(
    ("category", "said"),
    [
        (
            "",
            "unknown trace producer: slices are shown, but collectives and steps are not "
            "recognized",
        ),
        ("cpu_op", "no steps or collectives in its 1 slice"),
    ],
    ids=["unknown program", "torch"],
)
def test_slices_without_a_job_are_not_called_no_events(
    tmp_path: Path, category: str, said: str
) -> None:
    trace = open_trace(
        write(tmp_path / "trace.json", event("X", 1, "aten::mm", dur=2, cat=category))
    )
    assert "; ".join(why(trace, job_metadata_of(trace)).missing) == said


FOLDERS = ["horovod", "sagemaker-debugger", "speedscope"]


@pytest.mark.parametrize(
    "path",
    [path for folder in FOLDERS for path in sorted((DATA / folder).iterdir())],
    ids=lambda path: path.name,
)
def test_formats_that_lack_the_evidence_name_nobody(path: Path) -> None:
    trace = open_trace(path)
    answer = why(trace, job_metadata_of(trace))
    assert (answer.verdict, answer.findings) == ("incomplete", ())
    assert all(len(text) > 20 for text in answer.missing)


def test_ranks_of_torch_profiler_wait_for_the_one_that_begins_a_collective_last() -> None:
    trace = open_trace(KINETO)
    steps = breakdown.steady(breakdown.table(trace.events, from_waits=True))
    waited = stragglers.table(steps).set_index("rank")["waited_ms_per_step"]
    assert (waited > 0).all()
    waits = stragglers.waits_for(trace, steps)
    assert waits.sum(axis=1).to_dict() == pytest.approx(waited.to_dict())
    assert "for other ranks" in breakdown.sentence(steps)


def test_what_torch_profiler_does_not_record_is_not_called_nothing() -> None:
    trace = open_trace(KINETO)
    assert trace.meta["unnamed_tensors"]
    assert tensors.table(trace.events)["bytes"].isna().all()
    assert "sizes are not recorded" in tensors.sentence(tensors.table(trace.events))
    buckets = fusion.table(trace.events)
    assert buckets[["bytes_p50", "bytes_max"]].isna().all(axis=None)


def test_a_collective_of_torch_profiler_is_under_way_when_the_last_rank_has_begun_it() -> None:
    trace = open_trace(KINETO)
    lasted_us = bandwidth.bucket_table(trace.events)["lasted_ns"] / 1000
    (row,) = tensors.tensor_table(trace).to_dict("records")
    assert row["communicate_p50_us"] == pytest.approx(lasted_us.median())
    assert row["communicate_p95_us"] == pytest.approx(lasted_us.quantile(0.95))
    # With the wait for the last rank it is what is done from a rank's announcement on.
    of_kind = {kind: own.set_index(["rank", "seq"]) for kind, own in trace.events.groupby("kind")}
    whole_us = (of_kind["ALLREDUCE"]["end_ns"] - of_kind["NEGOTIATE"]["begin_ns"]) / 1000
    assert row["communicate_p50_us"] < row["done_p50_us"] == pytest.approx(whole_us.median())


def test_when_collectives_of_a_rank_alone_are_under_way_is_not_known() -> None:
    (first, *_) = sorted(KINETO.glob("*rank0*"))
    (row,) = tensors.tensor_table(open_trace(first)).to_dict("records")
    assert np.isnan(row["communicate_p50_us"]) and np.isnan(row["communicate_p95_us"])
    assert row["done_p50_us"] > 0


def test_what_no_model_says_is_not_called_computed_with_one() -> None:
    trace = open_trace(KINETO)
    (found,) = why(trace, job_metadata_of(trace)).findings
    assert (found.kind, found.confidence) == ("exposed-communication", "medium")
    assert found.basis == "likely, but not certain"
    assert "negotiation" not in found.evidence[0]
    assert replace(found, kind="network").basis == "computed with a model of communication"


def write_ddp(folder: Path, steps: int) -> None:
    """Recordings of DDP over gloo, which carries out two of three buckets at a time.

    Rank 1 waits 20 ms for its DataLoader. Rank 0 launches all buckets long before that.
    """
    for rank in range(2):
        rows = []
        for step in range(steps):
            at = step * STEP_US
            loaded = at + (20_000 if rank else 100)
            rows += [
                event("X", at, f"ProfilerStep#{step + 4}", dur=STEP_US, cat="user_annotation"),
                event("X", at, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
                | {"dur": loaded - at, "cat": "user_annotation"},
                event("X", loaded, "aten::mm", dur=2_000, cat="cpu_op"),
            ]
            begin = [loaded + 2_000, loaded + 2_100, at + 24_000]
            for bucket, end in enumerate([at + 24_000, at + 25_000, at + 26_000]):
                launch = event("X", loaded + 2_000 + 50 * bucket, "c10d::allreduce_", cat="cpu_op")
                carried = event("X", begin[bucket], "gloo:all_reduce", cat="user_annotation")
                rows += [launch | {"dur": 10}]
                rows += [carried | {"dur": end - begin[bucket], "tid": 3 + bucket % 2}]
        info = {"rank": rank, "world_size": 2, "backend": "gloo"}
        write(folder / f"rank{rank}.json", *rows, distributedInfo=info, baseTimeNanoseconds=0)


def test_a_slow_loader_is_found_in_three_steps_of_ddp_over_gloo(tmp_path: Path) -> None:
    write_ddp(tmp_path, 3)
    trace = open_trace(tmp_path)
    (found, *_) = why(trace, job_metadata_of(trace)).findings
    assert (found.kind, found.ranks, found.confidence) == ("slow-input", (1,), "medium")
    assert found.cost.mean == pytest.approx(19.9, abs=0.2)
    steps = breakdown.table(trace.events)
    waited = steps.set_index("rank")["blocked_ms"]
    # From the launch of the last bucket to the end of the last one.
    assert waited[0].tolist() == pytest.approx([26.0 - 2.2] * 3)
    assert waited[1].tolist() == pytest.approx([26.0 - 22.1] * 3)
