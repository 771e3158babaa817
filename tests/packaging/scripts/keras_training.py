"""Trains a model with Keras; rank 0 says so if all ranks have the same weights."""

import keras
import numpy as np

import hvdtune.keras as hvd
import hvdtune.tensorflow as hvd_tensorflow

hvd.init()
keras.utils.set_random_seed(hvd.rank())
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
inputs = np.random.default_rng(hvd.rank()).standard_normal((16, 4)).astype(np.float32)
callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
model.fit(inputs, inputs[:, :1], batch_size=8, epochs=2, verbose=0, callbacks=callbacks)
kernel = model.layers[0].kernel.numpy().reshape(1, 4)
gathered = hvd_tensorflow.allgather(kernel).numpy()
assert gathered.shape[0] == hvd.size() and (gathered == gathered[0]).all()
if hvd.rank() == 0:
    print(f"trained on {hvd.size()} ranks, by MPI: {hvd.mpi_enabled()}")
