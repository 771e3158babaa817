"""Gradients of several backward passes, added up on this rank before they travel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from hvdtune.core.gradients.options import passes_of
from hvdtune.core.gradients.variable_options import GradientOptions
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.tensorflow.gradients import key_of, scaled

Tensor = Any


class GradientSums:
    """Adds up gradients and reports when they are due, eagerly and in graphs.

    Args:
        backward_passes_per_step: number of passes after which gradients are due.
        average: return the mean of the passes' gradients, not their sum.
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
            self._count = _local_variable(tf.zeros([], tf.int64))
            self._sums = [
                None if g is None else _local_variable(tf.zeros(g.shape, g.dtype)) for g in dense
            ]

    def take(self) -> list[Tensor | None]:
        """Returns the due gradients, None for missing ones. Call it if `add` returned true."""
        sums = self.so_far()
        if not self._average:
            return sums
        return [None if total is None else total / self._passes for total in sums]

    def so_far(self) -> list[Tensor | None]:
        """Returns the sums, due or not; None for missing gradients."""
        return [None if total is None else total.read_value() for total in self._sums]

    def clear(self) -> list[Tensor]:
        """Sets the sums to zero. Call it when the result of `take` has been used."""
        return [total.assign(tf.zeros_like(total)) for total in self._sums if total is not None]


def _local_variable(value: Tensor) -> Any:
    # In a graph of TensorFlow 1 it is in no checkpoint, and not broadcast with the global ones.
    collections = [tf.compat.v1.GraphKeys.LOCAL_VARIABLES]
    return tf.compat.v1.Variable(value, trainable=False, collections=collections, use_resource=True)


def sums_of(options: GradientOptions) -> GradientSums | None:
    """Return what adds up the gradients of several passes, None where each pass is sent."""
    if options.passes == 1:
        return None
    return GradientSums(options.passes, average=options.average)


class LocalGradientAggregationHelper:
    """Adds up the gradients of several passes and combines them over all ranks when they are due.

    For optimizers that compute and apply gradients in two steps, eagerly and in graphs.

    Args:
        backward_passes_per_step: number of passes after which gradients are due.
        allreduce_func: called with gradients and their variables; returns combined gradients.
        sparse_as_dense: does nothing: tf.IndexedSlices are made dense in any case, to be added.
        average_aggregated_gradients: use the mean of the passes, not the sum.
        rank: does nothing, as `optimizer_type` and `name`.
        process_set: the ranks by whose number gradients of local variables are divided.
        scale_local_gradients: False leaves those undivided.
    """

    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Callable[[list[Tensor | None], list[Any]], Sequence[Tensor | None]],
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int = 0,
        optimizer_type: str = _OPTIMIZER_TYPE_LEGACY,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ) -> None:
        self._sums = GradientSums(backward_passes_per_step, average=average_aggregated_gradients)
        self._allreduce_grads = allreduce_func
        self._options = GradientOptions(process_set=process_set, scale_local=scale_local_gradients)
        self._is_due: Any = None

    def register_local_var(self, var: Any) -> None:
        """Keeps the gradient of this variable on this rank; it is not combined."""
        self._options.local.add(key_of(var))

    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Tensor | None]:
        """Adds gradients of these variables; returns combined ones if due, else the sums so far."""
        sums = self._sums
        self._is_due = sums.add(grads)

        def due() -> list[Tensor]:
            combined = [g for g in self._combined(sums.take(), vars) if g is not None]
            with tf.control_dependencies(combined), tf.control_dependencies(sums.clear()):
                return [tf.identity(gradient) for gradient in combined]

        with tf.control_dependencies([] if tf.executing_eagerly() else [self._is_due]):
            present = [g for g in sums.so_far() if g is not None]
        chosen = iter(tf.cond(self._is_due, due, lambda: [tf.identity(g) for g in present]))
        return [None if gradient is None else next(chosen) for gradient in grads]

    def _combined(
        self, gradients: Sequence[Tensor | None], variables: Sequence[Any]
    ) -> list[Tensor | None]:
        results = [
            None if gradient is None else scaled(gradient, self._options) for gradient in gradients
        ]
        local = self._options.local
        others = [i for i, variable in enumerate(variables) if key_of(variable) not in local]
        combined = self._allreduce_grads(
            [gradients[i] for i in others], [variables[i] for i in others]
        )
        for i, gradient in zip(others, combined, strict=True):
            results[i] = gradient
        return results

    def apply_gradients(
        self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Calls `apply_grads_closure` where what `compute_gradients` gave was due.

        Else the optimizer's `iterations` and the argument `global_step`, where they are variables,
        count up all the same.
        """
        counters: list[Any] = [getattr(optimizer, "iterations", None), kwargs.get("global_step")]

        def skip() -> Any:
            present = [counter for counter in counters if hasattr(counter, "assign_add")]
            return tf.group(*(tf.compat.v1.assign_add(c, tf.ones([], c.dtype)) for c in present))

        if tf.executing_eagerly():
            return apply_grads_closure() if bool(self._is_due) else skip()
        return tf.cond(self._is_due, lambda: tf.group(apply_grads_closure()), skip)
