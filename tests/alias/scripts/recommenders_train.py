"""Trains TensorFlow Recommenders-Addons' embedding of all ranks: `... FOLDER LEARNING_RATE WAY`.

WAY is `synchronous`, where TFRA adds gradients up, or `horovod`, where Horovod averages them. Every
step of the ranks has the samples of one batch of a single process.
"""

import os
import sys

os.environ["TF_USE_LEGACY_KERAS"] = "1"  # its layers are of Keras 2

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from tensorflow_recommenders_addons import dynamic_embedding as de

hvd.init()
BATCH, STEPS, FIELDS, WIDTH = 32, 4, 3, 8
folder, learning_rate, way = sys.argv[1], float(sys.argv[2]), sys.argv[3]
size, rank = hvd.size(), hvd.rank()


def dense(units, seed, activation=None):
    initial = tf.keras.initializers.GlorotUniform(seed=seed)
    return tf.keras.layers.Dense(units, activation, kernel_initializer=initial)


class Model(tf.keras.Model):
    def __init__(self):
        super().__init__()
        saver = de.FileSystemSaver(proc_size=size, proc_rank=rank)
        self.embedding = de.keras.layers.HvdAllToAllEmbedding(
            mpi_size=size,
            embedding_size=WIDTH,
            key_dtype=tf.int64,
            value_dtype=tf.float32,
            initializer=tf.keras.initializers.Constant(0.1),
            devices=["/CPU:0"],
            name="embedding",
            bp_v2=False,
            init_capacity=1000,
            kv_creator=de.CuckooHashTableCreator(saver=saver),
        )
        self.hidden, self.last = dense(8, 1, "relu"), dense(1, 2)

    def call(self, keys):
        return self.last(self.hidden(tf.reshape(self.embedding(keys), [-1, FIELDS * WIDTH])))


rng = np.random.default_rng(0)
keys = rng.integers(0, 50, (BATCH * STEPS, FIELDS))
labels = rng.random((BATCH * STEPS, 1), np.float32)
own = BATCH // size
rows = [step * BATCH + rank * own + row for step in range(STEPS) for row in range(own)]
data = tf.data.Dataset.from_tensor_slices((keys[rows], labels[rows])).batch(own)
model = Model()
inner = tf.keras.optimizers.legacy.SGD(learning_rate)
if way == "synchronous":
    optimizer = de.DynamicEmbeddingOptimizer(inner, synchronous=True)
else:
    optimizer = de.DynamicEmbeddingOptimizer(hvd.DistributedOptimizer(inner))
model.compile(optimizer, "mse")
root = de.keras.callbacks.DEHvdBroadcastGlobalVariablesCallback(0)
model.fit(data, epochs=3, verbose=0, callbacks=[root])
weights = model.hidden.get_weights() + model.last.get_weights()
answers = model.predict(keys, batch_size=len(keys), verbose=0)
np.savez(f"{folder}/rank-{rank}.npz", *weights, answers=answers)
