"""Keras' fit with every callback; rank 0 keeps checkpoints, from which training goes on."""

import os

import horovod.keras as hvd
import keras
import numpy as np

EPOCHS = 6
BATCH = 32


def images(seed, count=384):
    """Four classes: which quarter of the picture is bright."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, count)
    pictures = rng.normal(0.0, 0.4, (count, 8, 8, 1)).astype(np.float32)
    for picture, label in zip(pictures, labels, strict=True):
        row, column = divmod(label, 2)
        picture[4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 0.5
    return pictures, labels


def small_network():
    return keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(8, 3, activation="relu"),
            keras.layers.MaxPooling2D(2),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.1),
            keras.layers.Dense(4, activation="softmax"),
        ]
    )


def train(until):
    resume_from_epoch = 0
    for number in range(EPOCHS, 0, -1):
        if os.path.exists(f"checkpoint-{number}.keras"):
            resume_from_epoch = number
            break
    resume_from_epoch = int(hvd.broadcast(resume_from_epoch, 0, name="resume_from_epoch"))
    scaled_lr = 0.02 * hvd.size()
    if resume_from_epoch > 0 and hvd.rank() == 0:
        model = hvd.load_model(f"checkpoint-{resume_from_epoch}.keras")
    else:
        model = small_network()
        opt = keras.optimizers.SGD(lr=scaled_lr, momentum=0.9)
        opt = hvd.DistributedOptimizer(opt)
        model.compile(
            loss="sparse_categorical_crossentropy",
            optimizer=opt,
            metrics=["accuracy"],
            experimental_run_tf_function=False,
        )
    callbacks = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        hvd.callbacks.MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=scaled_lr, warmup_epochs=2, verbose=1),
        hvd.callbacks.LearningRateScheduleCallback(
            initial_lr=scaled_lr, multiplier=1.0, start_epoch=2, end_epoch=4
        ),
        hvd.callbacks.LearningRateScheduleCallback(
            initial_lr=scaled_lr, multiplier=lambda epoch: 0.1, start_epoch=4
        ),
        keras.callbacks.ReduceLROnPlateau(patience=10),
    ]
    if hvd.rank() == 0:
        best = hvd.callbacks.BestModelCheckpoint(monitor="val_accuracy")
        best.filepath = "best.keras"
        callbacks += [keras.callbacks.ModelCheckpoint("./checkpoint-{epoch}.keras"), best]
    history = model.fit(
        *images(seed=1 + hvd.rank()),
        batch_size=BATCH,
        callbacks=callbacks,
        epochs=until,
        initial_epoch=resume_from_epoch,
        validation_data=images(seed=100, count=64),
        verbose=2 if hvd.rank() == 0 else 0,
    )
    return model, history.history, scaled_lr


hvd.init()
keras.utils.set_random_seed(hvd.rank())
train(until=3)
model, history, scaled_lr = train(until=EPOCHS)

assert len(history["loss"]) == EPOCHS - 3, "it did not go on from the checkpoint"
np.testing.assert_allclose(float(model.optimizer.lr), 0.1 * scaled_lr, rtol=1e-5)
np.testing.assert_allclose(history["lr"], [scaled_lr, 0.1 * scaled_lr, 0.1 * scaled_lr], rtol=1e-5)
weights = np.concatenate([w.ravel() for w in model.get_weights()])[None]
everybody = hvd.allgather(weights, name="weights").numpy()
assert everybody.shape[0] == hvd.size()
assert (everybody == weights).all(), "the ranks' models differ"
losses = hvd.allgather(np.array([history["loss"]]), name="losses").numpy()
assert np.ptp(losses, axis=0).max() < 1e-6, "metrics are not averaged"
score = hvd.allreduce(model.evaluate(*images(seed=100 + hvd.rank(), count=64), verbose=0)[1])
if hvd.rank() == 0:
    assert os.path.exists("best.keras")
    print(f"ok: accuracy {score:.2f}", flush=True)
assert score > 0.7
