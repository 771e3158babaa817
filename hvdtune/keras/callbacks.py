"""Callbacks of Keras, with Horovod's names."""

from __future__ import annotations

from typing import Any

import keras

from hvdtune.keras.callback_parts import (
    BroadcastPart,
    LearningRatePart,
    MetricAveragePart,
    WarmupPart,
)

__all__ = [
    "BestModelCheckpoint",
    "BroadcastGlobalVariablesCallback",
    "LearningRateScheduleCallback",
    "LearningRateWarmupCallback",
    "MetricAverageCallback",
]


class BroadcastGlobalVariablesCallback(BroadcastPart, keras.callbacks.Callback):
    __doc__ = BroadcastPart.__doc__


class MetricAverageCallback(MetricAveragePart, keras.callbacks.Callback):
    __doc__ = MetricAveragePart.__doc__


class LearningRateScheduleCallback(LearningRatePart, keras.callbacks.Callback):
    __doc__ = LearningRatePart.__doc__


class LearningRateWarmupCallback(WarmupPart, keras.callbacks.Callback):
    __doc__ = WarmupPart.__doc__


class BestModelCheckpoint(keras.callbacks.ModelCheckpoint):
    """Keeps the best model of a training, in `filepath`, an attribute that can be set.

    Args:
        monitor: the metric by which models are compared.
        verbose: 1 prints when a model is kept.
        mode: "min", "max" or "auto", for whether less of the metric is better.
        save_freq: "epoch", or every so many batches.
        save_weights_only: keeps weights only.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        mode: str = "auto",
        save_freq: Any = "epoch",
        save_weights_only: bool = False,
    ) -> None:
        super().__init__(
            "best.weights.h5" if save_weights_only else "best.keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )
