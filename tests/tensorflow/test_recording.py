"""What the timeline has of a training with TensorFlow."""

import time

import pytest
import tensorflow as tf

import hvdtune.tensorflow as hvd
from hvdtune.timeline import merge
from tests.parallel.ranks import run

STEPS = 6


def train(in_graph, folder):
    weights = [tf.Variable(tf.ones([300, 300])), tf.Variable(tf.ones([300]))]
    rows = tf.data.Dataset.range(STEPS).map(
        lambda number: tf.fill([4, 300], tf.cast(number, "float32"))
    )

    def step(batch):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(batch @ weights[0] + weights[1]))
        gradients = hvd.DistributedGradientTape(tape).gradient(loss, weights)
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.assign_sub(1e-6 * gradient)

    run_step = tf.function(step) if in_graph else step
    for number, batch in enumerate(rows):
        with hvd.span("augment"):
            time.sleep(0.001 + 0.01 * hvd.rank())  # rank 0 waits for it
        run_step(batch)
        if number == 3:
            tf.train.Checkpoint(weight=weights[0]).write(str(folder / f"rank-{hvd.rank()}"))


@pytest.mark.parametrize("in_graph", [True, False])
def test_each_training_step_is_one_step_of_the_timeline(tmp_path, in_graph):
    pattern = tmp_path / "rank-%r.hvt"
    run(train, 2, in_graph, tmp_path, tensorflow=True, timeline=str(pattern))
    trace = merge(sorted(tmp_path.glob("*.hvt")))
    assert trace.warnings == []
    events = trace.events
    steps = events[events["kind"] == "STEP"]
    # The first mark begins the first step that is known from its begin on.
    assert steps.groupby("rank").size().to_dict() == {0: STEPS - 1, 1: STEPS - 1}
    spans = events[events["kind"] == "SPAN"].groupby(["rank", "name"], observed=True).size()
    for rank in range(2):
        assert spans[rank, "augment"] == STEPS
        assert spans[rank, "checkpoint"] == 1
    reduced = events[(events["kind"] == "ALLREDUCE") & (events["rank"] == 0)]
    blocked = events[(events["kind"] == "BLOCKED") & (events["rank"] == 0)]
    assert len(reduced) >= STEPS
    # Not in every step: on a busy machine rank 1 is there first now and then.
    assert len(blocked) >= 1
