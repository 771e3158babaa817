"""hvdtune for tf.keras: `import hvdtune.tensorflow.keras as hvd`, with Horovod's names.

tf.keras is Keras 3, or Keras 2 where TF_USE_LEGACY_KERAS=1 and tf_keras is installed.
"""

import tensorflow as tf

from hvdtune.core.rank import basics
from hvdtune.core.rank.basics import *
from hvdtune.core.rank.objects import allgather_object, broadcast_object
from hvdtune.keras import collectives
from hvdtune.keras.broadcast import broadcast_global_variables
from hvdtune.keras.optimizer import DistributedOptimizer, load_model_of
from hvdtune.recording import start_timeline, stop_timeline
from hvdtune.tensorflow.broadcast import broadcast_variables
from hvdtune.tensorflow.compression import Compression
from hvdtune.tensorflow.keras import callbacks, elastic

__all__ = [
    *basics.__all__,
    *collectives.__all__,
    "Compression",
    "DistributedOptimizer",
    "allgather_object",
    "allreduce",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_variables",
    "callbacks",
    "elastic",
    "load_model",
    "start_timeline",
    "stop_timeline",
]

load_model = load_model_of(tf.keras)
allreduce, allgather, broadcast, reducescatter = (
    collectives.on_tensors(function, tf.convert_to_tensor)
    for function in (
        collectives.allreduce,
        collectives.allgather,
        collectives.broadcast,
        collectives.reducescatter,
    )
)
