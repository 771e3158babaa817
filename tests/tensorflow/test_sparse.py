"""tf.IndexedSlices in collectives: rows of all ranks, one after the other."""

import pytest
import tensorflow as tf

import hvdtune.tensorflow as hvd
from tests.parallel.bodies import Bodies

pytestmark = pytest.mark.timeout(300)
bodies = Bodies()


def run_bodies():
    return bodies.run_all()


@pytest.fixture(scope="module")
def said():
    """Return the results of every body on the two ranks."""
    return bodies.of_every_rank(run_bodies, 2, tensorflow=True)


def slices(count, shape=None):
    """As many rows of ones on rank 0, one more of twos on rank 1."""
    rows = count + hvd.rank()
    values = tf.fill([rows, 3], 1.0 + hvd.rank())
    dense_shape = None if shape is None else tf.constant(shape)
    return tf.IndexedSlices(values, tf.range(rows), dense_shape=dense_shape)


def described(each):
    if not isinstance(each, tf.IndexedSlices):
        return each.numpy().tolist()
    shape = None if each.dense_shape is None else each.dense_shape.numpy().tolist()
    return each.values[:, 0].numpy().tolist(), each.indices.numpy().tolist(), shape


@bodies
def groups():
    calls = {
        "alone": lambda: hvd.grouped_allreduce([slices(1)], op=hvd.Sum),
        "average": lambda: hvd.grouped_allreduce([slices(1, [9, 3])], name="average"),
        "mixed": lambda: hvd.grouped_allreduce(
            [slices(1), tf.fill([2], 1.0 + hvd.rank()), slices(2)], op=hvd.Sum, name="mixed"
        ),
        "dense": lambda: hvd.grouped_allreduce([tf.fill([2], 1.0 + hvd.rank())], op=hvd.Sum),
        "nothing": lambda: hvd.grouped_allreduce([]),
        "nothing to divide": lambda: hvd.grouped_reducescatter([]),
    }
    return {
        name: [[described(each) for each in run()] for run in (call, tf.function(call))]
        for name, call in calls.items()
    }


ONE, TWO = ([1.0, 2.0, 2.0], [0, 0, 1]), ([1.0, 1.0, 2.0, 2.0, 2.0], [0, 1, 0, 1, 2])


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("alone", [(*ONE, None)]),
        ("average", [([0.5, 1.0, 1.0], [0, 0, 1], [9, 3])]),
        ("mixed", [(*ONE, None), [3.0, 3.0], (*TWO, None)]),
        ("dense", [[3.0, 3.0]]),
        ("nothing", []),
        ("nothing to divide", []),
    ],
)
def test_a_group_may_have_sparse_tensors(said, name, wanted):
    for rows in said["groups"]:
        assert rows[name] == [wanted, wanted]
