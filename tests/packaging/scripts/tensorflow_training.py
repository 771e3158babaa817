"""Trains variables with TensorFlow; rank 0 says so if all ranks have the same weights."""

import tensorflow as tf

import hvdtune.tensorflow as hvd
from hvdtune.tensorflow import library

hvd.init()
tf.random.set_seed(hvd.rank())
weights = tf.Variable(tf.random.normal([4, 1]))
hvd.broadcast_variables([weights], root_rank=0)


@tf.function
def step(batch):
    with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
        loss = tf.reduce_mean(tf.square(batch @ weights))
    weights.assign_sub(0.01 * tape.gradient(loss, [weights])[0])
    return loss


for _ in range(3):
    step(tf.random.normal([8, 4]))
gathered = hvd.allgather(tf.reshape(weights, [1, 4])).numpy()
assert gathered.shape[0] == hvd.size() and (gathered == gathered[0]).all()
assert library.operations() is not None  # else Python has carried them out
if hvd.rank() == 0:
    print(f"trained on {hvd.size()} ranks, by MPI: {hvd.mpi_enabled()}")
