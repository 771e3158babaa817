"""Collectives in graphs: they overlap, run though nobody looks, and fail with the words they have
elsewhere."""

import os
import signal
import threading
import time
from contextlib import nullcontext

import numpy as np
import pytest
import tensorflow as tf

import hvdtune.tensorflow as hvd
from hvdtune.errors import CollectiveError, MismatchError, RankLostError
from tests.parallel.bodies import Bodies
from tests.parallel.ranks import run, start

pytestmark = pytest.mark.timeout(300)
bodies = Bodies()


def run_bodies():
    return bodies.run_all()


@pytest.fixture(scope="module")
def said():
    """Return the results of every body on the two ranks."""
    return bodies.of_every_rank(run_bodies, 2, tensorflow=True)


def ones(count, value=1.0):
    return tf.fill([count], value)


def in_other_orders():
    """A kernel that waited would keep the one thread, and no rank would start what others wait
    for."""
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    names = [f"tensor{number}" for number in range(20)]
    order = names if hvd.rank() == 0 else names[::-1]

    @tf.function
    def reduce_all():
        results = {}
        for name in order:
            late = tf.py_function(lambda: float(hvd.rank()), [], tf.float32)
            results[name] = hvd.allreduce(ones(3) * late, op=hvd.Sum, name=name)
        return [results[name] for name in names]

    return [[row.numpy().tolist() for row in reduce_all()] for _ in range(5)]


@bodies
def beside_a_thread():
    """Rank 0 has a graph wait for what rank 1 does only after an eager operation."""
    reduce_in_graph = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="in_graph"))
    found = []
    thread = threading.Thread(target=lambda: found.append(reduce_in_graph(ones(2))))
    if hvd.rank() == 0:
        thread.start()
    eager = hvd.allreduce(ones(1), op=hvd.Sum, name="eager")
    if hvd.rank() == 1:
        thread.start()
    thread.join()
    return eager.numpy().tolist(), found[0].numpy().tolist()


@bodies
def of_one_name():
    """Two operations that the script calls the same become ready in another order on each rank."""

    def late(x):
        time.sleep(0.2)
        return x

    def both(x):
        slow = tf.ensure_shape(tf.py_function(late, [x], tf.float32), [])
        first, second = (x, slow) if hvd.rank() == 0 else (slow, x)
        return reduce(first), reduce(second + 10.0)

    def reduce(x):
        return hvd.allreduce(x, op=hvd.Sum, name="same")

    inner = tf.function(reduce)
    plain = tf.function(both)
    reduce_both = [each.numpy().item() for each in plain(tf.constant(1.0))]
    nested = tf.function(lambda x: (inner(x), inner(x + 10.0)))
    return reduce_both, [each.numpy().item() for each in nested(tf.constant(1.0))]


@bodies
def unused():
    @tf.function
    def ignore(x):
        hvd.allreduce(x, op=hvd.Sum, name="ignored")
        return x

    if hvd.rank() == 0:
        ignore(ones(1, 5.0))
        return 0.0
    return hvd.allreduce(ones(1, 2.0), op=hvd.Sum, name="ignored").numpy().item()


@bodies
def in_loops():
    @tf.function
    def train(steps):
        weight = tf.constant(1.0)
        for _ in tf.range(steps):
            with tf.GradientTape() as tape:
                tape.watch(weight)
                loss = weight * weight * (1.0 + float(hvd.rank()))
            (gradient,) = hvd.DistributedGradientTape(tape).gradient(loss, [weight])
            weight -= 0.1 * gradient
        return weight

    @tf.function
    def without_order(count):
        """Nothing keeps a pass of the loop from beginning before the one before has ended."""
        total = tf.zeros([4])
        for number in tf.range(count):
            total += hvd.allreduce(tf.fill([4], float(number)), op=hvd.Sum, name="looped")
        return total

    return train(tf.constant(6)).numpy(), without_order(tf.constant(50)).numpy().tolist()


def test_loops_of_graphs_may_have_collectives(said):
    for weight, total in said["in_loops"]:
        assert weight == pytest.approx(0.7**6, rel=1e-6)
        assert total == [2.0 * sum(range(50))] * 4


@bodies
def branches():
    @tf.function
    def chosen(x, flag):
        if flag:
            x = hvd.allreduce(x, op=hvd.Sum, name="branch")
        return x

    return [chosen(ones(1), tf.constant(flag)).numpy().item() for flag in (True, False)]


@bodies
def variables():
    """Each with its own values on each rank, broadcast twice in one graph."""
    first = [tf.Variable(ones(3, 1.0 + hvd.rank())), tf.Variable([hvd.rank() == 1])]
    second = [tf.Variable(ones(4, 5.0 + hvd.rank())), tf.Variable(ones(2, 7.0 + hvd.rank()))]

    @tf.function
    def send():
        hvd.broadcast_variables(first, root_rank=1)
        hvd.broadcast_(second, root_rank=1)

    send()
    inside = [variable.numpy().tolist() for variable in first + second]
    for variable in first[:1] + second:
        variable.assign(variable * (1.0 + hvd.rank()))
    hvd.broadcast_variables(first, root_rank=0)
    hvd.broadcast_(second, root_rank=0, name="second")
    return inside, [variable.numpy().tolist() for variable in first + second]


def sends(how):
    """Generators of equal seeds and a weight on every rank, sent by rank 1."""
    import keras

    with tf.Graph().as_default() if how == "session" else nullcontext():
        generators = [tf.random.Generator.from_seed(5) for _ in range(2)]
        weight = tf.Variable(1.0 + hvd.rank())
        rows = [*(each.state for each in generators), weight]
        if how == "session":
            with tf.compat.v1.Session() as session:
                session.run(tf.compat.v1.global_variables_initializer())
                session.run(hvd.broadcast_global_variables(1))
                return [session.run(row).tolist() for row in tf.compat.v1.global_variables()]
        rows.append(keras.random.SeedGenerator(5).state)

        def send():
            (hvd.broadcast_ if how == "in place" else hvd.broadcast_variables)(rows, 1)

        (tf.function(send) if how == "function" else send)()
        return [row.numpy().tolist() for row in rows]


@bodies
def generators():
    return {how: sends(how) for how in ("eager", "function", "in place", "session")}


@pytest.mark.parametrize("how", ["eager", "function", "in place", "session"])
def test_ranks_get_seeds_of_their_own_by_a_broadcast(said, how):
    (first, second, weight, *keras_s), root_s = (rows[how] for rows in said["generators"])
    assert weight == root_s[2] == 2.0
    assert first[:2] == root_s[0][:2] and first[2] != root_s[0][2]
    assert root_s == said["generators"][1]["eager"][: len(root_s)]
    assert first == second == said["generators"][0]["eager"][0]
    for own, other in zip(keras_s, root_s[3:], strict=True):
        assert other == [5, 0] and own[0] != 5 and own[1] == 0


@bodies
def places():
    upper = hvd.add_process_set([1])

    @tf.function
    def look():
        return [
            hvd.size_op(),
            hvd.rank_op(),
            hvd.local_size_op(),
            hvd.local_rank_op(),
            hvd.size_op(upper.process_set_id),
            hvd.process_set_included_op(upper.process_set_id),
        ]

    found = [[value.numpy().item() for value in rows] for rows in (look(), look.python_function())]
    hvd.remove_process_set(upper)
    return found


VALUES = [[2.0] * 3, [True], [6.0] * 4, [8.0] * 2]


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        pytest.param("beside_a_thread", [([2.0], [2.0, 2.0])] * 2, id="waits-beside-a-thread"),
        pytest.param(
            "of_one_name",
            [([2.0, 22.0], [2.0, 22.0])] * 2,
            id="one-name-told-apart",
        ),
        pytest.param("unused", [0.0, 7.0], id="an-operation-runs-though-nobody-uses-its-result"),
        pytest.param("branches", [[2.0, 1.0]] * 2, id="a-branch-has-collectives"),
        pytest.param("variables", [(VALUES, VALUES)] * 2, id="variables-are-broadcast"),
        pytest.param(
            "places",
            [[[2, rank, 2, rank, 1, rank]] * 2 for rank in range(2)],
            id="place",
        ),
    ],
)
def test_a_graph_on_two_ranks(said, body, wanted):
    assert said[body] == wanted


@bodies
def mismatches():
    shape = [2 + hvd.rank()]
    reduce_in_graph = tf.function(lambda: hvd.allreduce(tf.ones(shape), name="odd"))
    with pytest.raises(tf.errors.FailedPreconditionError) as in_graph:
        reduce_in_graph()
    with pytest.raises(MismatchError) as eager:
        hvd.allreduce(tf.ones(shape), name="odd")
    works = hvd.allreduce(ones(1), op=hvd.Sum).numpy().item()
    return in_graph.value.message, str(eager.value), eager.value.tensor, works


def test_a_mismatch_is_told_in_graphs_as_it_is_eagerly(said):
    for in_graph, eager, tensor, works in said["mismatches"]:
        assert eager in in_graph
        assert "rank 0 announced" in eager and "rank 1 announced" in eager
        assert tensor == "allreduce.odd" and works == 2.0


@bodies
def more_rows_than_int32_counts():
    many = 2**31 + 5  # of nothing each

    @tf.function
    def send():
        rows = tf.zeros([many, 0])
        return hvd.alltoall(rows, splits=tf.constant([many, 0], tf.int64), name="many")

    try:
        send()
    except tf.errors.OutOfRangeError as error:
        return "too large for received_splits (int32, as in Horovod)" in str(error)
    return False


def test_received_splits_that_int32_cannot_count_are_refused(said):
    assert said["more_rows_than_int32_counts"] == [True, False]


def reduce_for_ever(in_graph):
    reduce = tf.function(hvd.allreduce) if in_graph else hvd.allreduce
    tensor, count = tf.ones([300_000]), 0
    try:
        while True:
            reduce(tensor, op=hvd.Max, name=f"t{count % 3}")
            count += 1
    except CollectiveError as error:
        return type(error), str(error), error.rank


@pytest.mark.parametrize("in_graph", [True, False])
def test_a_killed_rank_is_named(in_graph):
    with start(reduce_for_ever, 2, in_graph, tensorflow=True) as job:
        while (job.server.next_event(60.0) or {})["type"] != "formed":
            pass
        os.kill(job.pid(1), signal.SIGKILL)
        kind, message, rank = job.outcomes(timeout_s=60.0)[0].value
    assert "rank 1" in message
    assert issubclass(kind, RankLostError) and issubclass(kind, tf.errors.UnknownError)
    assert rank == 1


def begin_again():
    double = tf.function(lambda x: hvd.allreduce(x, op=hvd.Sum, name="again"))
    values = [double(ones(1)).numpy().item()]
    hvd.shutdown()
    with pytest.raises(tf.errors.FailedPreconditionError, match="has not been initialized"):
        double(ones(1))
    hvd.init()  # each rank by itself
    values.append(double(ones(1)).numpy().item())
    return values


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        pytest.param(in_other_orders, [[[1.0] * 3] * 20] * 5, id="other-orders-pass-each-other"),
        pytest.param(begin_again, [2.0, 1.0], id="outlives-the-job-that-it-was-traced-in"),
    ],
)
def test_a_graph_in_a_job_of_its_own(body, wanted):
    assert run(body, 2, tensorflow=True) == [wanted] * 2


def reduce_much():
    values = np.random.default_rng(hvd.rank()).standard_normal((40, 1000)).astype(np.float32)

    @tf.function
    def reduced(rows):
        return [hvd.allreduce(row, name=f"row{i}") for i, row in enumerate(tf.unstack(rows))]

    return [row.numpy().tobytes() for row in reduced(tf.constant(values))]


def test_two_runs_give_the_same_bits():
    (here, there), (again, _) = (run(reduce_much, 2, tensorflow=True) for _ in range(2))
    assert here == there == again
