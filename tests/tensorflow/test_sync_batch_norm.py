"""SyncBatchNormalization is BatchNormalization on the joined batch."""

import numpy as np
import pytest
import tensorflow as tf

import hvdtune.tensorflow as hvd
from hvdtune.errors import UsageError
from tests.parallel.bodies import Bodies

bodies = Bodies()
ROWS = (5, 3)  # of each rank
KINDS = {
    "dense": {"shape": (6,), "options": {}, "dtype": "float32"},
    "images": {"shape": (4, 4, 3), "options": {}, "dtype": "float32"},
    "channels first": {"shape": (3, 4, 4), "options": {"axis": 1}, "dtype": "float32"},
    "wide": {"shape": (6,), "options": {"scale": False}, "dtype": "float64"},
}


def run_bodies():
    return bodies.run_all()


@pytest.fixture(scope="module")
def said():
    return bodies.of_every_rank(run_bodies, 2, tensorflow=True)


def inputs_of(kind, rank):
    values = np.random.default_rng(rank).standard_normal((ROWS[rank], *kind["shape"]))
    return tf.constant(values * (1 + rank) + 10 * rank, kind["dtype"])


def weights_of(kind, rank):
    """Return factors of the outputs, with which gradients are not all the same."""
    values = np.random.default_rng(100 + rank).standard_normal((ROWS[rank], *kind["shape"]))
    return tf.constant(values, kind["dtype"])


def normalize(layer, inputs, weights, *, in_graph):
    """Outputs, gradients by the inputs and by the layer's weights, moving statistics."""
    layer.build(inputs.shape)

    def call():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = layer(inputs, training=True)
            loss = tf.reduce_sum(outputs * weights)
        trained = [variable.value for variable in layer.trainable_variables]
        return outputs, tape.gradient(loss, [inputs, *trained])

    outputs, (of_inputs, *others) = (tf.function(call) if in_graph else call)()
    moving = [layer.moving_mean.numpy(), layer.moving_variance.numpy()]
    evaluated = layer(inputs, training=False).numpy()
    return outputs.numpy(), of_inputs.numpy(), [g.numpy() for g in others], moving, evaluated


@bodies
def normalized():
    mine = slice(ROWS[0]) if hvd.rank() == 0 else slice(ROWS[0], None)
    problems = []
    for name, kind in KINDS.items():
        options = {**kind["options"], "dtype": kind["dtype"], "name": "norm"}
        together = [tf.concat([f(kind, 0), f(kind, 1)], 0) for f in (inputs_of, weights_of)]
        alone = tf.keras.layers.BatchNormalization(**options)
        right = normalize(alone, *together, in_graph=True)
        near = 1e-5 if kind["dtype"] == "float32" else 1e-12
        own = inputs_of(kind, hvd.rank()), weights_of(kind, hvd.rank())
        for in_graph in (True, False):
            found = normalize(hvd.SyncBatchNormalization(**options), *own, in_graph=in_graph)
            pairs = [(found[i], right[i][mine]) for i in (0, 1, 4)]
            pairs += list(zip(found[3], right[3], strict=True))
            # Those of weights are of this rank's rows; the optimizer adds them up.
            sums = [hvd.allreduce(g, op=hvd.Sum).numpy() for g in found[2]]
            pairs += list(zip(sums, right[2], strict=True))
            for number, (a, b) in enumerate(pairs):
                if not np.allclose(a, b, rtol=near, atol=near):
                    problems.append((name, in_graph, number, np.abs(a - b).max()))
    return problems


def test_it_is_batch_normalization_of_all_rows(said):
    assert said["normalized"] == [[]] * 2


@bodies
def used_twice():
    """A layer of two inputs of one model, as where two pictures are compared."""
    layer = hvd.SyncBatchNormalization(center=False, scale=False, momentum=0.0)
    rows = tf.constant([[1.0], [2.0]]) + 10.0 * hvd.rank()
    layer.build(rows.shape)

    @tf.function
    def both():
        return layer(rows, training=True), layer(-3.0 * rows, training=True)

    return [float(tf.reduce_sum(out)) for out in both()], layer.get_config()["name"]


def test_it_may_be_used_twice_in_a_graph(said):
    (here, _), (there, _) = said["used_twice"]
    assert here[0] == pytest.approx(-there[0], rel=1e-5)
    assert here[1] == pytest.approx(-there[1], rel=1e-5)
    assert here[0] == pytest.approx(-here[1], rel=1e-3) and here[0] < -1


@bodies
def refused():
    with pytest.raises(UsageError, match="no fused version"):
        hvd.SyncBatchNormalization(fused=True)
    alone = hvd.add_process_set([hvd.size() - 1])
    found = None
    if alone.included():
        layer = hvd.SyncBatchNormalization(process_set=alone)
        found = float(tf.reduce_mean(layer(tf.constant([[1.0], [3.0]]), training=True)))
    hvd.remove_process_set(alone)
    return found


def test_a_process_set_of_one_rank_normalizes_alone(said):
    assert said["refused"][0] is None and abs(said["refused"][1]) < 1e-6
