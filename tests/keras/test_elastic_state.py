"""A KerasState on the disk, and the random numbers that are dealt out."""

from importlib.util import find_spec

import keras
import numpy as np
import pytest

import hvdtune.keras as hvd
from hvdtune.errors import UsageError
from tests.parallel.ranks import run

pytestmark = pytest.mark.timeout(300)


def training(width=3):
    layers = [keras.Input((2,)), keras.layers.Dense(width), keras.layers.Dropout(0.5)]
    model = keras.Sequential(layers)
    model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(0.1)), "mse")
    return hvd.elastic.KerasState(model, epoch=0)


def values(state):
    return [np.array(variable) for variable in state.kept_variables()]


def write_and_resume(folder):
    before, after = training(), training()
    before.model.fit(np.ones((4, 2)), np.ones((4, 3)), verbose=0)
    before.epoch = 4
    before.commit(to_disk=folder)
    before.flush()
    assert after.resume(from_disk=folder)
    same = [np.array_equal(a, b) for a, b in zip(values(before), values(after), strict=True)]
    try:
        training(width=4).resume(from_disk=folder)
    except UsageError as error:
        return same, after.epoch, str(error)


def generators(commits):
    state = training()
    state.deal_randomness(5, commits)
    return [tuple(map(int, values(state)[2]))]


def keep_and_train(kind):
    import tf_keras

    model = tf_keras.Sequential([tf_keras.layers.Dense(3, input_shape=(2,))])
    of_kind = tf_keras.optimizers if kind == "new" else tf_keras.optimizers.legacy
    model.compile(of_kind.Adam(0.1), "mse")
    state = hvd.elastic.KerasState(model, epoch=0)
    before = values(state)  # of a newcomer, which has not trained
    model.fit(np.ones((4, 2)), np.ones((4, 3)), verbose=0)
    after = values(state)
    state.restore()
    restored = [np.array_equal(a, b) for a, b in zip(before, values(state), strict=True)]
    return len(before), [value.shape for value in before] == [v.shape for v in after], restored


@pytest.mark.skipif(find_spec("tf_keras") is None, reason="tf_keras is not installed")
@pytest.mark.parametrize("kind", ["new", "legacy"])
def test_an_optimizer_of_keras_2_has_its_variables_before_the_first_step(kind):
    # Two weights, their two moments each, the step and the learning rate.
    assert run(keep_and_train, 1, kind, tensorflow=True) == [(8, True, [True] * 8)]


def test_a_training_goes_on_from_its_commit_on_the_disk(tmp_path):
    ((same, epoch, refusal),) = run(write_and_resume, 1, tmp_path)
    assert same == [True] * 9 and epoch == 4
    assert "The commit contains variables of the shapes" in refusal


@pytest.mark.slow
def test_every_rank_has_other_numbers_in_its_layers():
    first, second = run(generators, 2, 7)
    assert first != second
    assert run(generators, 2, 7) == [first, second]


def sent():
    keras.utils.set_random_seed(0)
    state = training()
    before = [value.tolist() for value in values(state)]
    state.sync()
    return before, [value.tolist() for value in values(state)]


def test_a_state_that_is_sent_leaves_each_rank_other_numbers():
    (before, here), (other, there) = run(sent, 2, tensorflow=True)
    assert before == other == here
    differ = [one != two for one, two in zip(here, there, strict=True)]
    assert [number for number, yes in enumerate(differ) if yes] == [2]  # Dropout's generator


def test_a_model_without_variables_is_refused():
    with pytest.raises(UsageError, match="The model has no variables yet"):
        hvd.elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]))
