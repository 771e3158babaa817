"""A graph and a MonitoredTrainingSession, as programs for TensorFlow 1 have them."""

import os

import horovod.tensorflow as hvd
import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
tf.logging.set_verbosity(tf.logging.ERROR)


def main(_):
    hvd.init()
    rng = np.random.default_rng(hvd.rank())
    wanted = np.array([[1.0], [-2.0], [3.0]], np.float32)

    tf.set_random_seed(hvd.rank())
    points = tf.placeholder(tf.float32, [None, 3], name="points")
    targets = tf.placeholder(tf.float32, [None, 1], name="targets")
    with tf.variable_scope("linear"):
        weights = tf.get_variable("weights", [3, 1])
        bias = tf.get_variable("bias", [1], initializer=tf.zeros_initializer())
    loss = tf.losses.mean_squared_error(targets, tf.matmul(points, weights) + bias)
    mean_loss = hvd.allreduce(loss, name="mean_loss")

    global_step = tf.train.get_or_create_global_step()
    opt = tf.train.GradientDescentOptimizer(0.05 * hvd.size())
    opt = hvd.DistributedOptimizer(opt, op=hvd.Average)
    train_op = opt.minimize(loss, global_step=global_step)
    everybody = hvd.allgather(tf.reshape(weights, [1, 3]))
    hooks = [
        hvd.BroadcastGlobalVariablesHook(0),
        tf.train.StopAtStepHook(last_step=200 // hvd.size()),
        tf.train.LoggingTensorHook({"step": global_step, "loss": loss}, every_n_iter=50),
    ]
    config = tf.ConfigProto(intra_op_parallelism_threads=1)
    config.gpu_options.allow_growth = True
    config.gpu_options.visible_device_list = str(hvd.local_rank())
    checkpoint_dir = "./checkpoints" if hvd.rank() == 0 else None
    losses = []
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=checkpoint_dir, hooks=hooks, config=config
    ) as mon_sess:
        while not mon_sess.should_stop():
            some = rng.normal(size=(16, 3)).astype(np.float32)
            feed = {points: some, targets: some @ wanted + 0.5}
            _, loss_value, found, step = mon_sess.run(
                [train_op, mean_loss, everybody, global_step], feed_dict=feed
            )
            losses.append(loss_value)
    assert found.shape == (hvd.size(), 3)
    np.testing.assert_allclose(found, np.tile(wanted.T, (hvd.size(), 1)), atol=0.1)
    assert len(losses) == 200 // hvd.size() and losses[-1] < losses[0]
    if hvd.rank() == 0:
        assert tf.train.latest_checkpoint("./checkpoints") is not None
        assert os.path.exists("./checkpoints/checkpoint")
        print(f"ok: loss {losses[0]:.2f} -> {losses[-1]:.4f} in {step} steps", flush=True)


if __name__ == "__main__":
    tf.app.run()
