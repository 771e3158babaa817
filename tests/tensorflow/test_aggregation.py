"""Gradients of several passes, added up before they travel, for optimizers of two steps."""

import inspect

import pytest
import tensorflow as tf

import hvdtune.tensorflow as hvd
from hvdtune.alias.horovod.tensorflow.gradient_aggregation_eager import (
    LocalGradientAggregationHelperEager,
)
from tests.parallel.bodies import Bodies

pytestmark = pytest.mark.timeout(300)
bodies = Bodies()
SHARED = "backward_passes_per_step allreduce_func sparse_as_dense average_aggregated_gradients"


def run_bodies():
    return bodies.run_all()


@pytest.fixture(scope="module")
def said():
    """Return the results of every body on the two ranks."""
    return bodies.of_every_rank(run_bodies, 2, tensorflow=True)


@pytest.mark.parametrize(
    ("kind", "others"),
    [
        (
            hvd.LocalGradientAggregationHelper,
            "rank optimizer_type process_set scale_local_gradients name",
        ),
        (LocalGradientAggregationHelperEager, "process_set scale_local_gradients"),
    ],
)
def test_a_helper_takes_what_horovod_s_takes(kind, others):
    assert list(inspect.signature(kind).parameters) == f"{SHARED} {others}".split()


class Descent:
    """An optimizer with a learning rate of 1."""

    def __init__(self):
        self.iterations = tf.Variable(0)

    def apply_gradients(self, pairs):
        changes = [variable.assign_sub(gradient) for gradient, variable in pairs]
        return tf.group(*changes, self.iterations.assign_add(1))


def passes(in_graph, average):
    """Two variables, one of them this rank's own, through five passes of which two are a step."""
    shared, own = tf.Variable(0.0), tf.Variable(0.0)
    optimizer = Descent()
    tape = hvd.DistributedGradientTape(tf.GradientTape())
    helper = LocalGradientAggregationHelperEager(2, tape._allreduce_grads, True, average)
    helper.register_local_var(own)

    def one_pass(value):
        found = helper.compute_gradients([value, value], [shared, own])
        pairs = list(zip(found, [shared, own], strict=True))
        helper.apply_gradients(lambda: optimizer.apply_gradients(pairs), optimizer, pairs)
        return found

    run = tf.function(one_pass) if in_graph else one_pass
    seen = [
        [gradient.numpy().item() for gradient in run(tf.constant(number * (1.0 + hvd.rank())))]
        for number in (1.0, 2.0, 3.0, 4.0, 5.0)
    ]
    return seen, int(optimizer.iterations), shared.numpy().item(), own.numpy().item()


@bodies
def helped():
    return {
        (in_graph, average): passes(in_graph, average)
        for in_graph in (True, False)
        for average in (True, False)
    }


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("in_graph", [True, False])
def test_what_is_due_is_combined_and_what_is_not_is_the_sum_so_far(said, in_graph, average):
    for rank, found in enumerate(rows[in_graph, average] for rows in said["helped"]):
        scale, own = 1 / 2 if average else 1.0, 1.0 + rank
        due = [[1.5 * total * scale, own * total * scale / 2] for total in (3.0, 7.0)]
        wanted = [[own, own], due[0], [3 * own] * 2, due[1], [5 * own] * 2]
        shared, local = (-sum(step[i] for step in due) for i in (0, 1))
        assert found == (wanted, 5, shared, local)


def in_a_session():
    """As programs for TensorFlow 1: global_step counts every pass, and no checkpoint has sums."""
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        variable = v1.get_variable("weight", initializer=0.0)
        step = v1.train.get_or_create_global_step()
        optimizer = hvd.DistributedOptimizer(
            v1.train.GradientDescentOptimizer(1.0), backward_passes_per_step=2
        )
        assert str(optimizer).startswith("<horovod.tensorflow.")  # by which programs know it
        pairs = optimizer.compute_gradients(variable * (1.0 + hvd.rank()))
        train = optimizer.apply_gradients(pairs, global_step=step)
        global_names = [each.op.name for each in v1.global_variables()]
        hooks = [v1.train.StopAtStepHook(num_steps=5)]
        seen = []
        with v1.train.MonitoredTrainingSession(hooks=hooks) as session:
            while not session.should_stop():
                session.run(train)
                if not session.should_stop():
                    seen.append(session.run([variable, step]))
    return global_names, [[float(value), int(count)] for value, count in seen]


@bodies
def sessions():
    return in_a_session()


def test_a_session_counts_passes_and_applies_steps(said):
    for names, seen in said["sessions"]:
        assert names == ["weight", "global_step"]
        assert seen == [[0.0, 1], [-3.0, 2], [-3.0, 3], [-6.0, 4]]
