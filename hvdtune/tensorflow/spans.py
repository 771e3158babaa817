"""What TensorFlow's input and checkpoints take, for the timeline.

Input is seen where a loop takes batches out of a dataset, not where a graph does, as in Keras'
`fit`.
"""

from __future__ import annotations

import tensorflow as tf

from hvdtune.core import spans
from hvdtune.core.spans import span

__all__ = ["span"]


def _watch_input() -> spans.Undo:
    iterator = type(iter(tf.data.Dataset.range(1)))  # the one of all datasets
    return spans.watch_calls(iterator, "__next__", spans.INPUT)


spans.watch(_watch_input)
spans.watch(lambda: spans.watch_calls(tf.train.Checkpoint, "write", spans.CHECKPOINT))
