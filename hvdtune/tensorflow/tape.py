"""Tapes whose gradients are combined over all ranks."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from hvdtune.core.gradients.groups import Groups
from hvdtune.core.gradients.keras_variables import variables_of
from hvdtune.core.gradients.options import reduction_of_gradients
from hvdtune.core.gradients.variable_options import GradientOptions
from hvdtune.core.rank.basics import Average
from hvdtune.core.rank.collectives import ReduceOp
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.errors import UsageError
from hvdtune.tensorflow.collectives import public
from hvdtune.tensorflow.compression import Compression
from hvdtune.tensorflow.gradients import combine, combine_all, end_step, key_of, names_of, positions


def DistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: ReduceOp | int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps a tape so that `gradient` returns gradients combined over all ranks.

    The result is also an instance of the tape's class. Each call of `gradient` is a training step
    to the tuner and the timeline.

    Args:
        gradtape: a tf.GradientTape, before or after it has recorded.
        device_dense: does nothing, as `device_sparse`.
        compression: one of hvd.Compression, or a class of your own with `compress` and
            `decompress`. IndexedSlices travel as they are.
        sparse_as_dense: makes tf.IndexedSlices dense before they are sent.
        op: Average, Sum, or Adasum.
        gradient_predivide_factor: f divides gradients by f before they are combined and multiplies
            by f after; with op=Average only.
        num_groups: deprecated; `groups` as a number.
        groups: gradients that are one operation, all or nothing: a list of lists of variables, or
            how many groups of about equal length all gradients make up in their order.
        process_set: the ranks whose gradients are combined; the others keep theirs.
        scale_local_gradients: gradients of sources given to `register_local_source`, which stay on
            this rank, are divided by the number of ranks, whatever `op` is.

    Raises:
        UsageError: an argument is not as above.
    """
    if not isinstance(gradtape, tf.GradientTape):
        raise UsageError(f"a tf.GradientTape is needed, not {type(gradtape).__name__}")
    if isinstance(gradtape, _DistributedTape):
        raise UsageError("the tape is a DistributedGradientTape already; wrap it once")
    options = options_of(
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    inner = type(gradtape)
    attributes = {"__module__": inner.__module__, "__slots__": ()}
    kind = type(inner.__name__, (_DistributedTape, inner), attributes)
    return kind(gradtape, options)


def options_of(
    compression: Any,
    sparse_as_dense: bool,
    op: ReduceOp | int,
    predivide: float,
    num_groups: int,
    groups: Groups | None,
    process_set: ProcessSet,
    scale_local: bool,
    passes: int = 1,
    average: bool = False,
) -> GradientOptions:
    """Make options of the arguments of a public function, whose caller a warning points at."""
    if num_groups != 0:
        warnings.warn("num_groups is deprecated; use groups", DeprecationWarning, stacklevel=3)
    reduction = reduction_of_gradients(op, predivide)
    chosen = num_groups if groups is None else groups
    return GradientOptions(
        compression, reduction, sparse_as_dense, chosen, process_set, scale_local, passes, average
    )


class _DistributedTape(tf.GradientTape):
    __slots__ = ("_options",)  # not in the dictionary, which other wrappers share, too

    def __init__(self, tape: tf.GradientTape, options: GradientOptions) -> None:
        # Not the base's __init__: what the tape has recorded is recorded here. One dictionary for
        # both, so that the `with` that one was made for also ends the other's recording.
        object.__setattr__(self, "__dict__", tape.__dict__)
        self._options = options

    def register_local_source(self, source: Any) -> None:
        """Keeps the gradient of this variable on this rank; it is not combined."""
        self._options.local.add(key_of(source))

    @public
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
        **options: Any,
    ) -> Any:
        """Compute tf.GradientTape.gradient and combine it over all ranks.

        Args:
            use_generic_names: gradients are named by their positions in `sources`, for ranks that
                call their variables differently.
        """
        own = super().gradient(
            target,
            sources,
            output_gradients,
            unconnected_gradients=unconnected_gradients,
            **options,
        )
        flat_sources = tf.nest.flatten(sources)
        flat = tf.nest.flatten(own, expand_composites=False)
        names = positions(flat) if use_generic_names else names_of(flat_sources)
        combined = combine(flat, flat_sources, self._options, names)
        end_step(combined)
        return tf.nest.pack_sequence_as(sources, combined)

    def get_local_and_global_gradients(
        self,
        target: Any,
        sources: Sequence[Any],
        output_gradients: Any = None,
        use_generic_names: bool = False,
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """Compute `gradient`, and separate local gradients from combined ones.

        Returns:
            Pairs of a source and its gradient, first of the local sources, then of the others.
        """
        gradients = self.gradient(target, sources, output_gradients, use_generic_names)
        local: list[tuple[Any, Any]] = []
        others: list[tuple[Any, Any]] = []
        for source, gradient in zip(sources, gradients, strict=True):
            is_local = key_of(source) in self._options.local
            (local if is_local else others).append((source, gradient))
        return local, others

    @public
    def _allreduce_grads(
        self,
        grads: Sequence[Any],
        vars: Sequence[Any] | None = None,
        use_generic_names: bool = False,
    ) -> list[Any]:
        """Combine gradients of these variables, local ones too, by Horovod's name."""
        return combine_all(grads, vars, self._options, use_generic_names)


def PartialDistributedGradientTape(
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: ReduceOp | int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Groups | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Wrap a tape as DistributedGradientTape does, but keep gradients of `local_layers` local.

    Args:
        local_layers: a Keras layer or several, whose variables differ between ranks, as parts of a
            model that is divided among them.

    Raises:
        UsageError: local_layers has something that is no layer.
    """
    tape = DistributedGradientTape(
        gradtape,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op,
        gradient_predivide_factor,
        num_groups,
        groups,
        process_set,
        scale_local_gradients,
    )
    for variable in variables_of(local_layers):
        tape.register_local_source(variable)
    return tape
