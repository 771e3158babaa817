"""Images per second of a small convolutional network in TensorFlow, on random data."""

import argparse
import timeit

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--fp16-allreduce", action="store_true", default=False)
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--num-warmup-batches", type=int, default=2)
parser.add_argument("--num-batches-per-iter", type=int, default=2)
parser.add_argument("--num-iters", type=int, default=3)
parser.add_argument("--eager", action="store_true", default=False)
args = parser.parse_args()
args.cuda = bool(tf.config.experimental.list_physical_devices("GPU"))

hvd.init()
tf.config.threading.set_intra_op_parallelism_threads(1)
tf.random.set_seed(hvd.rank())
inputs = tf.keras.Input((32, 32, 3))
x = tf.keras.layers.Conv2D(16, 3, strides=2)(inputs)
for _ in range(2):
    y = tf.keras.layers.Conv2D(16, 3, padding="same", use_bias=False)(x)
    x = tf.keras.layers.ReLU()(x + hvd.SyncBatchNormalization()(y))
x = tf.keras.layers.GlobalAveragePooling2D()(x)
model = tf.keras.Model(inputs, tf.keras.layers.Dense(10, activation="softmax")(x))
opt = tf.optimizers.SGD(0.01 * hvd.size())
data = tf.random.uniform([args.batch_size, 32, 32, 3])
target = tf.random.uniform([args.batch_size, 1], minval=0, maxval=9, dtype=tf.int64)
losses = tf.losses.SparseCategoricalCrossentropy()


def benchmark_step(first_batch):
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    with tf.GradientTape() as tape:
        loss = losses(target, model(data, training=True))
    tape = hvd.DistributedGradientTape(tape, compression=compression)
    gradients = tape.gradient(loss, model.trainable_variables)
    opt.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
    if first_batch:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(opt.variables(), root_rank=0)


if not args.eager:
    benchmark_step = tf.function(benchmark_step)


def log(text):
    if hvd.rank() == 0:
        print(text, flush=True)


device = "GPU" if args.cuda else "CPU"
benchmark_step(first_batch=True)
timeit.timeit(lambda: benchmark_step(first_batch=False), number=args.num_warmup_batches)
img_secs = []
for x in range(args.num_iters):
    time = timeit.timeit(
        lambda: benchmark_step(first_batch=False), number=args.num_batches_per_iter
    )
    img_sec = args.batch_size * args.num_batches_per_iter / time
    log(f"Iter #{x}: {img_sec:.1f} img/sec per {device}")
    img_secs.append(img_sec)

mean, spread = np.mean(img_secs), 1.96 * np.std(img_secs)
log(f"Img/sec per {device}: {mean:.1f} +-{spread:.1f}")
weights = tf.concat([tf.reshape(v, [-1]) for v in model.variables], axis=0)
everybody = hvd.allgather(weights[None]).numpy()
assert everybody.shape[0] == hvd.size() and np.isfinite(everybody).all()
assert np.ptp(everybody, axis=0).max() == 0.0, "the ranks' models differ"
log(f"ok: {hvd.size()} {device}(s), {hvd.size() * mean:.1f} +-{hvd.size() * spread:.1f} img/sec")
