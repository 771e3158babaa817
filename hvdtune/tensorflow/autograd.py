"""The gradients of the operations, by the rules of hvdtune.core.rank.collective_spec.

The library's operations have theirs registered with TensorFlow; what Python carries out is given
them where it is called.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tensorflow as tf

from hvdtune.core.rank.collective_spec import (
    ALLGATHER,
    ALLREDUCE,
    COLLECTIVES,
    CollectiveSpec,
    GradientRule,
    check_has_gradient,
)
from hvdtune.core.rank.collectives import ReduceOp, Reduction
from hvdtune.core.rank.process_sets import ProcessSet, id_of, with_id
from hvdtune.tensorflow import library, operations

Tensor = Any
_AVERAGE: Final = Reduction(ReduceOp.AVERAGE)


def run(
    spec: CollectiveSpec,
    tensors: Sequence[Tensor],
    how: Any,
    name: str | None,
    process_set: ProcessSet,
) -> list[Tensor]:
    """Run a collective as operations.run does, with gradients."""
    if library.operations() is not None:
        return operations.run(spec, tensors, how, name, process_set)

    @tf.custom_gradient
    def call(*given: Tensor) -> Any:
        outputs = operations.run(spec, given, how, name, process_set)

        def back(*gradients: Tensor, variables: Any = None) -> Any:
            forward = _Forward(spec, how, name, process_set, given, outputs)
            own = forward.gradients(gradients)
            return (own, []) if variables is not None else own

        return outputs, back

    result = call(*tensors)
    return list(result) if isinstance(result, list | tuple) else [result]


@dataclass(frozen=True, eq=False)
class _Forward:
    """A collective that has been carried out, and its tensors."""

    spec: CollectiveSpec
    how: Any
    name: str | None
    process_set: ProcessSet
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]

    def gradients(self, of_outputs: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The gradients of the inputs, None for those of no floating point dtype."""
        name = None if self.name == "noname" else self.name
        check_has_gradient(self.spec, self.how, name, "tf.stop_gradient()")
        chosen = [
            index
            for index, (tensor, gradient) in enumerate(zip(self.inputs, of_outputs, strict=False))
            if tensor.dtype.is_floating and gradient is not None
        ]
        rule = _RULES[self.spec.gradient]
        own = rule(self, [of_outputs[i] for i in chosen], [self.inputs[i] for i in chosen])
        found = dict(zip(chosen, own, strict=True))
        return [found.get(index) for index in range(len(self.inputs))]

    def label(self, trail: str = "") -> str | None:
        return f"{self.name}.gradient{trail}" if self.name and self.name != "noname" else None


Tensors = list[Tensor]


def _same(forward: _Forward, gradients: Tensors, inputs: Tensors) -> Tensors:
    return run(forward.spec, gradients, forward.how, forward.label(), forward.process_set)


def _mean(forward: _Forward, gradients: Tensors) -> Tensors:
    return run(ALLREDUCE, gradients, _AVERAGE, forward.label(), forward.process_set)


def _own_rows_of_mean(forward: _Forward, gradients: Tensors, inputs: Tensors) -> Tensors:
    rows = [tf.shape(tensor)[0] for tensor in inputs]
    counts = tf.cast(tf.stack(rows), tf.int64)[tf.newaxis]
    label, process_set = forward.label(".rows"), forward.process_set
    (everyones,) = run(ALLGATHER, [counts], None, label, process_set)
    position = operations.place("rank", id_of(process_set))
    before = tf.reduce_sum(everyones[:position], axis=0)
    means = _mean(forward, gradients)
    return [mean[before[i] : before[i] + counts[0, i]] for i, mean in enumerate(means)]


def _mean_on_root(forward: _Forward, gradients: Tensors, inputs: Tensors) -> Tensors:
    is_root = tf.equal(operations.place("rank"), forward.how)
    return [tf.where(is_root, mean, tf.zeros_like(mean)) for mean in _mean(forward, gradients)]


def _sent_back(forward: _Forward, gradients: Tensors, inputs: Tensors) -> Tensors:
    rows = forward.outputs[1]
    return run(forward.spec, gradients, rows, forward.label(), forward.process_set)[:1]


def _gathered(forward: _Forward, gradients: Tensors, inputs: Tensors) -> Tensors:
    how: Reduction = forward.how
    wholes = run(ALLGATHER, gradients, None, forward.label(), forward.process_set)
    factor = tf.constant(how.prescale_factor * how.postscale_factor, tf.float64)
    if how.op is ReduceOp.SUM:
        factor *= tf.cast(operations.place("size", id_of(forward.process_set)), tf.float64)
    return [whole * tf.cast(factor, whole.dtype) for whole in wholes]


_RULES: Final[dict[GradientRule, Callable[[_Forward, Tensors, Tensors], Tensors]]] = {
    GradientRule.SAME: _same,
    GradientRule.OWN_ROWS_OF_MEAN: _own_rows_of_mean,
    GradientRule.MEAN_ON_ROOT: _mean_on_root,
    GradientRule.SENT_BACK: _sent_back,
    GradientRule.GATHERED: _gathered,
}


def _registered(spec: CollectiveSpec, op: Any, *gradients: Tensor) -> list[Tensor | None]:
    how: Any = None
    if spec.how == "reduction":
        factors = [
            struct.unpack("<d", struct.pack("<q", op.get_attr(name)))[0]
            for name in ("prescale", "postscale")
        ]
        how = Reduction(ReduceOp[op.get_attr("reduce_op").decode().upper()], *factors)
    elif spec.how == "root_rank":
        how = op.get_attr("root_rank")
    name = op.get_attr("tensor_name").decode() or None
    process_set = with_id(op.get_attr("process_set"))
    forward = _Forward(spec, how, name, process_set, list(op.inputs), list(op.outputs))
    return forward.gradients(gradients)


for _spec in COLLECTIVES:
    tf.RegisterGradient(f"Hvdtune{_spec.name.title()}")(functools.partial(_registered, _spec))
for _kind in ("HvdtuneJoin", "HvdtunePlace", "HvdtuneMarkStep"):
    tf.no_gradient(_kind)
