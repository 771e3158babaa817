"""Gradients of TensorFlow on their way: each an operation of its own, or with others.

In a graph every operation starts as soon as its gradients are computed, so that it overlaps with
the rest of the backward pass; small gradients travel together, in one operation. Eager
gradients are available at once and travel as one operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import tensorflow as tf

from hvdtune.core.gradients.groups import grouped
from hvdtune.core.gradients.keras_variables import distinct, layer_and_own, without_counters
from hvdtune.core.gradients.plan import Gradient, arrange, joint_name
from hvdtune.core.gradients.variable_options import GradientOptions
from hvdtune.core.rank import runtime
from hvdtune.core.rank.collective_spec import ALLREDUCE
from hvdtune.core.rank.process_sets import id_of
from hvdtune.tensorflow import operations
from hvdtune.tensorflow.collectives import combine_slices
from hvdtune.tensorflow.operations import OperationBatch

Tensor = Any


def key_of(variable: Any) -> int:
    """Identifies a variable, however it is wrapped: Keras has an object around each."""
    value = getattr(variable, "value", None)
    inner = variable if value is None or callable(value) else value
    return id(inner)


def positions(gradients: Sequence[Any]) -> list[str]:
    """Names of gradients that only say in what order they are."""
    return [f"gradient.{number}" for number in range(len(gradients))]


def names_of(sources: Sequence[Any]) -> list[str]:
    """Return the variables' names, all different; an unnamed one is named by its position."""
    names = []
    for source, position in zip(sources, positions(sources), strict=True):
        name = None
        if isinstance(source, tf.Variable):
            name = without_counters(source.name.partition(":")[0])
        elif not isinstance(source, tf.Tensor) and hasattr(source, "path"):
            name = layer_and_own(source.path)
        names.append(name or position)
    return distinct(names)


def combine(
    gradients: Sequence[Tensor | None],
    sources: Sequence[Any],
    options: GradientOptions,
    names: Sequence[str] | None = None,
) -> list[Tensor | None]:
    """The gradients of `sources`, combined over all ranks; None stays None.

    Every rank must call it with gradients of the same sources, None for the same ones. They travel
    by `names`, or those of the sources.
    """
    if not options.travels():
        return list(gradients)
    results: dict[int, Any] = {}
    dense: list[Gradient[int]] = []
    given: dict[int, Tensor] = {}
    contexts: dict[int, Any] = {}
    for number, (name, gradient) in enumerate(
        zip(names or names_of(sources), gradients, strict=True)
    ):
        if gradient is None:
            continue
        if key_of(sources[number]) in options.local:
            results[number] = _local(gradient, options)
            continue
        if isinstance(gradient, tf.IndexedSlices):
            if not options.sparse_as_dense:
                (results[number],) = combine_slices(
                    [gradient], name, options.reduction, options.process_set
                )
                continue
            gradient = tf.convert_to_tensor(gradient)
        given[number], contexts[number] = options.compression.compress(gradient)
        dense.append(_described(number, name, given[number]))
    results.update(_combine_dense(dense, given, sources, options))
    for number, context in contexts.items():
        results[number] = options.compression.decompress(results[number], context)
    return [results.get(number) for number in range(len(gradients))]


def combine_all(
    gradients: Sequence[Tensor | None],
    sources: Sequence[Any] | None,
    options: GradientOptions,
    use_generic_names: bool,
) -> list[Tensor | None]:
    """Like `combine`, with the gradients of local variables among them, perhaps with
    unknown sources."""
    if sources is None:
        sources, use_generic_names = gradients, True
    names = positions(gradients) if use_generic_names else names_of(sources)
    return combine(gradients, sources, replace(options, local=set()), names)


def _local(gradient: Tensor, options: GradientOptions) -> Tensor:
    if isinstance(gradient, tf.IndexedSlices):
        values = scaled(gradient.values, options)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return scaled(gradient, options)


def scaled(gradient: Any, options: GradientOptions) -> Any:
    """A gradient that stays on this rank, as it is to be applied when the graph runs."""
    if tf.executing_eagerly() or not options.travels():
        return options.scaled(gradient)
    ranks = operations.place("size", id_of(options.process_set))
    return options.scaled(gradient, tf.cast(ranks, gradient.dtype))


_LARGE: Final = 1 << 60  # of unknown shape


def _described(number: int, name: str, tensor: Tensor) -> Gradient[int]:
    count = tensor.shape.num_elements()
    nbytes = _LARGE if count is None else count * tensor.dtype.size
    dtype = tensor.dtype.base_dtype.name
    return Gradient(number, name, dtype, count or 0, nbytes, packable=count is not None)


def _combine_dense(
    rows: Sequence[Gradient[int]],
    given: dict[int, Tensor],
    sources: Sequence[Any],
    options: GradientOptions,
) -> dict[int, Tensor]:
    if not rows:
        return {}
    operations_of = _arranged(rows, sources, options)
    batch = OperationBatch.of(len(operations_of))
    results: dict[int, Tensor] = {}
    for members in operations_of:
        reduced = operations.run(
            ALLREDUCE,
            [given[row.parameter] for row in members],
            options.reduction,
            joint_name(members),
            options.process_set,
            batch,
        )
        results.update(zip((row.parameter for row in members), reduced, strict=True))
    return results


def _arranged(
    rows: Sequence[Gradient[int]], sources: Sequence[Any], options: GradientOptions
) -> list[Sequence[Gradient[int]]]:
    if tf.executing_eagerly() and not options.groups:
        return [rows]
    keys = [key_of(sources[row.parameter]) for row in rows]
    plan = arrange(rows, grouped(rows, keys, options.groups, key_of))
    return [*plan.groups, *(pack.members for pack in plan.flat_buffers)]


def dense_parts(gradients: Iterable[Any]) -> list[Tensor]:
    """One tensor of each gradient, None left out."""
    present = (gradient for gradient in gradients if gradient is not None)
    return [g.values if isinstance(g, tf.IndexedSlices) else g for g in present]


def end_step(results: Iterable[Any]) -> None:
    """A training step has ended when these gradients are combined."""
    if runtime.is_initialized():
        operations.mark_step(dense_parts(results))
