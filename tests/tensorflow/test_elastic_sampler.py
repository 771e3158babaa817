"""Samples of an elastic training with TensorFlow."""

import pytest
import tensorflow as tf

import hvdtune.tensorflow as hvd
from tests.parallel.ranks import run

pytestmark = pytest.mark.timeout(300)


def go_back():
    """What this rank is handed out, and again after a commit, and after going back to that."""
    sampler = hvd.elastic.ElasticSampler(range(10), shuffle=False)
    state = hvd.elastic.TensorFlowState([tf.Variable(1.0)], sampler=sampler)

    def handed_out():
        return [batch.numpy().tolist() for batch in sampler.batches(2)]

    first = handed_out()
    sampler.record_batch(0, 2)
    state.commit()
    sampler.set_epoch(1)
    state.restore()
    return first, handed_out(), sampler.epoch


def test_what_was_trained_is_not_handed_out_again():
    found = run(go_back, 2, tensorflow=True)
    assert found == [
        ([[0, 2], [4, 6], [8]], [[4, 6], [8]], 0),
        ([[1, 3], [5, 7], [9]], [[5, 7], [9]], 0),
    ]
