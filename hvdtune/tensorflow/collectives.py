"""Collectives on TensorFlow's tensors, by Horovod's names, eagerly and inside tf.function.

Gradients flow through them by the rules that hvdtune.core.rank.collective_spec has.

`name` identifies an operation across ranks. Without one, an operation of a graph has the name of
its node, which is the same on all ranks that build the same graph; eager operations without a name
are carried out one after the other, so that every rank must call them in the same order. As in
Horovod, a name lies within the name scopes around it unless `ignore_name_scope` is given.

`device_dense` and `device_sparse` are accepted and do nothing: in a job with GPU operations an
operation is carried out where TensorFlow places it, which `tf.device` chooses, else on the CPU. See
hvdtune.core.rank.collectives for what can go wrong; every error is one of TensorFlow's, too
(hvdtune.tensorflow.errors).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import tensorflow as tf

from hvdtune.core.gradients.keras_variables import is_generator, state_on_rank
from hvdtune.core.rank import runtime
from hvdtune.core.rank.basics import Average, Sum
from hvdtune.core.rank.collective_spec import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    BROADCAST,
    COLLECTIVES,
    REDUCESCATTER,
    CollectiveSpec,
    form_of,
)
from hvdtune.core.rank.collectives import ReduceOp, Reduction, chosen_op
from hvdtune.core.rank.compression import Compressor, compressor_of
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set, id_of
from hvdtune.core.rank.variants import Function
from hvdtune.errors import UnsupportedError, UsageError
from hvdtune.tensorflow import autograd, operations
from hvdtune.tensorflow.compression import Compression
from hvdtune.tensorflow.errors import typed

Tensor = Any

__all__ = [
    "broadcast_",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "size_op",
    *(name for spec in COLLECTIVES for name in spec.names("")),
]


def public(function: Function) -> Function:
    """A function for users: its errors are TensorFlow's, too, and AutoGraph leaves it as it is.

    Translating what user functions call would take long and change nothing here.
    """
    made: Function = tf.autograph.experimental.do_not_convert(typed(function))
    return made


def reduction_of(
    average: bool | None, op: ReduceOp | int | None, prescale: float, postscale: float
) -> Reduction:
    """The reduction that a public function was asked for; a warning about `average` points at the
    caller of the function that calls this one."""
    chosen = chosen_op(op, average, stacklevel=6)
    return Reduction(chosen, prescale, postscale)


def scoped(name: str | None, ignore_name_scope: bool) -> str | None:
    """The name of an operation, within the name scopes around it unless they are ignored."""
    if name is None or ignore_name_scope:
        return name
    scope = tf.get_current_name_scope()
    return f"{scope}/{name}" if scope else name


def _tensor(value: Any) -> Tensor:
    if isinstance(value, tf.RaggedTensor | tf.SparseTensor):
        raise UnsupportedError(
            f"a {type(value).__name__} cannot be sent as one tensor; pass its parts, such as values"
        )
    return value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value)


def listed(values: Any) -> list[Tensor]:
    """The tensors of a grouped function. Raises UsageError unless they are a list of tensors."""
    return [_tensor(value) for value in _checked(values)]


def _checked(values: Any) -> Sequence[Any]:
    if isinstance(values, tf.Tensor | tf.Variable) or not isinstance(values, Sequence):
        raise UsageError("grouped functions take a list of tensors")
    return values


def waited(
    spec: CollectiveSpec,
    tensors: Sequence[Tensor],
    how: Any,
    name: str | None,
    process_set: ProcessSet,
    grouped: bool = False,
    compression: Any = Compression.none,
) -> Any:
    """The result of a collective on tensors: one, or a list for a group; see CollectiveSpec."""
    if not tensors:
        return []
    packed = [compressor_of(compression).compress(tensor) for tensor in tensors]
    given = [tensor for tensor, _ in packed]
    combined = autograd.run(spec, given, how, name, process_set)
    contexts = (context for _, context in packed)
    results = [compression.decompress(*row) for row in zip(combined, contexts, strict=True)]
    return results if grouped else results[0]


@public
def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
) -> Tensor:
    """Combines the tensor over all ranks; a new tensor of the same shape and dtype.

    For tf.IndexedSlices the rows and their indices are gathered, which is the sum or the average of
    the dense tensors.

    Args:
        average: superseded by `op`: True is hvd.Average, False hvd.Sum; warns.
        op: hvd.Average (the default), Sum, Min, Max, Product or Adasum; a gradient flows through
            the first two.
        prescale_factor: multiplies the tensor before it is combined.
        postscale_factor: multiplies the result.

    Raises:
        UsageError: the dtype cannot be combined.
        UnsupportedError: IndexedSlices with another operation than Average or Sum.
    """
    reduction = reduction_of(average, op, prescale_factor, postscale_factor)
    label = scoped(name, ignore_name_scope)
    if isinstance(tensor, tf.IndexedSlices):
        return combine_slices([tensor], label, reduction, process_set)[0]
    given = [_tensor(tensor)]
    return waited(ALLREDUCE, given, reduction, label, process_set, False, compression)


def combine_slices(
    slices: Sequence[Any], name: str | None, reduction: Reduction, process_set: ProcessSet
) -> list[Any]:
    """The slices of all ranks, one after the other, for each of several tf.IndexedSlices.

    Raises:
        UnsupportedError: another operation than Average or Sum.
    """
    if reduction.op not in (Average, Sum):
        raise UnsupportedError(
            f"op={reduction.op.name} does not support IndexedSlices. Use hvd.Average or hvd.Sum, "
            "or make them dense: tf.convert_to_tensor(), or sparse_as_dense=True."
        )
    given = [part for each in slices for part in (each.values, each.indices)]
    gathered = autograd.run(ALLGATHER, given, None, name, process_set)
    factor = reduction.prescale_factor * reduction.postscale_factor
    combined = []
    for each, values, indices in zip(slices, gathered[::2], gathered[1::2], strict=True):
        if reduction.op is Average:
            values /= tf.cast(operations.place("size", id_of(process_set)), values.dtype)
        if factor != 1.0:
            values *= tf.cast(factor, values.dtype)
        combined.append(tf.IndexedSlices(values, indices, dense_shape=each.dense_shape))
    return combined


def combine_group(
    tensors: Any,
    reduction: Reduction,
    name: str | None,
    process_set: ProcessSet,
    compression: Any,
) -> list[Any]:
    """Combines a group: each IndexedSlices is an operation of its own, the rest are one."""
    sparse: list[Any] = []
    dense: list[Any] = []
    for each in _checked(tensors):
        (sparse if isinstance(each, tf.IndexedSlices) else dense).append(each)
    given = [_tensor(each) for each in dense]
    slices = iter(combine_slices(sparse, name, reduction, process_set) if sparse else [])
    others = iter(waited(ALLREDUCE, given, reduction, name, process_set, True, compression))
    return [next(slices if isinstance(each, tf.IndexedSlices) else others) for each in tensors]


@public
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Joins the ranks' tensors along the first dimension, which may differ, in rank order."""
    label = scoped(name, ignore_name_scope)
    return waited(ALLGATHER, [_tensor(tensor)], None, label, process_set)


@public
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """Returns the root's tensor as a new tensor on every rank; `root_rank` is a rank of the job."""
    label = scoped(name, ignore_name_scope)
    return waited(BROADCAST, [_tensor(tensor)], root_rank, label, process_set)


@public
def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Overwrites variables with the root's, as many in the same order on all ranks.

    Generators of random numbers get a seed of this rank's own, as by `broadcast_variables`.

    Returns:
        The variables; inside a graph of TensorFlow 1, the operations to run.
    """
    sent = []
    for number, variable in enumerate(variables):
        label = f"{scoped(name, False) or 'variables'}.{number}"
        sent += operations.run(BROADCAST, [_tensor(variable)], root_rank, label, process_set)
    return [
        variable.assign(_on_this_rank(variable.name, value, root_rank))
        if value is not None
        else variable
        for variable, value in zip(variables, sent, strict=True)
    ]


def _on_this_rank(name: str, value: Tensor, root_rank: int) -> Tensor:
    """Return what this rank takes from the root's value, when the graph runs."""
    if not is_generator(name):
        return value

    def own(state: Any) -> Any:
        rank = runtime.rank()
        return state if rank == root_rank else state_on_rank(name, state, rank)

    taken = tf.numpy_function(own, [value], value.dtype)
    return tf.ensure_shape(taken, value.shape)


@public
def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends the first `splits[0]` rows to the first rank, the next `splits[1]` to the second ...

    Args:
        splits: rows for each rank of the process set, integers; None divides evenly.

    Returns:
        What the ranks sent here, in rank order; with `splits` also how many rows came from each, an
        int32 tensor.
    """
    label = scoped(name, ignore_name_scope)
    rows = None if splits is None else _tensor(splits)
    output, received = autograd.run(ALLTOALL, [_tensor(tensor)], rows, label, process_set)
    return output if splits is None else (output, received)


@public
def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | int = Average,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Tensor:
    """Combines the tensor over all ranks and returns this rank's part of its rows.

    Rows are divided evenly; where they do not divide, the first ranks get one more. There is no
    Adasum.
    """
    how = reduction_of(None, op, prescale_factor, postscale_factor)
    label = scoped(name, ignore_name_scope)
    return waited(REDUCESCATTER, [_tensor(tensor)], how, label, process_set, False, compression)


_WAITED: Final = (
    "waited({spec}, {tensors}, {how}, scoped(name, ignore_name_scope), process_set, {grouped})"
)


def _grouped(
    name: str, plain: Function, spec: CollectiveSpec, order: str, expression: str = _WAITED
) -> Function:
    return public(form_of(plain, spec, name, expression, order))


# Horovod's orders of parameters, and after them those of hvdtune's own.
grouped_allreduce = _grouped(
    "grouped_allreduce",
    allreduce,
    ALLREDUCE,
    "tensors average device_dense device_sparse compression op prescale_factor postscale_factor "
    "process_set ignore_name_scope name",
    "combine_group(tensors, {how}, scoped(name, ignore_name_scope), process_set, {compression})",
)
grouped_allgather = _grouped(
    "grouped_allgather", allgather, ALLGATHER, "tensors name ignore_name_scope process_set"
)
grouped_reducescatter = _grouped(
    "grouped_reducescatter",
    reducescatter,
    REDUCESCATTER,
    "tensors device_dense compression op process_set prescale_factor postscale_factor name "
    "ignore_name_scope",
    _WAITED[:-1] + ", {compression})",
)


@public
def join() -> Tensor:
    """Announces that this rank has no more data, and waits until every rank has joined.

    Returns:
        The rank that joined last, an int32.
    """
    return operations.join()


@public
def size_op(process_set_id: int = 0, name: str | None = None) -> Tensor:
    """Return the number of ranks of the process set when the graph runs, an int32."""
    return operations.place("size", process_set_id, name)


@public
def rank_op(name: str | None = None) -> Tensor:
    """This process's number when the graph runs, an int32."""
    return operations.place("rank", 0, name)


@public
def local_size_op(name: str | None = None) -> Tensor:
    """Return the number of ranks of this host when the graph runs, an int32."""
    return operations.place("local_size", 0, name)


@public
def local_rank_op(name: str | None = None) -> Tensor:
    """This process's number among the ranks of its host when the graph runs, an int32."""
    return operations.place("local_rank", 0, name)


@public
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Tensor:
    """1 where this process belongs to the process set when the graph runs, else 0; an int32."""
    return operations.place("included", process_set_id, name)
