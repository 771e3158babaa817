"""TensorFlow's tensors in a GPU's memory, on the fake of tests/fake_gpu, which TensorFlow has as a
device here."""

import gc
import os
import signal

import numpy as np
import pytest
import tensorflow as tf

import hvdtune.tensorflow as hvd
from hvdtune.core.rank import collectives
from hvdtune.core.rank.collective_spec import ALLREDUCE
from hvdtune.core.rank.collectives import ReduceOp, Reduction
from hvdtune.core.rank.process_sets import global_process_set
from hvdtune.tensorflow import operations
from hvdtune.tensorflow.operations import ALONE, OperationBatch
from tests.gpu import fake_device, tensorflow_device
from tests.gpu.fake_device import Driver
from tests.parallel.bodies import Bodies
from tests.parallel.ranks import Server, run, start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # compiles the fake
SUM = Reduction(ReduceOp.SUM)
SERVER = Server(
    "hvdtune.tensorflow",
    FAKE_GPU_KERNELS=str(fake_device.KERNELS),
    LD_PRELOAD=str(tensorflow_device.STREAM_HANDLES),
)
LIBRARIES = {"cuda_library": str(fake_device.CUDA), "nccl_library": str(fake_device.NCCL)}
NCCL = {"forked_from": SERVER, "gpu_operations": "nccl", **LIBRARIES}
bodies = Bodies()


@pytest.fixture(scope="module", autouse=True)
def fake_libraries():
    tensorflow_device.build()


def run_bodies():
    tensorflow_device.plug_in(hvd.rank())
    driver = Driver(hvd.rank())
    values = bodies.run_all()
    return values | {"violations": driver.violations()}


@pytest.fixture(scope="module")
def said():
    """Return the results of every body on the two ranks."""
    ranks = run(run_bodies, 2, timeout_s=240.0, **NCCL)
    return {name: [values[name] for values in ranks] for name in ranks[0]}


def on_gpu(values, dtype=None):
    with tf.device("GPU:0"):
        return tf.identity(tf.constant(values, dtype))


def kinds(*tensors):
    """Where they are: {"GPU"} for instance."""
    return {tensor.device.split(":")[-2] for tensor in tensors}


@bodies
def eagerly():
    rank = hvd.rank()
    total = hvd.allreduce(on_gpu([1.0 + rank, 2.0]), op=hvd.Sum)
    mean, most = hvd.grouped_allreduce([on_gpu([2.0 * rank]), on_gpu([4.0, 6.0])], op=hvd.Average)
    whole = hvd.allreduce(on_gpu([rank, 7], tf.int64), op=hvd.Max)
    rows = hvd.allgather(on_gpu(np.full([rank + 1, 2], rank, np.float32)))
    sent = hvd.broadcast(on_gpu([float(rank)]), 1)
    part = hvd.reducescatter(on_gpu(np.ones([3, 2], np.float32)), op=hvd.Sum)
    received, counts = hvd.alltoall(on_gpu([10.0 * rank, 10.0 * rank + 1, 5.0]), [1, 2])
    results = total, mean, most, whole, rows, sent, part, received
    return kinds(*results), [each.numpy().tolist() for each in (*results, counts)]


def test_eager_operations_leave_tensors_on_the_gpu(said):
    for rank, (devices, values) in enumerate(said["eagerly"]):
        assert devices == {"GPU"}
        assert values == [
            [3.0, 4.0],
            [1.0],
            [4.0, 6.0],
            [1, 7],
            [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]],
            [1.0],
            [[2.0, 2.0]] * (2 - rank),
            [[0.0, 10.0], [1.0, 5.0, 11.0, 5.0]][rank],
            [[1, 1], [2, 2]][rank],
        ]


@bodies
def dtypes():
    given = {
        "int32": [1, 2],
        "uint8": [1, 2],
        "float16": [1.0, 2.0],
        "bfloat16": [1.0, 2.0],
        "float64": [1.0, 2.0],
    }
    reduced = {}
    for name, values in given.items():
        result = hvd.allreduce(on_gpu(values, name), op=hvd.Sum, postscale_factor=1.0)
        reduced[name] = (result.dtype.name, result.numpy().astype(float).tolist())
    return reduced


def test_dtypes(said):
    for reduced in said["dtypes"]:
        assert all(name == dtype for name, (dtype, _) in reduced.items())
        assert [values for _, values in reduced.values()] == [[2.0, 4.0]] * 5


@bodies
def empty():
    nothing = hvd.allreduce(on_gpu(np.ones([0, 3], np.float32)))
    rows = hvd.allgather(on_gpu(np.ones([hvd.rank(), 3], np.float32)))
    part = hvd.reducescatter(on_gpu(np.ones([1, 2], np.float32)), op=hvd.Sum)
    return nothing.shape.as_list(), rows.shape.as_list(), part.shape.as_list()


def test_tensors_without_elements(said):
    assert said["empty"] == [([0, 3], [1, 3], [1, 2]), ([0, 3], [1, 3], [0, 2])]


@bodies
def in_a_graph():
    @tf.function(autograph=False)
    def all_of_them(x, rows):
        total = hvd.allreduce(x, op=hvd.Sum, name="total")
        gathered = hvd.allgather(rows, name="gathered")
        again = hvd.broadcast(total, 0, name="again")
        received, counts = hvd.alltoall(x, [1, 1], name="received")
        return total, gathered, again, received, counts

    x = on_gpu([1.0, hvd.rank()])
    rows = on_gpu(np.full([hvd.rank() + 1], hvd.rank(), np.int64))
    results = [all_of_them(x, rows) for _ in range(3)][-1]
    return kinds(*results[:4]), [each.numpy().tolist() for each in results]


def test_graphs(said):
    for rank, (devices, values) in enumerate(said["in_a_graph"]):
        assert devices == {"GPU"}
        received = [[1.0, 1.0], [0.0, 1.0]][rank]
        assert values == [[2.0, 1.0], [0, 1, 1], [2.0, 1.0], received, [1, 1]]


@bodies
def training():
    """The models' arithmetic is the CPU's; gradients are reduced on the GPU."""
    with tf.device("CPU:0"):
        large = tf.Variable(tf.fill([1 << 20], 2.0))
        small = tf.Variable([1.0, 1.0])
    places = set()

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            factor = tf.cast(hvd.rank() + 1, tf.float32)
            loss = factor * (tf.reduce_sum(large) + tf.reduce_sum(small * small))
        tape = hvd.DistributedGradientTape(tape)
        gradients = tape.gradient(loss, [large, small])
        for node in tf.compat.v1.get_default_graph().get_operations():
            if node.type == "HvdtuneAllreduce":
                places.add(node.device)
        for variable, gradient in zip([large, small], gradients, strict=True):
            variable.assign_sub(0.25 * gradient)

    for _ in range(3):
        step()
    return places, large.numpy()[[0, -1]].tolist(), small.numpy().tolist()


def test_training(said):
    for places, large, small in said["training"]:
        assert places == {""}  # as TensorFlow places it
        assert large == [2.0 - 3 * 0.25 * 1.5] * 2
        assert small == [0.25**3] * 2


@bodies
def the_host_goes_on():
    driver = Driver(hvd.rank())
    reduce = tf.function(lambda x, y: hvd.grouped_allreduce([x, y], op=hvd.Sum, name="both"))
    gather = tf.function(lambda x: hvd.allgather(x, name="rows"))
    x, y = on_gpu(np.ones(1000, np.float32)), on_gpu(np.ones(10, np.float32))
    reduce(x, y), gather(x)  # traced, and the communicator is there
    driver.pause(True)
    eager = hvd.allreduce(x, op=hvd.Sum)
    both = reduce(x, y)
    gathered = gather(y)
    again = hvd.allreduce(eager, op=hvd.Sum)
    before = bytes_in_use()
    del x, y, eager
    gc.collect()
    kept = bytes_in_use() == before
    driver.pause(False)
    values = [float(each.numpy().sum()) for each in (again, *both, gathered)]
    while bytes_in_use() > before - 2 * 4000:  # x and eager
        pass
    return values, kept


def bytes_in_use():
    return tf.config.experimental.get_memory_info("GPU:0")["current"]


def test_the_stream_waits_and_not_the_host_and_memory_is_kept(said):
    assert said["the_host_goes_on"] == [([4000.0, 2000.0, 20.0, 20.0], True)] * 2


def _reduced(tensor, name, batch):
    return operations.run(ALLREDUCE, [tensor], SUM, name, global_process_set, batch)[0]


@bodies
def before_all_have_started():
    """Rank 1's GPU stands still until rank 0 has started both operations, the second of which waits
    for TensorFlow's stream, as the rest of a backward pass does."""
    x, y = on_gpu([1.0]), on_gpu([2.0])
    if hvd.rank() == 1:
        driver = Driver(1)
        driver.pause(True)
        first = _reduced(x, "first", ALONE)
        for _ in range(2):
            collectives.barrier()
        second = _reduced(y, "second", ALONE)
        driver.pause(False)
        return [first.numpy().item(), second.numpy().item()]

    def start_second(number):
        for _ in range(2):  # the first operation has been enqueued meanwhile
            collectives.barrier()
        return number

    @tf.function(autograph=False)
    def both(x, y, number):
        batch = OperationBatch.of(2)
        first = _reduced(x, "first", batch)
        with tf.device("CPU:0"):
            called = tf.numpy_function(start_second, [tf.identity(number)], tf.float32)
        with tf.control_dependencies([called]):
            y = tf.identity(y)
        return first, _reduced(y, "second", batch)

    with tf.device("CPU:0"):
        number = tf.constant(3.0)
    return [each.numpy().item() for each in both(x, y, number)]


def test_a_stream_waits_for_a_backward_pass_when_all_of_it_has_been_started(said):
    assert said["before_all_have_started"] == [[2.0, 4.0]] * 2


@bodies
def one_after_the_other():
    @tf.function(autograph=False)
    def both(x):
        batch = OperationBatch.of(2)
        return _reduced(_reduced(x, "inner", batch) + 1.0, "outer", batch)

    return both(on_gpu([1.0])).numpy().item()


def test_a_batch_whose_operations_depend_on_each_other_ends(said):
    assert said["one_after_the_other"] == [6.0] * 2


@bodies
def through_the_hosts_memory():
    adasum = hvd.allreduce(on_gpu([1.0, 0.0]), op=hvd.Adasum)
    with tf.device("CPU:0"):
        chosen = hvd.allreduce(on_gpu([1.0]), op=hvd.Sum)
    return kinds(adasum, chosen), adasum.numpy().tolist(), chosen.numpy().tolist()


def test_adasum_and_what_is_placed_on_the_cpu(said):
    assert said["through_the_hosts_memory"] == [({"CPU"}, [1.0, 0.0], [2.0])] * 2


@bodies
def disagreeing():
    with (
        tf.device(["GPU:0", "CPU:0"][hvd.rank()]),
        pytest.raises(tf.errors.FailedPreconditionError) as caught,
    ):
        hvd.allreduce(tf.ones([3]), name="odd")
    return isinstance(caught.value, hvd.HorovodInternalError), str(caught.value)


def test_ranks_that_disagree_about_the_device_are_told_so(said):
    for is_ours, text in said["disagreeing"]:
        assert is_ours
        assert "on a GPU" in text


def test_nothing_is_used_before_its_time_or_after_it_was_freed(said):
    assert said["violations"] == ["", ""]


def without_gpu_operations():
    tensorflow_device.plug_in(hvd.rank())
    x = on_gpu([1.0, 2.0])
    eager = hvd.allreduce(x, op=hvd.Sum)
    graph = tf.function(lambda x: hvd.allgather(x, name="rows")).get_concrete_function(x)
    (node,) = [node for node in graph.graph.get_operations() if node.type == "HvdtuneAllgather"]
    return kinds(eager), node.device, eager.numpy().tolist(), graph(x).numpy().tolist()


def test_without_gpu_operations_tensors_travel_through_the_hosts_memory():
    options = NCCL | {"gpu_operations": "host"}
    ranks = run(without_gpu_operations, 2, **options)
    assert ranks == [({"CPU"}, "/device:CPU:0", [2.0, 4.0], [1.0, 2.0, 1.0, 2.0])] * 2


def until_a_rank_is_lost():
    tensorflow_device.plug_in(hvd.rank())
    reduce = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="x"))
    x = on_gpu(np.ones(1000, np.float32))
    reduce(x)
    if hvd.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(tf.errors.UnknownError) as caught:
        while True:
            reduce(x)
    return isinstance(caught.value, hvd.HorovodInternalError), caught.value.rank


def test_a_lost_rank_ends_the_others_operations_with_its_number():
    with start(until_a_rank_is_lost, 2, **NCCL) as job:
        survivor, _ = job.outcomes()
    assert survivor.error is None, survivor.trace
    assert survivor.value == (True, 1)
