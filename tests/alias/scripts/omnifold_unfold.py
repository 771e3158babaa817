"""Unfolds with omnifold, by its own classes: `omnifold_unfold.py FOLDER EVENTS BATCH [RANK]`.

EVENTS of simulation and as many of data are divided among the ranks, as omnifold does it. RANK
restricts a process of its own to the part that this rank of several would have. Every epoch is one
batch, which has the first half of each part: what ranks train with together does not depend on how
many they are.
"""

import sys
from pathlib import Path

import horovod.tensorflow.keras as hvd
import keras
import numpy as np
import omnifold


def in_turns(order):
    """In place of a shuffle: simulation and data alternate."""
    order[:] = order.reshape(2, -1).T.ravel()


# Keras 3 cannot clone a compiled model, as omnifold does, whose loss it does not know by name.
keras.saving.register_keras_serializable()(omnifold.net.weighted_binary_crossentropy)
folder, events, batch = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
np.random.shuffle = in_turns
keras.utils.set_random_seed(hvd.rank())
rng = np.random.default_rng(1)
truth = rng.normal(0, 1, (events, 1)).astype("float32")
simulated = truth + rng.normal(0, 0.5, (events, 1)).astype("float32")
measured = rng.normal(0.5, 1.2, (events, 1)).astype("float32")
if len(sys.argv) > 4:
    part = slice(int(sys.argv[4]), None, events // batch)
    truth, simulated, measured = truth[part], simulated[part], measured[part]
place = {"rank": hvd.rank(), "size": hvd.size()}
data = omnifold.DataLoader(reco=measured, **place)
simulation = omnifold.DataLoader(reco=simulated, gen=truth, **place)
unfolding = omnifold.MultiFold(
    "check",
    omnifold.MLP(1, layer_sizes=[16, 16]),
    omnifold.MLP(1, layer_sizes=[16, 16]),
    data,
    simulation,
    weights_folder=str(folder / f"weights-{hvd.rank()}"),
    log_folder=str(folder),
    niter=2,
    batch_size=batch,
    epochs=4,
    lr=1e-3,
    train_frac=0.5,
    **place,
)
unfolding.Unfold()
models = unfolding.step1_models + unfolding.step2_models
np.savez(
    folder / f"rank-{hvd.rank()}.npz",
    *(value for model in models for value in model.get_weights()),
    pushed=unfolding.weights_push,
)
