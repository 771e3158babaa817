"""The gradients of the operations, by the rules that hvdtune.torch.differentiable explains.

The library's operations have theirs registered with TensorFlow; what Python carries out is given
them where it is called, by `differentiable`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import tensorflow as tf

from hvdtune.core.rank.collectives import ReduceOp, Reduction, native_reduce
from hvdtune.core.rank.process_sets import ProcessSet, id_of, with_id
from hvdtune.errors import UsageError
from hvdtune.tensorflow import library, operations

Tensor = Any
_AVERAGE: Final = Reduction(ReduceOp.AVERAGE)
_BY_NUMBER: Final = {native_reduce(op): op for op in ReduceOp}


def _of(name: str | None) -> str | None:
    return None if not name or name == "noname" else f"{name}.gradient"


def _check_rule(kind: str, name: str | None, reduction: Reduction) -> None:
    if reduction.op not in (ReduceOp.AVERAGE, ReduceOp.SUM):
        what = f"{kind} {name}" if name else kind
        raise UsageError(
            f"no gradient flows through {what} by {reduction.op.name.title()}, only by Average and "
            "Sum; use tf.stop_gradient() where none is wanted"
        )


def _floating(tensors: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> list[int]:
    return [
        index
        for index, (tensor, gradient) in enumerate(zip(tensors, gradients, strict=True))
        if tensor.dtype.is_floating and gradient is not None
    ]


def _spread(count: int, chosen: Sequence[int], results: Sequence[Tensor]) -> list[Tensor | None]:
    found = dict(zip(chosen, results, strict=True))
    return [found.get(index) for index in range(count)]


def of_allreduce(
    gradients: Sequence[Tensor], name: str | None, reduction: Reduction, process_set: ProcessSet
) -> list[Tensor]:
    _check_rule("allreduce", name, reduction)
    return allreduce(gradients, _of(name), reduction, process_set)


def of_allgather(
    gradients: Sequence[Tensor], rows: Sequence[Tensor], name: str | None, process_set: ProcessSet
) -> list[Tensor]:
    """Args: rows: how many this rank has given of each tensor."""
    own = _of(name)
    counts = tf.cast(tf.stack(rows), tf.int64)[tf.newaxis]
    (everyones,) = allgather([counts], f"{own}.rows" if own else None, process_set)
    position = operations.place("rank", id_of(process_set))
    before = tf.reduce_sum(everyones[:position], axis=0)
    means = allreduce(gradients, own, _AVERAGE, process_set)
    return [mean[before[i] : before[i] + counts[0, i]] for i, mean in enumerate(means)]


def of_broadcast(
    gradient: Tensor, root_rank: int, name: str | None, process_set: ProcessSet
) -> Tensor:
    (mean,) = allreduce([gradient], _of(name), _AVERAGE, process_set)
    is_root = tf.equal(operations.place("rank"), root_rank)
    return tf.where(is_root, mean, tf.zeros_like(mean))


def of_reducescatter(
    gradients: Sequence[Tensor], name: str | None, reduction: Reduction, process_set: ProcessSet
) -> list[Tensor]:
    _check_rule("reducescatter", name, reduction)
    wholes = allgather(gradients, _of(name), process_set)
    factor = tf.constant(reduction.prescale_factor * reduction.postscale_factor, tf.float64)
    if reduction.op is ReduceOp.SUM:
        factor *= tf.cast(operations.place("size", id_of(process_set)), tf.float64)
    return [whole * tf.cast(factor, whole.dtype) for whole in wholes]


Rule = Callable[..., Sequence[Tensor | None]]


def differentiable(function: Rule, rule: Rule, tensors: Sequence[Tensor]) -> list[Tensor]:
    """What `function` makes of the tensors, with `rule(tensors, outputs, gradients)` for Python's
    operations; the library's have their own."""
    if library.operations() is not None:
        return list(function(tensors))

    @tf.custom_gradient
    def call(*given: Tensor) -> Any:
        outputs = list(function(given))

        def back(*gradients: Tensor, variables: Any = None) -> Any:
            own = list(rule(given, outputs, gradients))
            return (own, []) if variables is not None else own

        return outputs, back

    result = call(*tensors)
    return list(result) if isinstance(result, list | tuple) else [result]


def allreduce(
    tensors: Sequence[Tensor], name: str | None, reduction: Reduction, process_set: ProcessSet
) -> list[Tensor]:
    """As operations.allreduce, with gradients; so are the functions below."""

    def rule(given: Any, outputs: Any, gradients: Any) -> list[Tensor | None]:
        chosen = _floating(given, gradients)
        own = of_allreduce([gradients[i] for i in chosen], name, reduction, process_set)
        return _spread(len(given), chosen, own)

    return differentiable(
        lambda given: operations.allreduce(given, name, reduction, process_set), rule, tensors
    )


def allgather(tensors: Sequence[Tensor], name: str | None, process_set: ProcessSet) -> list[Tensor]:
    def rule(given: Any, outputs: Any, gradients: Any) -> list[Tensor | None]:
        chosen = _floating(given, gradients)
        rows = [tf.shape(given[i])[0] for i in chosen]
        own = of_allgather([gradients[i] for i in chosen], rows, name, process_set)
        return _spread(len(given), chosen, own)

    return differentiable(
        lambda given: operations.allgather(given, name, process_set), rule, tensors
    )


def broadcast(tensor: Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> Tensor:
    return differentiable(
        lambda given: [operations.broadcast(given[0], root_rank, name, process_set)],
        lambda given, outputs, gradients: [
            of_broadcast(gradients[0], root_rank, name, process_set)
        ],
        [tensor],
    )[0]


def alltoall(
    tensor: Tensor, splits: Tensor | None, name: str | None, process_set: ProcessSet
) -> tuple[Tensor, Tensor]:
    output, received = differentiable(
        lambda given: operations.alltoall(given[0], splits, name, process_set),
        lambda given, outputs, gradients: [
            alltoall(gradients[0], outputs[1], _of(name), process_set)[0]
        ],
        [tensor],
    )
    return output, received


def reducescatter(
    tensors: Sequence[Tensor], name: str | None, reduction: Reduction, process_set: ProcessSet
) -> list[Tensor]:
    def rule(given: Any, outputs: Any, gradients: Any) -> list[Tensor | None]:
        chosen = _floating(given, gradients)
        own = of_reducescatter([gradients[i] for i in chosen], name, reduction, process_set)
        return _spread(len(given), chosen, own)

    return differentiable(
        lambda given: operations.reducescatter(given, name, reduction, process_set), rule, tensors
    )


def _name(op: Any) -> str | None:
    return op.get_attr("tensor_name").decode() or None


def _set(op: Any) -> ProcessSet:
    return with_id(op.get_attr("process_set"))


def _reduction(op: Any) -> Reduction:
    factors = [
        struct.unpack("<d", struct.pack("<q", op.get_attr(name)))[0]
        for name in ("prescale", "postscale")
    ]
    return Reduction(_BY_NUMBER[op.get_attr("reduce_op")], *factors)


@tf.RegisterGradient("HvdtuneAllreduce")
def _registered_of_allreduce(op: Any, *gradients: Tensor) -> list[Tensor | None]:
    chosen = _floating(op.outputs, gradients)
    given = [gradients[i] for i in chosen]
    own = of_allreduce(given, _name(op), _reduction(op), _set(op))
    return _spread(len(gradients), chosen, own)


@tf.RegisterGradient("HvdtuneReducescatter")
def _registered_of_reducescatter(op: Any, *gradients: Tensor) -> list[Tensor | None]:
    chosen = _floating(op.outputs, gradients)
    given = [gradients[i] for i in chosen]
    own = of_reducescatter(given, _name(op), _reduction(op), _set(op))
    return _spread(len(gradients), chosen, own)


@tf.RegisterGradient("HvdtuneAllgather")
def _registered_of_allgather(op: Any, *gradients: Tensor) -> list[Tensor | None]:
    chosen = _floating(op.outputs, gradients)
    rows = [tf.shape(op.inputs[i])[0] for i in chosen]
    own = of_allgather([gradients[i] for i in chosen], rows, _name(op), _set(op))
    return _spread(len(gradients), chosen, own)


@tf.RegisterGradient("HvdtuneBroadcast")
def _registered_of_broadcast(op: Any, gradient: Tensor) -> Tensor:
    return of_broadcast(gradient, op.get_attr("root_rank"), _name(op), _set(op))


@tf.RegisterGradient("HvdtuneAlltoall")
def _registered_of_alltoall(op: Any, gradient: Tensor, _: Any) -> list[Tensor | None]:
    own, _ = alltoall(gradient, op.outputs[1], _of(_name(op)), _set(op))
    return [own, None]


for _kind in ("HvdtuneJoin", "HvdtunePlace", "HvdtuneMarkStep"):
    tf.no_gradient(_kind)
