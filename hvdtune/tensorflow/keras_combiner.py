"""Gradients of Keras on TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from hvdtune.core.gradients.variable_options import GradientOptions
from hvdtune.tensorflow.aggregation import sums_of
from hvdtune.tensorflow.gradients import combine, dense_parts, end_step, key_of


class KerasCombiner:
    """Implements hvdtune.keras.backend.Combiner."""

    def __init__(self, options: GradientOptions) -> None:
        self._options = options
        self._sums = sums_of(options)

    def register_local(self, variable: Any) -> None:
        self._options.local.add(key_of(variable))

    def apply(
        self,
        gradients: Sequence[Any],
        variables: Sequence[Any],
        step: Callable[[list[Any]], None],
        skip: Callable[[], None],
    ) -> None:
        sums = self._sums
        if sums is None:
            self._combine(gradients, variables, step)
            return
        is_due = sums.add(gradients)

        def due() -> Any:
            self._combine(sums.take(), variables, step)
            sums.clear()
            return tf.constant(True)

        def not_due() -> Any:
            skip()
            return tf.constant(False)

        if tf.executing_eagerly():
            due() if bool(is_due) else not_due()
        else:
            tf.cond(is_due, due, not_due)

    def _combine(
        self, gradients: Sequence[Any], variables: Sequence[Any], step: Callable[[list[Any]], None]
    ) -> None:
        combined = combine(gradients, variables, self._options)
        # TensorFlow 2.21 optimizes graphs so that a gradient may be computed with weights that are
        # updated already, unless a dependency puts all gradients first.
        with tf.control_dependencies([] if tf.executing_eagerly() else dense_parts(combined)):
            step(combined)
        end_step(combined)
