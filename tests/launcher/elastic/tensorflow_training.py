"""A training with tf.keras, one with a tape or both, as a script for Horovod's elastic runs.

    tensorflow_training.py fit|tape|both [WORKER:PART:STEP:FAULT ...]

Worker WORKER, or `any`, has its FAULT in its step STEP of PART, fit or tape: kill, or change, which
makes the file `changed` and waits until the launcher tells of another membership. At the end every
rank prints the sizes under which it has trained, and its weights.
"""

import os
import signal
import sys
import time
from pathlib import Path

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import tensorflow as tf

ROWS, BATCH, EPOCHS = 24, 4, 2
sizes = {"fit": [], "tape": []}
worker = os.environ["HVDTUNE_WORKER"]
told = [word.split(":") for word in sys.argv[2:]]
faults = {(part, int(step)): fault for who, part, step, fault in told if who in (worker, "any")}


def begin_step(part, state):
    sizes[part].append(hvd.size())
    fault = faults.pop((part, len(sizes[part])), "")
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "change":
        sizes[part].pop()  # it is not trained
        Path("changed").touch()
        while True:  # until it raises HostsUpdatedInterrupt
            state.check_host_updates()
            time.sleep(0.01)


class Steps(tf.keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        begin_step("fit", fitted)


def make_model():
    tf.keras.utils.set_random_seed(7)
    layers = [tf.keras.layers.Dense(3, activation="tanh"), tf.keras.layers.Dropout(0.5)]
    return tf.keras.Sequential([tf.keras.Input((2,)), *layers, tf.keras.layers.Dense(1)])


hvd.init()
rows = np.linspace(-1, 1, ROWS * 2, dtype=np.float32).reshape(ROWS, 2)
answers = rows.sum(axis=1, keepdims=True)
model = make_model()
model.compile(hvd_keras.DistributedOptimizer(tf.keras.optimizers.Adam(0.01)), "mse")
fitted = hvd_keras.elastic.KerasState(model, batch=0, epoch=0)
callbacks = [
    Steps(),
    hvd_keras.elastic.UpdateBatchStateCallback(fitted),
    hvd_keras.elastic.UpdateEpochStateCallback(fitted),
    hvd_keras.elastic.CommitStateCallback(fitted, 2),
]


@hvd_keras.elastic.run
def fit(state):
    own = slice(hvd.rank(), None, hvd.size())
    more = {"epochs": EPOCHS - state.epoch, "callbacks": callbacks, "verbose": 0}
    model.fit(rows[own], answers[own], batch_size=BATCH, shuffle=False, **more)


other = make_model()
optimizer = tf.keras.optimizers.SGD(0.1, momentum=0.9)
optimizer.build(other.trainable_variables)
taped = hvd.elastic.TensorFlowState([*other.variables, *optimizer.variables], step=0)


@tf.function
def step_of(x, y):
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_mean((other(x, training=True) - y) ** 2)
    gradients = tape.gradient(loss, other.trainable_variables)
    optimizer.apply_gradients(zip(gradients, other.trainable_variables, strict=True))


@hvd.elastic.run
def tape(state):
    while state.step < 4:
        begin_step("tape", state)
        own = slice(state.step + hvd.rank(), None, hvd.size())
        step_of(rows[own], answers[own])
        state.step += 1
        state.commit()


if sys.argv[1] != "tape":
    fit(fitted)
    assert (fitted.epoch, fitted.batch) == (EPOCHS, 0)
if sys.argv[1] != "fit":
    tape(taped)
weights = np.concatenate(
    [w.numpy().ravel() for each in (model, other) for w in each.trainable_variables]
)
of_fit, of_tape = (",".join(map(str, sizes[part])) for part in ("fit", "tape"))
print(f"ended with {hvd.size()}: fit {of_fit}; tape {of_tape}; weights {weights.tobytes().hex()}")
