"""Spans of TensorFlow's input and checkpoints in the timeline.

Input is seen where a loop takes batches out of a dataset, not where a graph does, as in Keras'
`fit`.
"""

from __future__ import annotations

import functools
from typing import Any

import tensorflow as tf

from hvdtune.core.rank import spans


def _watch_input() -> spans.Undo:
    """Watches the iterators of datasets from the first one on: making one sooner would begin
    TensorFlow's runtime, which scripts configure after `init`."""
    before = tf.data.Dataset.__iter__
    undo: list[spans.Undo] = []

    @functools.wraps(before)
    def iterate(dataset: Any) -> Any:
        iterator = before(dataset)
        if not undo:
            undo.append(spans.watch_calls(type(iterator), "__next__", spans.INPUT))
        return iterator

    def end() -> None:
        tf.data.Dataset.__iter__ = before
        while undo:
            undo.pop()()

    tf.data.Dataset.__iter__ = iterate
    return end


def watch() -> None:
    """Watches both from `init` on."""
    spans.watch(_watch_input)
    spans.watch(lambda: spans.watch_calls(tf.train.Checkpoint, "write", spans.CHECKPOINT))
