"""DistributedOptimizer for optimizers of Keras and of TensorFlow 1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from hvdtune.core.gradients.groups import Groups
from hvdtune.core.gradients.options import passes_of
from hvdtune.core.gradients.variable_options import GradientOptions
from hvdtune.core.rank.basics import Average
from hvdtune.core.rank.collectives import ReduceOp
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.errors import UsageError
from hvdtune.tensorflow import xla
from hvdtune.tensorflow.aggregation import LocalGradientAggregationHelper
from hvdtune.tensorflow.compression import Compression
from hvdtune.tensorflow.gradients import combine, combine_all, end_step, key_of
from hvdtune.tensorflow.tape import options_of

_V1: Any = tf.compat.v1.train.Optimizer

xla.keep_away(tf.keras)


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: ReduceOp | int = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps an optimizer so that it applies gradients combined over all ranks.

    An optimizer of Keras keeps its class, its state and its configuration; see hvdtune.keras. One
    of TensorFlow 1 (tf.compat.v1.train) has its `compute_gradients` combine.

    Args:
        optimizer: an optimizer of Keras, or of tf.compat.v1.train.
        name: of the wrapper of one of TensorFlow 1.
        use_locking: as for tf.compat.v1.train.Optimizer.
        device_dense: does nothing, as `device_sparse`.
        compression: one of hvd.Compression, or a class of your own with `compress` and
            `decompress`. IndexedSlices travel as they are.
        sparse_as_dense: makes tf.IndexedSlices dense before they are sent.
        backward_passes_per_step: passes whose gradients are added up locally before they are sent
            and applied.
        op: Average or Sum.
        gradient_predivide_factor: f divides gradients by f before they are combined and multiplies
            by f after; with op=Average only.
        average_aggregated_gradients: send the mean of the passes, not the sum.
        num_groups: deprecated; `groups` as a number.
        groups: gradients that are one operation: a list of lists of variables, or how many groups
            all gradients make up.
        process_set: the ranks whose gradients are combined; the others keep theirs.
        scale_local_gradients: gradients of variables given to `register_local_var`, which stay on
            this rank, are divided by the number of ranks, whatever `op` is.

    Raises:
        UsageError: an argument is not as above, or backward_passes_per_step is above 1 for an
            optimizer of TensorFlow 1 in TensorFlow 2, which applies gradients at once.
    """
    if not isinstance(optimizer, _V1):
        from hvdtune.keras.optimizer import DistributedOptimizer as for_keras

        return for_keras(
            optimizer,
            name,
            device_dense,
            device_sparse,
            compression,
            sparse_as_dense,
            gradient_predivide_factor,
            op,
            backward_passes_per_step,
            average_aggregated_gradients,
            num_groups,
            groups,
            process_set,
            scale_local_gradients,
        )
    if op == ReduceOp.ADASUM:
        raise UsageError(
            "TensorFlow 1 optimizers do not support Adasum; use DistributedGradientTape"
        )
    if passes_of(backward_passes_per_step) > 1 and tf.executing_eagerly():
        raise UsageError(
            "for a TensorFlow 1 optimizer, backward_passes_per_step above 1 needs a graph"
        )
    options = options_of(
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
        backward_passes_per_step,
        average_aggregated_gradients,
    )
    return _DistributedV1(optimizer, name, use_locking, options)


class _DistributedV1(_V1):
    """An optimizer of TensorFlow 1 around another one."""

    __module__ = "horovod.tensorflow"  # which programs look for in `str(optimizer)`

    def __init__(
        self, optimizer: Any, name: str | None, use_locking: bool, options: GradientOptions
    ) -> None:
        super().__init__(use_locking, name or f"Distributed{type(optimizer).__name__}")
        self._optimizer = optimizer
        self._options = options
        self._helper: LocalGradientAggregationHelper | None = None
        if options.passes > 1:
            self._helper = LocalGradientAggregationHelper(
                options.passes,
                self._combined,
                options.sparse_as_dense,
                options.average,
                process_set=options.process_set,
                scale_local_gradients=options.scale_local,
            )

    def register_local_var(self, var: Any) -> None:
        """Keeps the gradient of this variable on this rank; it is not combined."""
        self._options.local.add(key_of(var))
        if self._helper is not None:
            self._helper.register_local_var(var)

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """Compute the wrapped optimizer's gradients and combine them over all ranks."""
        pairs = list(self._optimizer.compute_gradients(*args, **kwargs))
        gradients = [gradient for gradient, _ in pairs]
        variables = [variable for _, variable in pairs]
        compute = self._combined if self._helper is None else self._helper.compute_gradients
        return list(zip(compute(gradients, variables), variables, strict=True))

    def _combined(self, gradients: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        combined = combine(gradients, variables, self._options)
        end_step(combined)
        return combined

    def _allreduce_grads(
        self,
        grads: Sequence[Any],
        vars: Sequence[Any] | None = None,
        use_generic_names: bool = False,
    ) -> list[Any]:
        """Combine gradients of these variables, local ones too, by Horovod's name."""
        return combine_all(grads, vars, self._options, use_generic_names)

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any = None, name: Any = None
    ) -> Any:
        """Apply gradients as the wrapped optimizer does, except those that are not due yet."""
        pairs = list(grads_and_vars)

        def apply() -> Any:
            return self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)

        if self._helper is None:
            return apply()
        return self._helper.apply_gradients(apply, self._optimizer, global_step=global_step)

    def get_slot(self, *arguments: Any, **options: Any) -> Any:
        """Call the wrapped optimizer's `get_slot`."""
        return self._optimizer.get_slot(*arguments, **options)

    def get_slot_names(self, *arguments: Any, **options: Any) -> Any:
        """Call the wrapped optimizer's `get_slot_names`."""
        return self._optimizer.get_slot_names(*arguments, **options)

    def variables(self, *arguments: Any, **options: Any) -> Any:
        """Call the wrapped optimizer's `variables`."""
        return self._optimizer.variables(*arguments, **options)
