"""An embedding, whose gradients are tf.IndexedSlices: as they are, dense, and in Keras' fit."""

import horovod.tensorflow as hvd
import horovod.tensorflow.keras as hvd_keras
import numpy as np
import tensorflow as tf

WORDS = 500
hvd.init()
tf.config.threading.set_intra_op_parallelism_threads(1)
rng = np.random.default_rng(hvd.rank())
texts = rng.integers(0, WORDS, (320, 6)).astype(np.int32)
wanted = (texts < WORDS // 2).mean(1, keepdims=True).astype(np.float32)


def bag_of_words():
    tf.keras.utils.set_random_seed(7)
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Embedding(WORDS, 8),
            tf.keras.layers.GlobalAveragePooling1D(),
            tf.keras.layers.Dense(1),
        ]
    )
    model.build((None, 6))
    return model


def train(sparse_as_dense):
    model = bag_of_words()
    opt = tf.keras.optimizers.SGD(0.5)
    hvd.broadcast_variables(model.variables, root_rank=0)
    kinds = set()

    @tf.function
    def step(text, target):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(text, training=True) - target))
        tape = hvd.DistributedGradientTape(tape, sparse_as_dense=sparse_as_dense)
        grads = tape.gradient(loss, model.trainable_variables)
        kinds.add(isinstance(grads[0], tf.IndexedSlices))
        opt.apply_gradients(zip(grads, model.trainable_variables, strict=True))
        return loss

    losses = [
        float(step(texts[i : i + 16], wanted[i : i + 16]))
        for _ in range(4)
        for i in range(0, 320, 16)
    ]
    assert kinds == {not sparse_as_dense}
    return losses, [variable.numpy() for variable in model.trainable_variables]


def fit():
    model = bag_of_words()
    opt = hvd_keras.DistributedOptimizer(tf.keras.optimizers.SGD(0.5), sparse_as_dense=False)
    model.compile(optimizer=opt, loss="mse")
    model.fit(
        texts,
        wanted,
        batch_size=16,
        epochs=4,
        shuffle=False,
        verbose=0,
        callbacks=[hvd_keras.callbacks.BroadcastGlobalVariablesCallback(0)],
    )
    return [variable.numpy() for variable in model.trainable_variables]


losses, sparse = train(sparse_as_dense=False)
_, dense = train(sparse_as_dense=True)
for one, other, third in zip(sparse, dense, fit(), strict=True):
    np.testing.assert_allclose(other, one, atol=1e-5)
    np.testing.assert_allclose(third, one, atol=1e-5)
everywhere = hvd.allgather(sparse[0][None]).numpy()
assert everywhere.shape == (hvd.size(), WORDS, 8) and np.ptp(everywhere, axis=0).max() == 0.0
slices = tf.IndexedSlices(tf.ones([1, 2]), tf.constant([hvd.rank()]), tf.constant([4, 2]))
total = tf.convert_to_tensor(hvd.allreduce(slices, op=hvd.Sum))
assert total.numpy().sum() == 2.0 * hvd.size()
first, last = hvd.allreduce([sum(losses[:10]), sum(losses[-10:])]).numpy()
assert last < first
if hvd.rank() == 0:
    print(f"ok: loss {first:.3f} -> {last:.3f}", flush=True)
