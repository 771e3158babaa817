"""What Horovod's scripts say to Keras 3 works once Horovod's names are imported, and not before."""

import importlib

import keras
import numpy as np
import pytest

from tests.parallel.ranks import run

_WORKS = {
    "called": True,
    "called on the outermost": 2,
    "lr": 0.5,
    "lr set": 0.25,
    "lr of the outermost": 0.25,
    "lr by K.set_value": 0.75,
    "made with lr": 0.125,
    "compiled": "mse",
    "ref": "sequential_1/dense_1/kernel",
}


def found():
    optimizer = keras.optimizers.SGD(0.5, momentum=0.9)
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    optimizer.build(model.trainable_variables)
    outer = keras.optimizers.LossScaleOptimizer(optimizer)

    def set_lr():
        optimizer.lr = 0.25
        return float(optimizer.learning_rate)

    def set_value():
        keras.backend.set_value(optimizer.lr, 0.75)
        return float(keras.backend.get_value(optimizer.lr))

    def compiled():
        model.compile(optimizer, "mse", experimental_run_tf_function=False)
        model.fit(np.ones((4, 2)), np.ones((4, 1)), verbose=0)
        return model.get_compile_config()["loss"]

    tries = {
        "called": lambda: optimizer.variables() == optimizer.variables,
        "called on the outermost": lambda: len(outer.variables()) - len(optimizer.variables()),
        "lr": lambda: float(optimizer.lr),
        "lr set": set_lr,
        "lr of the outermost": lambda: float(outer.lr),
        "lr by K.set_value": set_value,
        "made with lr": lambda: float(keras.optimizers.Adam(lr=0.125).learning_rate),
        "compiled": compiled,
        "ref": lambda: {v.ref(): v for v in model.variables}[model.weights[0].ref()].path,
    }
    results = {}
    for name, attempt in tries.items():
        try:
            results[name] = attempt()
        except (AttributeError, TypeError, ValueError) as error:
            results[name] = type(error).__name__
    return results


def spell():
    """In a process whose Keras nobody has changed yet."""
    before = found()
    importlib.import_module("hvdtune.alias")
    importlib.import_module("horovod.keras")
    after = found()
    compile = keras.Model.compile
    importlib.import_module("horovod.tensorflow.keras")
    return before, after, keras.Model.compile is compile


@pytest.mark.timeout(200)
def test_old_spellings_work_with_horovods_names_and_fail_without():
    [(before, after, is_same)] = run(spell, 1, tensorflow=True)
    assert after == _WORKS
    refused = {"AttributeError", "TypeError", "ValueError"}
    assert {name: how for name, how in before.items() if how not in refused} == {"lr set": 0.5}
    assert is_same  # a second import changes nothing
