"""Callbacks of Keras, with Horovod's names."""

from __future__ import annotations

import keras

from hvdtune.core.rank.variants import reordered
from hvdtune.keras.callback_parts import CALLBACKS, callbacks_of

__all__ = [*CALLBACKS]

(
    BroadcastGlobalVariablesCallback,
    MetricAverageCallback,
    LearningRateScheduleCallback,
    LearningRateWarmupCallback,
    BestModelCheckpoint,
) = callbacks_of(keras, __name__)
_ORDER = "self monitor verbose mode save_freq save_weights_only"
BestModelCheckpoint.__init__ = reordered(BestModelCheckpoint.__init__, _ORDER)
