"""Elastic training with tf.keras: Horovod's `hvd.elastic`."""

from __future__ import annotations

import tensorflow as tf

from hvdtune.core.elastic.parts import PerRank
from hvdtune.keras.callback_parts import callbacks_of
from hvdtune.keras.elastic_parts import ELASTIC_CALLBACKS, KerasState, run

__all__ = [*ELASTIC_CALLBACKS, "KerasState", "PerRank", "run"]

CommitStateCallback, UpdateBatchStateCallback, UpdateEpochStateCallback = callbacks_of(
    tf.keras, __name__, ELASTIC_CALLBACKS
)
