"""Trains a small residual network on handwritten digits with Keras, data-parallel.

    hvdtune run -np 2 studies/quickstart/train_keras.py
    hvdtune run -np 2 --trials 40 studies/quickstart/train_keras.py

The data set is the one that scikit-learn ships: 1,797 real 8x8 images. The model is that of
train_torch.py, on whichever backend Keras has (KERAS_BACKEND=tensorflow or torch).
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import hvdtune.keras as hvd

# At each epoch's end TensorFlow takes down its input pipeline, which can last as long as 30 of
# these steps; so an epoch sees all images this often.
PASSES = 10


def block(images: keras.KerasTensor, outputs: int) -> keras.KerasTensor:
    """Two 3x3 convolutions with a shortcut."""
    layers = keras.layers
    out = layers.Conv2D(outputs, 3, padding="same", use_bias=False)(images)
    out = layers.ReLU()(layers.BatchNormalization()(out))
    out = layers.Conv2D(outputs, 3, padding="same", use_bias=False)(out)
    shortcut = layers.Conv2D(outputs, 1, use_bias=False)(images)
    return layers.ReLU()(layers.Add()([layers.BatchNormalization()(out), shortcut]))


def make_model() -> keras.Model:
    """37 gradient tensors, from 40 B to 2 MB; 1.2 M parameters."""
    layers = keras.layers
    images = layers.Input((8, 8, 1))
    out = layers.Conv2D(25, 3, padding="same", use_bias=False)(images)
    out = layers.ReLU()(layers.BatchNormalization()(out))
    out = layers.MaxPool2D(2)(block(out, 32))
    out = layers.MaxPool2D(2)(block(block(out, 48), 64))
    out = layers.Flatten()(block(out, 96))
    for width in (1024, 512):
        out = layers.Dense(width, activation="relu")(out)
    return keras.Model(images, layers.Dense(10)(out))


def load(test_share: float = 0.2) -> tuple[np.ndarray, ...]:
    """Train images [n, 8, 8, 1] and labels [n], then the same for the test."""
    digits = load_digits()
    images = (digits.images / 16.0).astype(np.float32)[..., np.newaxis]
    train, test = train_test_split(
        np.arange(len(digits.target)),
        test_size=test_share,
        random_state=0,
        stratify=digits.target,
    )
    return images[train], digits.target[train], images[test], digits.target[test]


def train(arguments: argparse.Namespace) -> None:
    keras.utils.set_random_seed(arguments.seed)
    images, labels, test_images, test_labels = load()
    steps = len(labels) // hvd.size() // arguments.batch_size
    own = slice(hvd.rank(), steps * arguments.batch_size * hvd.size(), hvd.size())
    rate = arguments.lr * hvd.size()
    optimizer = keras.optimizers.SGD(rate, momentum=0.9, weight_decay=1e-4)
    model = make_model()
    model.compile(
        hvd.DistributedOptimizer(optimizer),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        np.tile(images[own], (PASSES, 1, 1, 1)),
        np.tile(labels[own], PASSES),
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        verbose=0,
        callbacks=[
            hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank=0),
            hvd.callbacks.MetricAverageCallback(),
            keras.callbacks.LambdaCallback(on_epoch_end=tell),
        ],
    )
    accuracy = model.evaluate(test_images, test_labels, verbose=0)[1]
    accuracy = hvd.allreduce(accuracy)  # batch norm statistics differ a little between ranks
    if hvd.rank() == 0:
        print(f"test accuracy {accuracy:.2%} on {len(test_labels)} digits", flush=True)


def tell(epoch: int, logs: dict[str, float]) -> None:
    if hvd.rank() == 0 and (epoch + 1) % 2 == 0:
        print(f"epoch {epoch + 1:2d}  loss {logs['loss']:.4f}", flush=True)


def use_one_thread() -> None:
    """The ranks share the cores."""
    if keras.backend.backend() == "torch":
        import torch

        torch.set_num_threads(1)
    else:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=20, help="of ten passes each")
    parser.add_argument("--batch-size", type=int, default=32, help="images per step")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    hvd.init()
    use_one_thread()
    train(arguments)


if __name__ == "__main__":
    main()
