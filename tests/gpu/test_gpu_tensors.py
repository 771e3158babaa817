"""Collectives of Python on tensors in a GPU's memory, on the fake of tests/fake_gpu."""

import gc
import json
import os
import subprocess
import sys
from functools import partial

import ml_dtypes
import numpy as np
import pytest

from hvdtune import recording
from hvdtune.core.elastic.state import ObjectState
from hvdtune.core.rank import collectives, objects, runtime
from hvdtune.core.rank.collectives import ReduceOp, Reduction, complete, poll, synchronize
from hvdtune.core.rank.in_flight import Batch
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import CollectiveError, UsageError
from hvdtune.timeline import open_trace
from tests.gpu import fake_device
from tests.gpu.fake_device import ADAPTER, Driver, FakeTensor
from tests.parallel.ranks import Server, run

pytestmark = pytest.mark.slow  # compiles the fake
SUM = Reduction(ReduceOp.SUM)
FLOAT8 = np.dtype(ml_dtypes.float8_e5m2)
SERVER = Server(FAKE_GPU_KERNELS=str(fake_device.KERNELS))


@pytest.fixture(scope="module", autouse=True)
def fake_libraries():
    fake_device.build()


def on_gpus(body, size=2):
    libraries = {"cuda_library": str(fake_device.CUDA), "nccl_library": str(fake_device.NCCL)}
    return run(body, size, forked_from=SERVER, gpu_operations="nccl", **libraries)


def reduced(driver, values, **more):
    tensor = FakeTensor.of(driver, values)
    return complete(
        collectives.allreduce_async(ADAPTER, [tensor], None, None, SUM, grouped=False, **more)
    )


def every_collective():
    driver, rank = Driver(runtime.rank()), runtime.rank()
    mine = np.arange(6.0, dtype=np.float32).reshape(2, 3) + rank
    total = reduced(driver, mine).numpy()
    rows = FakeTensor.of(driver, np.full((rank + 1, 2), rank, np.int64))
    gathered = complete(collectives.allgather_async(ADAPTER, [rows], None, grouped=False)).numpy()
    root = FakeTensor.of(driver, np.array([float(rank)]))
    given = complete(collectives.broadcast_async(ADAPTER, root, None, 1, None)).numpy()
    part = collectives.reducescatter_async(
        ADAPTER, [FakeTensor.of(driver, np.ones((3, 2)))], None, SUM, grouped=False
    )
    kept = complete(part).numpy()
    sent, counts = complete(
        collectives.alltoall_async(ADAPTER, FakeTensor.of(driver, np.arange(2)), [1, 1], None)
    )
    small = FakeTensor.of(driver, np.full((rank + 1, 2), rank + 1, FLOAT8))
    packed = complete(collectives.allgather_async(ADAPTER, [small], None, grouped=False)).numpy()
    with pytest.raises(UsageError, match="float8_e5m2 cannot be reduced"):
        reduced(driver, np.ones(3, FLOAT8))
    assert driver.violations() == ""
    assert packed.dtype == FLOAT8
    moved = packed.astype(int).tolist()
    return total, gathered, given, kept, sent.numpy(), counts, moved


def test_every_collective_takes_and_returns_tensors_on_a_gpu():
    ranks = on_gpus(every_collective)
    for rank, (total, gathered, given, kept, sent, counts, moved) in enumerate(ranks):
        assert np.array_equal(total, 2 * np.arange(6.0).reshape(2, 3) + 1)
        assert gathered.tolist() == [[0, 0], [1, 1], [1, 1]]
        assert given.tolist() == [1.0]
        assert kept.tolist() == [[2.0, 2.0]] * (2 - rank)
        assert (sent.tolist(), counts) == ([rank, rank], [1, 1])
        assert moved == [[1, 1], [2, 2], [2, 2]]


def the_stream_waits():
    driver = Driver(runtime.rank())
    reduced(driver, np.ones(3))  # the communicator is there before streams stand still
    tensor = FakeTensor.of(driver, np.ones(1000))
    tensor.numpy()
    driver.pause(True)
    handle = collectives.allreduce_async(ADAPTER, [tensor], [tensor], "x", SUM, grouped=False)
    batch = PROCESS.pending[handle].batch
    output = synchronize(handle)
    assert not batch.has_ended()
    address, held = tensor.address, any(owner is tensor for owner in batch.owners)
    del tensor, output
    gc.collect()
    driver.pause(False)
    while not batch.has_ended():
        pass
    reduced(driver, np.ones(3))  # lets go of what has ended
    assert driver.violations() == ""
    return held, address != 0, batch.owners, batch in PROCESS.in_flight


def test_the_stream_waits_and_not_the_host_and_memory_is_kept_until_its_event():
    assert on_gpus(the_stream_waits) == [(True, True, [], False)] * 2


def recorded_sums(path):
    driver = Driver(runtime.rank())
    recording.start_timeline(path)
    for _ in range(40):
        reduced(driver, np.ones(1000)).numpy()
    recording.stop_timeline()
    return driver.violations()


def test_a_trace_says_what_each_gpus_stream_waits_for(tmp_path):
    assert on_gpus(partial(recorded_sums, tmp_path / "trace.json")) == ["", ""]
    events = open_trace(tmp_path / "trace.json").events
    buckets = events[events["kind"] == "BUCKET"].set_index(["rank", "bucket"])
    waits = events[events["kind"] == "STREAM_WAIT"]
    assert set(waits["rank"]) == {0, 1}
    assert (waits["end_ns"] > waits["begin_ns"]).any()
    # It ends with its bucket; a microsecond is lost in the file.
    ends = buckets.loc[list(zip(waits["rank"], waits["bucket"], strict=True)), "end_ns"]
    assert np.abs(waits["end_ns"].to_numpy() - ends.to_numpy()).max() <= 1000
    assert set(events.loc[events["kind"] == "ENQUEUE_WAIT", "rank"]) == {0, 1}


def commit_of_what_a_failure_has_spoilt():
    driver = Driver(runtime.rank())
    reduced(driver, np.ones(3))
    state = ObjectState(objects.broadcast_object, runtime.rank, step=0)
    state.commit()
    driver.set_faults("async-error rank=1 op=2 code=1")  # as its GPU comes to the operation
    driver.pause(True)
    tensor = FakeTensor.of(driver, np.ones(3))
    batch = Batch()
    own = collectives.prepare_allreduce(ADAPTER, [tensor], [tensor], "spoilt", SUM)
    batch.add(own.request, own.inputs, own.outputs, own.owners, own.ready, own.gpu)
    batch.submit(PROCESS.native())
    batch.finish()  # it is on the stream, which is all that the host waits for
    state.step = 1
    driver.pause(False)
    with pytest.raises(CollectiveError) as failure:
        state.commit()
    state.restore()
    return state.step, failure.value.rank


def test_a_commit_keeps_nothing_that_an_operation_under_way_may_spoil():
    for step, failed in on_gpus(commit_of_what_a_failure_has_spoilt):
        assert (step, failed) == (0, 1)


def refusals():
    driver = Driver(runtime.rank())
    reduced(driver, np.ones(3))
    tensor = FakeTensor.of(driver, np.ones(3))
    texts = []
    driver.begin_capture()
    with pytest.raises(UsageError) as captured:
        collectives.allreduce_async(ADAPTER, [tensor], [tensor], "graph", SUM)
    driver.end_capture()
    texts.append(str(captured.value))
    other = FakeTensor.of(driver, np.ones(3))
    other.driver = Driver(runtime.rank())
    with pytest.raises(UsageError) as mixed:
        collectives.allreduce_async(ADAPTER, [tensor, other], None, "mixed", SUM)
    texts.append(str(mixed.value))
    handle = collectives.allreduce_async(ADAPTER, [tensor], [tensor], "graph", SUM)
    synchronize(handle)
    with pytest.raises(UsageError, match="unknown, or was synchronized before"):
        poll(handle)
    return texts


def test_what_cannot_be_on_a_gpu_is_refused_with_a_sentence():
    for captured, mixed in on_gpus(refusals):
        assert (
            'tensor "allreduce.graph": its stream is being captured into a CUDA graph' in captured
        )
        assert "or on one GPU and made on one stream" in mixed


def share_a_gpu():
    with pytest.raises(CollectiveError) as caught:
        reduced(Driver(0), np.ones(3))
    return str(caught.value)


def test_ranks_that_share_a_gpu_are_told_what_to_do():
    for text in on_gpus(share_a_gpu):
        assert "Duplicate GPU detected" in text
        assert "torch.cuda.set_device(hvd.local_rank())" in text


def carries_gpu_tensors(variables):
    os.environ.update(variables)  # as scripts do once they know their local rank
    return PROCESS.has_gpu_operations()


@pytest.mark.parametrize(
    ("variables", "carried"),
    [
        ({"FAKE_GPU_DEVICES": "2"}, True),
        ({"FAKE_GPU_DEVICES": "1"}, False),  # which NCCL would refuse
        ({"FAKE_GPU_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "GPU-of-its-own"}, True),
        ({"FAKE_GPU_DEVICES": "0"}, False),
    ],
)
def test_nccl_is_chosen_by_itself_where_each_rank_has_a_gpu(variables, carried):
    libraries = {"cuda_library": str(fake_device.CUDA), "nccl_library": str(fake_device.NCCL)}
    ranks = run(
        carries_gpu_tensors,
        2,
        variables,
        forked_from=SERVER,
        gpu_operations="auto",
        **libraries,
    )
    assert ranks == [carried] * 2


def test_doctor_tells_a_driver_without_a_gpu_from_one_that_is_missing():
    environ = os.environ | {
        "FAKE_GPU_DEVICES": "0",
        "HVDTUNE_CUDA_LIBRARY": str(fake_device.CUDA),
        "HVDTUNE_NCCL_LIBRARY": str(fake_device.NCCL),
    }
    asked = [sys.executable, "-m", "hvdtune", "doctor", "--json"]
    told = subprocess.run(asked, env=environ, capture_output=True, text=True, check=True).stdout
    findings = {row["name"]: row for row in json.loads(told)}
    assert findings["CUDA driver"]["state"] == "ok"
    assert findings["CUDA driver"]["detail"].endswith(", no GPU")
    assert findings["GPU operations"]["detail"].endswith("this process sees no GPU")
