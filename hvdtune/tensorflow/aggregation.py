"""Gradients of several backward passes, added up on this rank before they travel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hvdtune.core.gradients.options import passes_of
from hvdtune.keras.backend import GradientOptions

Tensor = Any


class LocalGradientAggregationHelper:
    """Adds up gradients and says when they are due, eagerly and in graphs.

    Args:
        backward_passes_per_step: gradients are due after so many passes.
        average: what is due is the mean of the passes' gradients, not their sum.
    """

    def __init__(self, backward_passes_per_step: int, *, average: bool) -> None:
        self._passes = passes_of(backward_passes_per_step)
        self._average = average
        self._count: Any = None
        self._sums: list[Any] = []

    def add(self, gradients: Sequence[Tensor | None]) -> Tensor:
        """Adds gradients, of the same variables at each call; a bool: whether the sums are due.

        tf.IndexedSlices are made dense.
        """
        dense = [None if g is None else tf.convert_to_tensor(g) for g in gradients]
        if self._count is None:
            self._make(dense)
        changes = [self._count.assign_add(1)]
        for total, gradient in zip(self._sums, dense, strict=True):
            if gradient is not None:
                changes.append(total.assign_add(gradient))
        # A graph of TensorFlow 1 has no order of its own.
        with tf.control_dependencies([] if tf.executing_eagerly() else changes):
            return tf.equal(tf.math.floormod(self._count.read_value(), self._passes), 0)

    def _make(self, dense: Sequence[Tensor | None]) -> None:
        with tf.init_scope():
            self._count = tf.Variable(0, trainable=False, dtype=tf.int64)
            self._sums = [
                None if g is None else tf.Variable(tf.zeros(g.shape, g.dtype), trainable=False)
                for g in dense
            ]

    def take(self) -> list[Tensor | None]:
        """Returns what is due, None for what has no gradient. Call it where `add` was true."""
        sums = [None if total is None else total.read_value() for total in self._sums]
        if not self._average:
            return sums
        return [None if total is None else total / self._passes for total in sums]

    def clear(self) -> list[Tensor]:
        """Sets the sums to zero. Call it when the result of `take` has been used."""
        return [total.assign(tf.zeros_like(total)) for total in self._sums if total is not None]


def aggregation_of(options: GradientOptions) -> LocalGradientAggregationHelper | None:
    """Return what adds up the gradients of several passes, None where each pass is sent."""
    if options.passes == 1:
        return None
    return LocalGradientAggregationHelper(options.passes, average=options.average)
