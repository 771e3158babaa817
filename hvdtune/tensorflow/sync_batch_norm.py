"""Batch normalization whose statistics are of the batches of all ranks."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from hvdtune.core.rank.collective_spec import ALLREDUCE
from hvdtune.core.rank.collectives import ReduceOp, Reduction
from hvdtune.core.rank.process import PROCESS
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.errors import UsageError
from hvdtune.tensorflow import autograd

_SUM = Reduction(ReduceOp.SUM)


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """Batch normalization over the joined batch of all ranks of a process set.

    In training, ranks whose batches have different sizes get what tf.keras.layers.
    BatchNormalization would give on the batch of all. Every rank must call it as often; each call
    costs two collectives forward, and two backward. In evaluation nothing is communicated.

    Args:
        fused: False; accepted because Horovod's users had to give it.
        process_set: the ranks whose batches belong together.
        kwargs: as for BatchNormalization.

    Raises:
        UsageError: fused is not False.
    """

    def __init__(
        self, fused: bool = False, process_set: ProcessSet = global_process_set, **kwargs: Any
    ) -> None:
        if fused:
            raise UsageError("SyncBatchNormalization has no fused version; remove fused=True")
        super().__init__(**kwargs)
        self._hvd_process_set = process_set

    def _moments(self, inputs: Any, *arguments: Any, **options: Any) -> Any:
        mean, variance = super()._moments(inputs, *arguments, **options)
        process_set = self._hvd_process_set
        if process_set.size() == 1 and PROCESS.worker is None:
            return mean, variance
        count = self._rows(inputs, *arguments, **options)
        wide = tf.float64 if mean.dtype == tf.float64 else tf.float32
        own, spread = tf.cast(mean, wide), tf.cast(variance, wide)
        # One after the other: a variance by way of mean squares would cancel.
        name = f"{self.name}.statistics"
        total, weighted = self._sum([count, own * tf.cast(count, wide)], f"{name}.mean")
        joint = weighted / tf.cast(total, wide)
        off = tf.cast(count, wide) * (spread + tf.square(own - joint))
        (squares,) = self._sum([off], f"{name}.variance")
        return tf.cast(joint, mean.dtype), tf.cast(squares / tf.cast(total, wide), variance.dtype)

    def _sum(self, tensors: list[Any], name: str) -> list[Any]:
        scope = tf.get_current_name_scope()
        label = f"{scope}/{name}" if scope else name
        return autograd.run(ALLREDUCE, tensors, _SUM, label, self._hvd_process_set)

    def _rows(self, inputs: Any, *arguments: Any, **options: Any) -> Any:
        """Return how many values each mean is of."""
        mask = options.get("mask", arguments[0] if arguments else None)
        if isinstance(mask, tf.Tensor):
            return tf.reduce_sum(tf.cast(mask, tf.float32))
        axis = self.axis[0] if isinstance(self.axis, list | tuple) else self.axis
        return tf.cast(tf.size(inputs) / tf.shape(inputs)[axis], tf.float32)
