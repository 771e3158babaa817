"""A training loop compiled by tf.function, then a model of torch trained the same way beside it."""

import os

import horovod.tensorflow as hvd
import horovod.torch as hvd_torch
import numpy as np
import tensorflow as tf
import torch

hvd.init()
gpus = tf.config.experimental.list_physical_devices("GPU")
for gpu in gpus:
    tf.config.experimental.set_memory_growth(gpu, True)
if gpus:
    tf.config.experimental.set_visible_devices(gpus[hvd.local_rank()], "GPU")
tf.config.threading.set_intra_op_parallelism_threads(1)
torch.set_num_threads(1)

# Other data and other initial weights on each rank.
tf.random.set_seed(hvd.rank())
rng = np.random.default_rng(hvd.rank())
points = rng.normal(size=(256, 4)).astype(np.float32)
labels = (points.sum(1) > 0).astype(np.int64)
dataset = tf.data.Dataset.from_tensor_slices((points, labels)).repeat().shuffle(256).batch(32)

model = tf.keras.Sequential(
    [
        tf.keras.layers.Dense(16, activation="relu"),
        tf.keras.layers.Dropout(0.1),
        tf.keras.layers.Dense(2, activation="softmax"),
    ]
)
loss = tf.losses.SparseCategoricalCrossentropy()
opt = tf.optimizers.Adam(0.01 * hvd.size())
checkpoint = tf.train.Checkpoint(model=model, optimizer=opt)


@tf.function
def training_step(points, labels, first_batch):
    with tf.GradientTape() as tape:
        loss_value = loss(labels, model(points, training=True))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(loss_value, model.trainable_variables)
    opt.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    # After the first step, when the optimizer has its variables.
    if first_batch:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(opt.variables(), root_rank=0)
    return loss_value


losses = []
for batch, (some_points, some_labels) in enumerate(dataset.take(120 // hvd.size())):
    loss_value = training_step(some_points, some_labels, batch == 0)
    losses.append(float(loss_value))
    if batch % 20 == 0 and hvd.local_rank() == 0:
        print(f"Step #{batch}\tLoss: {loss_value:.4f}")
if hvd.rank() == 0:
    checkpoint.save(os.path.join("checkpoints", "ckpt"))
    assert tf.train.latest_checkpoint("checkpoints") is not None

for variable in [*model.variables, *opt.variables()]:
    if "seed" not in variable.name:
        everybody = hvd.allgather(tf.reshape(tf.cast(variable, tf.float64), [1, -1]))
        assert np.ptp(everybody.numpy(), axis=0).max() == 0.0, variable.path
first, last = hvd.allreduce([np.mean(losses[:5]), np.mean(losses[-5:])], name="loss").numpy()
assert last < first

# One job, two frameworks: torch has to come to the same weights from the same data.
wanted = points @ np.array([1.0, 2.0, 3.0, 4.0], np.float32)
of_tf = tf.Variable(tf.zeros(4))
of_torch = torch.zeros(4, requires_grad=True)
sgd = hvd_torch.DistributedOptimizer(
    torch.optim.SGD([of_torch], lr=0.1), named_parameters=[("weights", of_torch)]
)
for _ in range(20):
    with tf.GradientTape() as tape:
        error = tf.reduce_mean(tf.square(tf.linalg.matvec(points, of_tf) - wanted))
    tape = hvd.DistributedGradientTape(tape)
    of_tf.assign_sub(0.1 * tape.gradient(error, [of_tf])[0])
    sgd.zero_grad()
    torch.mean((torch.tensor(points) @ of_torch - torch.tensor(wanted)) ** 2).backward()
    sgd.step()
np.testing.assert_allclose(of_torch.detach().numpy(), of_tf.numpy(), rtol=1e-4)
np.testing.assert_allclose(of_tf.numpy(), [1, 2, 3, 4], rtol=0.1)
assert hvd_torch.size() == hvd.size()
if hvd.rank() == 0:
    print(f"ok: loss {first:.2f} -> {last:.2f}", flush=True)
