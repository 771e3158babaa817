"""What Horovod's modules for TensorFlow share, imported from where it lies."""

import pytest
import tensorflow as tf

from hvdtune.alias.horovod.tensorflow import util


def test_eager_execution_is_told_from_graphs():
    assert util._executing_eagerly()
    assert util._make_subgraph(lambda: tf.constant(not util._executing_eagerly()))().numpy()


def test_a_cached_function_is_called_once_eagerly_and_once_in_a_graph():
    calls = []

    @util._cache
    def note(name):
        calls.append((name, tf.executing_eagerly()))
        return len(calls)

    with tf.Graph().as_default():
        in_graph = [note("a"), note("a")]
    assert (in_graph, [note("a"), note("a"), note("b")]) == ([1, 1], [2, 2, 3])


@pytest.mark.parametrize("nested", [False, True])
def test_variables_become_keys_and_variables_again(nested):
    one, two = tf.Variable(1.0), tf.Variable(2.0)
    given = [one, [two]] if nested else one
    keys = util.vars_to_refs(given)
    assert hash(keys) == hash(util.vars_to_refs(given))
    found = util.refs_to_vars(keys)
    assert (found[0] is one and found[1][0] is two) if nested else found is one
