"""Callbacks of tf.keras, with Horovod's names."""

from __future__ import annotations

import tensorflow as tf

from hvdtune.keras.callback_parts import CALLBACKS, callbacks_of

__all__ = [*CALLBACKS]

(
    BroadcastGlobalVariablesCallback,
    MetricAverageCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    BestModelCheckpoint,
) = callbacks_of(tf.keras, __name__)
