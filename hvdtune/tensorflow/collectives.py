"""Collectives on TensorFlow's tensors, by Horovod's names, eagerly and inside tf.function.

Gradients flow through them by the rules that hvdtune.torch.differentiable explains.

`name` identifies an operation across ranks. Without one, an operation of a graph has the name of
its node, which is the same on all ranks that build the same graph; eager operations without a name
are carried out one after the other, so that every rank must call them in the same order. As in
Horovod, a name lies within the name scopes around it unless `ignore_name_scope` is given.

`device_dense` and `device_sparse` are accepted and do nothing: tensors in other memory than the
host's travel through host memory. See hvdtune.core.rank.collectives for what can go wrong; errors
inside tf.function arrive as TensorFlow's, with the same words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import tensorflow as tf

from hvdtune.core.rank.collectives import ReduceOp, Reduction, chosen_op
from hvdtune.core.rank.compression import compressor_of
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set, id_of
from hvdtune.errors import UsageError
from hvdtune.tensorflow import gradient_rules, operations
from hvdtune.tensorflow.compression import Compression, Compressor

Average: Final = ReduceOp.AVERAGE
Sum: Final = ReduceOp.SUM
Adasum: Final = ReduceOp.ADASUM
Min: Final = ReduceOp.MIN
Max: Final = ReduceOp.MAX
Product: Final = ReduceOp.PRODUCT

Tensor = Any

# AutoGraph would translate what user functions call, which takes long and changes nothing here.
as_it_is: Final = tf.autograph.experimental.do_not_convert


def reduction_of(
    average: bool | None, op: ReduceOp | int | None, prescale: float, postscale: float
) -> Reduction:
    """What a function that is called with these arguments combines by; for public functions only,
    as a warning about `average` points at their caller."""
    chosen = chosen_op(op, average, stacklevel=5)
    return Reduction(chosen, prescale, postscale)


def _scoped(name: str | None, ignore_name_scope: bool) -> str | None:
    if name is None or ignore_name_scope:
        return name
    scope = tf.get_current_name_scope()
    return f"{scope}/{name}" if scope else name


def _tensor(value: Any) -> Tensor:
    if isinstance(value, tf.RaggedTensor | tf.SparseTensor):
        raise UsageError(
            f"a {type(value).__name__} cannot travel as one tensor; give its parts, such as values"
        )
    return value if isinstance(value, tf.Tensor) else tf.convert_to_tensor(value)


def _tensors(values: Any) -> list[Tensor]:
    if isinstance(values, tf.Tensor | tf.Variable) or not isinstance(values, Sequence):
        raise UsageError("grouped functions take a list of at least one tensor")
    if not values:
        raise UsageError("grouped functions take a list of at least one tensor")
    return [_tensor(value) for value in values]


@as_it_is
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

    Of tf.IndexedSlices the rows and where they belong are gathered, which is the sum of what they
    stand for, or its average.

    Args:
        average: superseded by `op`: True is hvd.Average, False hvd.Sum; warns.
        op: hvd.Average (the default), Sum, Min, Max, Product or Adasum; a gradient flows through
            the first two.
        prescale_factor: multiplies the tensor before it is combined.
        postscale_factor: multiplies the result.

    Raises:
        UsageError: the dtype cannot be combined, or IndexedSlices are not by Average or Sum.
    """
    reduction = reduction_of(average, op, prescale_factor, postscale_factor)
    label = _scoped(name, ignore_name_scope)
    if isinstance(tensor, tf.IndexedSlices):
        return combine_slices(tensor, label, reduction, process_set)
    packed, context = compressor_of(compression).compress(_tensor(tensor))
    (result,) = gradient_rules.allreduce([packed], label, reduction, process_set)
    return compression.decompress(result, context)


def combine_slices(
    slices: Any, name: str | None, reduction: Reduction, process_set: ProcessSet
) -> Any:
    """The slices of all ranks, one after the other.

    Raises:
        UsageError: not by Average or Sum.
    """
    if reduction.op not in (Average, Sum):
        raise UsageError(
            "IndexedSlices are combined by Average or Sum; use tf.convert_to_tensor() for others"
        )
    given = [slices.values, slices.indices]
    values, indices = gradient_rules.allgather(given, name, process_set)
    factor = reduction.prescale_factor * reduction.postscale_factor
    if reduction.op is Average:
        size = operations.place("size", id_of(process_set))
        values /= tf.cast(size, values.dtype)
    if factor != 1.0:
        values *= tf.cast(factor, values.dtype)
    return tf.IndexedSlices(values, indices, dense_shape=slices.dense_shape)


@as_it_is
def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    ignore_name_scope: bool = False,
    name: str | None = None,
) -> list[Tensor]:
    """As allreduce for several dense tensors, in one operation."""
    reduction = reduction_of(average, op, prescale_factor, postscale_factor)
    packed = [compressor_of(compression).compress(tensor) for tensor in _tensors(tensors)]
    given = [tensor for tensor, _ in packed]
    label = _scoped(name, ignore_name_scope)
    results = gradient_rules.allreduce(given, label, reduction, process_set)
    contexts = [context for _, context in packed]
    return [compression.decompress(*row) for row in zip(results, contexts, strict=True)]


@as_it_is
def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """The ranks' tensors, joined along the first dimension in rank order, which may differ."""
    label = _scoped(name, ignore_name_scope)
    return gradient_rules.allgather([_tensor(tensor)], label, process_set)[0]


@as_it_is
def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> list[Tensor]:
    """As allgather for several tensors, each joined by itself, in one operation."""
    return gradient_rules.allgather(
        _tensors(tensors), _scoped(name, ignore_name_scope), process_set
    )


@as_it_is
def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Tensor:
    """The root's tensor, as a new tensor on every rank; `root_rank` is a rank of the job."""
    label = _scoped(name, ignore_name_scope)
    return gradient_rules.broadcast(_tensor(tensor), root_rank, label, process_set)


@as_it_is
def broadcast_(
    variables: Sequence[Any],
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[Any]:
    """Overwrites variables with the root's, as many in the same order on all ranks.

    Returns:
        The variables; inside a graph of TensorFlow 1, what has to be run for it.
    """
    sent = []
    for number, variable in enumerate(variables):
        label = f"{_scoped(name, False) or 'variables'}.{number}"
        sent.append(operations.broadcast(_tensor(variable), root_rank, label, process_set))
    return [
        variable.assign(value) if value is not None else variable
        for variable, value in zip(variables, sent, strict=True)
    ]


@as_it_is
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
    label = _scoped(name, ignore_name_scope)
    rows = None if splits is None else _tensor(splits)
    output, received = gradient_rules.alltoall(_tensor(tensor), rows, label, process_set)
    return output if splits is None else (output, received)


@as_it_is
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
    reduction = reduction_of(None, op, prescale_factor, postscale_factor)
    packed, context = compressor_of(compression).compress(_tensor(tensor))
    label = _scoped(name, ignore_name_scope)
    (result,) = gradient_rules.reducescatter([packed], label, reduction, process_set)
    return compression.decompress(result, context)


@as_it_is
def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: type[Compressor] = Compression.none,
    op: ReduceOp | int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
) -> list[Tensor]:
    """As reducescatter for several tensors, each divided by itself, in one operation."""
    reduction = reduction_of(None, op, prescale_factor, postscale_factor)
    packed = [compressor_of(compression).compress(tensor) for tensor in _tensors(tensors)]
    given = [tensor for tensor, _ in packed]
    results = gradient_rules.reducescatter(given, _scoped(name, False), reduction, process_set)
    contexts = [context for _, context in packed]
    return [compression.decompress(*row) for row in zip(results, contexts, strict=True)]


@as_it_is
def join() -> Tensor:
    """Says that this rank has no more data, and waits until every rank has said so.

    Returns:
        The rank that joined last, an int32.
    """
    return operations.join()


@as_it_is
def size_op(process_set_id: int = 0, name: str | None = None) -> Tensor:
    """How many ranks the process set has when the graph runs, an int32."""
    return operations.place("size", process_set_id, name)


@as_it_is
def rank_op(name: str | None = None) -> Tensor:
    """This process's number when the graph runs, an int32."""
    return operations.place("rank", 0, name)


@as_it_is
def local_size_op(name: str | None = None) -> Tensor:
    """How many ranks this host has when the graph runs, an int32."""
    return operations.place("local_size", 0, name)


@as_it_is
def local_rank_op(name: str | None = None) -> Tensor:
    """This process's number among the ranks of its host when the graph runs, an int32."""
    return operations.place("local_rank", 0, name)


@as_it_is
def process_set_included_op(process_set_id: int = 0, name: str | None = None) -> Tensor:
    """1 where this process belongs to the process set when the graph runs, else 0; an int32."""
    return operations.place("included", process_set_id, name)
