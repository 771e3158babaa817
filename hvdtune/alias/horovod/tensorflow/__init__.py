"""hvdtune.tensorflow by Horovod's name: the same objects."""

import importlib

import tensorflow as tf

from hvdtune.keras import keras2_compat
from hvdtune.tensorflow import *

keras2_compat.keep(tf.keras)

# Last, because hvdtune.tensorflow has modules of the same names.
for _name in ("compression", "elastic", "functions", "mpi_ops", "sync_batch_norm"):
    importlib.import_module(f".{_name}", __name__)
