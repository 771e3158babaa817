"""A KerasState on the disk, and the random numbers that are dealt out."""

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


def test_a_training_goes_on_from_its_commit_on_the_disk(tmp_path):
    ((same, epoch, refusal),) = run(write_and_resume, 1, tmp_path)
    assert same == [True] * 9 and epoch == 4
    assert "the commit keeps variables of the shapes" in refusal


def test_every_rank_has_other_numbers_in_its_layers():
    first, second = run(generators, 2, 7)
    assert first != second
    assert run(generators, 2, 7) == [first, second]


def test_a_model_without_variables_is_refused():
    with pytest.raises(UsageError, match="the model has no variables yet"):
        hvd.elastic.KerasState(keras.Sequential([keras.layers.Dense(1)]))
