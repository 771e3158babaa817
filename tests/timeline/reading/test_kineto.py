import numpy as np
import pytest

from hvdtune.timeline import load
from tests.kit.traces import KINETO, event, write


@pytest.fixture(scope="module")
def model():
    return load(KINETO)


def gpu_trace(tmp_path, rank=0, **more):
    said = {"dtype": "Float", "In msg nelems": 1000, "Process Group Name": "0"}
    events = [
        event("X", 10, "ProfilerStep#4", dur=100, cat="user_annotation"),
        event("X", 20, "aten::mm", dur=5, cat="cpu_op"),
        event("X", 30, "sm90_gemm", dur=20, cat="kernel", pid=0, tid=7),
        event("X", 60, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", dur=30, cat="kernel", pid=0,
              tid=20, args=said),
        event("X", 60, "nccl:all_reduce", dur=30, cat="gpu_user_annotation", pid=0, tid=20),
        event("X", 95, "Memcpy HtoD", dur=3, cat="gpu_memcpy", pid=0, tid=7),
        event("X", 5, "enumerate(DataLoader)#_Single.__next__", dur=4, cat="user_annotation"),
    ]  # fmt: skip
    info = {"rank": rank, "world_size": 2, "backend": "nccl"}
    return write(tmp_path / f"r{rank}.json", *events, distributedInfo=info, deviceProperties=[],
                 host_name="h", **more)  # fmt: skip


def test_a_folder_of_ranks_is_one_trace_on_one_clock(model):
    assert set(model.slices["rank"]) == {0, 1}
    assert model.ranks == {r: {"host": "vm", "size": 2, "backend": "gloo"} for r in (0, 1)}
    assert model.origin_unix_ns == 1790857026000000000 + 4366344487583768
    assert model.warnings == []


def test_the_nth_collective_is_the_same_on_both_ranks(model):
    reduced = model.slices[model.slices["kind"] == "ALLREDUCE"]
    by_seq = reduced.pivot(index="seq", columns="rank", values=["begin_ns", "end_ns"])
    assert list(by_seq.index) == list(range(16))
    # No rank is done before the other has begun.
    assert (by_seq["end_ns"].min(axis=1) > by_seq["begin_ns"].max(axis=1)).all()


def test_steps_and_operators_have_their_kinds(model):
    steps = model.slices[model.slices["kind"] == "STEP"]
    assert sorted(steps.loc[steps["rank"] == 1, "seq"]) == list(range(8))
    # Of the operators of each rank, 16 launch a collective.
    assert (model.slices["kind"] == "COMPUTE").sum() == 2 * (2656 - 16)
    assert (model.slices["kind"] == "LAUNCH").sum() == 2 * 16


def test_times_are_exact_to_the_nanosecond(model):
    ends = model.slices.loc[model.slices["name"] == "Record Window End", "begin_ns"].to_numpy()
    first = 4366344487583768
    assert set(ends) == {4366346211656961 - first, 4366346172141890 - first}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ProfilerStep#4", {"kind": "STEP", "seq": 4}),
        ("aten::mm", {"kind": "COMPUTE"}),
        ("sm90_gemm", {"kind": "COMPUTE"}),
        (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
            {"kind": "ALLREDUCE", "bytes": 4000, "seq": 0, "process_set": 0},
        ),
        ("nccl:all_reduce", {"kind": ""}),
        ("Memcpy HtoD", {"kind": "COPY"}),
        ("enumerate(DataLoader)#_Single.__next__", {"kind": "INPUT"}),
    ],
)
def test_kernels_copies_and_input_have_their_kinds(tmp_path, name, values):
    slices = load(gpu_trace(tmp_path)).slices
    (row,) = slices[slices["name"] == name].to_dict("records")
    assert {column: row[column] for column in values} == values


def test_clocks_are_joined_by_the_base_times(tmp_path):
    gpu_trace(tmp_path, 0, baseTimeNanoseconds=10**18)
    gpu_trace(tmp_path, 1, baseTimeNanoseconds=10**18 + 7000)
    slices = load(tmp_path).slices
    begins = slices[slices["kind"] == "STEP"].set_index("rank")["begin_ns"]
    assert begins[1] - begins[0] == 7000
    assert np.array_equal(slices["begin_ns"], np.sort(slices["begin_ns"]))
