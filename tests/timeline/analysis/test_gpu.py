"""What GPUs do, in traces as torch.profiler writes them."""

import numpy as np
import pytest

from hvdtune.cli.app import main
from hvdtune.timeline import open_trace
from hvdtune.timeline.analysis.findings import why
from hvdtune.timeline.analysis.metrics import breakdown, gpu, overlap
from hvdtune.timeline.analysis.phases import summary
from hvdtune.timeline.model.duplicate_ranks import files_of_ranks, in_two_files
from hvdtune.timeline.model.job_metadata import job_metadata_of
from hvdtune.timeline.reading.opening import open_light
from tests.kit import gpu_recordings
from tests.kit.gpu_recordings import on_gpu
from tests.kit.traces import event, write

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def recorded(folder, *events, rank=0, size=2, steps=True, name="trace.json"):
    marks = [event("X", 0, "ProfilerStep#3", dur=100, cat="user_annotation", pid=1, tid=1)] * steps
    info = {"rank": rank, "world_size": size, "backend": "nccl"}
    return write(folder / name, *marks, *events, distributedInfo=info)


def table_of(trace):
    return gpu.table(trace, breakdown.steady_steps(trace))


def whole_steps(steps):
    """The first begins with its mark, and the last ends with its last wait."""
    return steps[~steps["step"].isin([steps["step"].min(), steps["step"].max()])]


# A step of 100 us: kernels 10 to 40, NCCL's 30 to 60 on another stream, a copy 70 to 80.
STEP = [
    on_gpu("gemm", 10, 20),
    on_gpu("gemm", 25, 15),
    on_gpu(NCCL, 30, 30, stream=20),
    on_gpu("nccl:all_reduce", 30, 30, stream=20, category="gpu_user_annotation"),
    event("X", 28, "nccl:all_reduce", dur=1, cat="user_annotation", pid=1, tid=1),
    on_gpu("Memcpy HtoD", 70, 10, category="gpu_memcpy"),
    on_gpu("gemm", 150, 50),  # after the last step
]


@pytest.mark.parametrize("read", [open_trace, open_light])
def test_time_of_streams_is_united_and_kernels_of_nccl_told_apart(tmp_path, read):
    (row,) = table_of(read(recorded(tmp_path, *STEP))).to_dict("records")
    assert row == pytest.approx(
        {
            "rank": 0,
            "window_ms": 0.1,
            "kernels_percent": 30,
            "communication_percent": 30,
            "alone_percent": 20,
            "copies_percent": 10,
            "idle_percent": 40,
        }
    )


def test_a_collective_of_nccl_counts_once_and_is_its_kernel(tmp_path):
    events = open_trace(recorded(tmp_path, *STEP)).events
    (begin,) = events.loc[events["kind"] == "ALLREDUCE", "begin_ns"]
    assert begin == 30_000


def test_the_idlest_gpu_comes_first_and_the_sentence_is_about_it(tmp_path):
    recorded(tmp_path, *STEP, name="a.json")
    recorded(tmp_path, on_gpu("gemm", 0, 10), rank=1, name="b.json")
    table = table_of(open_trace(tmp_path))
    assert table[["rank", "idle_percent"]].to_numpy().tolist() == [[1, 90], [0, 40]]
    assert "The GPU of rank 1 is idle in 90 % of 0.1 ms" in gpu.sentence(table)
    assert "30 % of the time of rank 0, in 20 % with no other kernel" in gpu.sentence(table)


def test_without_steps_the_gpus_own_slices_say_from_when_to_when(tmp_path):
    path = recorded(tmp_path, on_gpu("a", 50, 10), on_gpu("b", 80, 20), steps=False)
    (row,) = table_of(open_trace(path)).to_dict("records")
    assert (row["window_ms"], row["idle_percent"]) == (0.05, pytest.approx(40))


def test_kernels_are_summed_by_name(tmp_path):
    rows = gpu.kernels(open_trace(recorded(tmp_path, *STEP))).to_dict("records")
    assert rows[0]["kernel"] == "gemm"
    assert (rows[0]["count"], rows[0]["total_ms"]) == (3, pytest.approx(0.085))


def test_a_trace_without_a_gpu_has_no_rows(tmp_path):
    trace = open_trace(recorded(tmp_path, event("X", 5, "aten::mm", dur=5, cat="cpu_op")))
    assert table_of(trace).empty and gpu.kernels(trace).empty
    assert gpu.sentence(table_of(trace)) == "This trace records no GPU."


def test_a_recording_that_says_no_rank_has_its_collectives_too(tmp_path):
    path = write(tmp_path / "t.json", *STEP, deviceProperties=[])
    (row,) = table_of(open_trace(path)).to_dict("records")
    assert row["communication_percent"] > 0


def training(folder, kernels, lasts_us, ranks=2, communicates=True):
    """Steps of 10 ms, in each of which a GPU runs so many kernels, evenly spread."""
    for rank in range(ranks):
        events: list[dict] = []
        for step in range(14):
            begin = 10_000 * step
            mark = event("X", begin, f"ProfilerStep#{step + 3}", dur=10_000, cat="user_annotation")
            events.append({**mark, "pid": 1, "tid": 1})
            call = event("X", begin + 5000, "nccl:all_reduce", dur=10, cat="user_annotation")
            events += [
                {**call, "pid": 1, "tid": 1},
                on_gpu(NCCL, begin + 5010, 400, stream=20),
                on_gpu("nccl:all_reduce", begin + 5010, 400, 20, category="gpu_user_annotation"),
            ] * communicates
            apart_us = 9500 / kernels
            events += [
                on_gpu("gemm", begin + round(apart_us * at), lasts_us) for at in range(kernels)
            ]
        recorded(folder, *events, rank=rank, size=ranks, steps=False, name=f"rank{rank}.json")
    trace = open_trace(folder)
    return why(trace, job_metadata_of(trace))


@pytest.mark.parametrize(
    ("kernels", "lasts_us", "summary", "remedy"),
    [
        (300, 10, "each kernel ends before the next one is launched", "CUDA graphs"),
        (5, 1000, "the GPU waits for its host", "DataLoader workers"),
    ],
)
def test_gpus_that_are_idle_in_every_step_are_a_finding(
    tmp_path, kernels, lasts_us, summary, remedy
):
    (finding,) = training(tmp_path, kernels, lasts_us).findings
    assert finding.kind == "idle-gpus"
    assert summary in finding.summary and remedy in finding.remedy
    assert 40 < finding.cost.percent < 80


def test_a_training_in_one_process_is_answered_by_what_its_gpu_does(tmp_path):
    answer = training(tmp_path, 300, 10, ranks=1, communicates=False)
    assert [finding.kind for finding in answer.findings] == ["idle-gpus"]
    assert "only GPU activity was checked" in answer.notes[0]


def test_gpus_that_compute_nearly_all_of_the_time_are_none(tmp_path):
    assert training(tmp_path, 10, 900).verdict == "nothing"


@pytest.mark.parametrize("read", [open_trace, open_light])
@pytest.mark.parametrize("recorded_by", gpu_recordings.RECORDED_BY)
def test_communication_that_no_kernel_hides_is_exposed_though_the_host_does_not_wait(
    tmp_path, recorded_by, read
):
    trace = read(gpu_recordings.RECORDED_BY[recorded_by](tmp_path))
    steps = breakdown.steady_steps(trace)
    whole = whole_steps(steps)
    each = whole.groupby("rank")[["communicate_ms", "exposed_ms", "blocked_ms", "step_ms"]].mean()
    assert each.to_numpy() == pytest.approx(np.array([[4, 3, 3, 10], [4, 3, 3, 10]]))
    assert overlap.table(whole)["hidden_percent"].tolist() == pytest.approx([25, 25])
    shown = gpu.table(trace, whole)
    assert shown["alone_percent"].tolist() == pytest.approx([30, 30])
    assert shown["idle_percent"].tolist() == pytest.approx([20, 20])
    exposed = why(trace, job_metadata_of(trace)).findings[0]
    assert exposed.kind == "exposed-communication"
    assert exposed.cost.mean == pytest.approx(steps["exposed_ms"].mean())
    assert "the GPUs of all ranks" in exposed.summary


@pytest.mark.parametrize("read", [open_trace, open_light])
def test_what_a_gpus_stream_waits_for_is_exposed_where_no_kernels_are_recorded(tmp_path, read):
    trace = read(gpu_recordings.write_timelines(tmp_path))
    whole = whole_steps(breakdown.steady_steps(trace))
    each = whole.groupby("rank")[["communicate_ms", "exposed_ms", "blocked_ms", "step_ms"]].mean()
    assert each.to_numpy() == pytest.approx(np.array([[4, 3, 3, 10], [4, 3, 3, 10]]))
    assert overlap.table(whole)["hidden_percent"].tolist() == pytest.approx([25, 25])
    answer = why(trace, job_metadata_of(trace))
    (exposed,) = answer.findings
    assert exposed.kind == "exposed-communication"
    unseen = breakdown.note_of_unseen_gpus(trace.events, whole)
    assert unseen.startswith("GPU kernels are not recorded") and unseen in answer.notes


def test_a_comparison_says_that_what_gpus_compute_is_not_recorded(tmp_path, capsys):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        gpu_recordings.write_timelines(tmp_path / name)
    with pytest.raises(SystemExit) as ended:
        main(["timeline", "diff", str(tmp_path / "a"), str(tmp_path / "b")])
    assert ended.value.code == 0
    assert "GPU kernels are not recorded" in capsys.readouterr().err


def test_a_stream_that_comes_to_its_wait_late_waits_for_nothing(tmp_path):
    """All is hidden: without the waits of 0 ns, waits would be inferred from announcements."""
    trace = open_trace(gpu_recordings.write_timelines(tmp_path, waits_from_ms=8))
    steps = breakdown.steady_steps(trace)
    assert steps["blocked_ms"].tolist() == pytest.approx([0.0] * len(steps))
    assert overlap.table(steps)["hidden_percent"].tolist() == pytest.approx([100, 100])
    assert why(trace, job_metadata_of(trace)).verdict == "unexplained"


def test_steps_of_a_script_that_is_ahead_of_its_gpu_take_as_long_as_the_gpu_does(tmp_path):
    trace = open_trace(gpu_recordings.write_timelines(tmp_path, marked_every_ms=1))
    steps = breakdown.steady_steps(trace)
    assert steps["step_ms"].tolist() == pytest.approx([10.0] * len(steps))
    assert steps["exposed_ms"].tolist() == pytest.approx([3.0] * len(steps))
    assert summary(trace)["step_ms_p50"] == pytest.approx(10.0)


def test_steps_whose_buckets_do_not_end_in_the_recording_are_left_out(tmp_path):
    trace = open_trace(gpu_recordings.write_timelines(tmp_path, ended=12))
    assert breakdown.steady_steps(trace)["step"].max() == 11


def test_where_the_stream_of_one_rank_is_not_recorded_nobody_is_blamed(tmp_path):
    trace = open_trace(gpu_recordings.write_timelines(tmp_path, seen=1))
    answer = why(trace, job_metadata_of(trace))
    assert answer.missing == ("the trace does not record the waits of the GPU stream of rank 1",)


def test_what_a_script_lacks_of_processors_is_no_part_of_what_gpus_communicate(tmp_path):
    trace = open_trace(gpu_recordings.write_timelines(tmp_path, lacks_us=1500))
    answer = why(trace, job_metadata_of(trace))
    exposed, lacking = answer.findings
    assert (exposed.kind, lacking.kind) == ("exposed-communication", "oversubscribed")
    assert exposed.cost.mean == pytest.approx(3.0)
    assert lacking.cost.mean == pytest.approx(1.5)
    assert lacking.confidence == "low"


def test_both_recordings_of_a_rank_are_no_two_files_of_it(tmp_path):
    merged = gpu_recordings.write_both(tmp_path)
    trace = open_trace(file for file in tmp_path.iterdir() if file != merged)
    assert in_two_files(files_of_ranks(trace)) == []
    assert open_trace(merged).events.equals(trace.events)


@pytest.mark.parametrize("recorded_by", gpu_recordings.RECORDED_BY)
def test_a_gpu_that_is_idle_does_not_count_as_computing(recorded_by, tmp_path):
    trace = open_trace(gpu_recordings.RECORDED_BY[recorded_by](tmp_path))
    steps = whole_steps(breakdown.steady_steps(trace))
    assert steps["compute_ms"].to_numpy() == pytest.approx(5.0, abs=0.01)
    assert steps["gpu_idle_ms"].to_numpy() == pytest.approx(2.0, abs=0.01)
    assert "50 % computing, 20 % with an idle GPU, 30 % waiting" in breakdown.sentence(steps)


def test_a_rank_whose_gpu_is_idle_for_longer_does_not_compute_longer(tmp_path):
    """Both compute for 30 of 100 us; rank 1's NCCL kernel begins 20 us later."""
    for rank, sends in enumerate((50, 70)):
        events = []
        for step in range(12):
            at = 100 * step
            mark = event("X", at, f"ProfilerStep#{step + 3}", dur=100, cat="user_annotation")
            call = event("X", at + 45, "nccl:all_reduce", dur=1, cat="user_annotation")
            events += [{**mark, "pid": 1, "tid": 1}, {**call, "pid": 1, "tid": 1}]
            events += [on_gpu("gemm", at, 30), on_gpu(NCCL, at + sends, 80 - sends, stream=20)]
        recorded(tmp_path, *events, rank=rank, steps=False, name=f"rank{rank}.json")
    trace = open_trace(tmp_path)
    (late,) = (f for f in why(trace, job_metadata_of(trace)).findings if f.ranks == (1,))
    assert late.kind == "slow-elsewhere"
    assert late.evidence[-2] == "its GPU is idle meanwhile: rank 0: 0.04, rank 1: 0.06 ms per step"
