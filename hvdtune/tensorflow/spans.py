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
    # Not the type of an iterator made here: making one settles which devices and threads
    # TensorFlow has, and scripts choose theirs after `init`, by rank.
    kinds = tf.data.Iterator.__subclasses__()
    undos = [spans.watch_calls(kind, "__next__", spans.INPUT) for kind in kinds]

    def undo_all() -> None:
        for undo in undos:
            undo()

    return undo_all


spans.watch(_watch_input)
spans.watch(lambda: spans.watch_calls(tf.train.Checkpoint, "write", spans.CHECKPOINT))
