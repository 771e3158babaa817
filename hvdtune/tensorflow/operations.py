"""Operations on TensorFlow's tensors, eagerly and in graphs, without gradients.

Each is one of the library's, or is carried out by Python where there is no library. In a graph
operations run as soon as their inputs are there, in any order; Python's run in program order.
"""

from __future__ import annotations

import functools
import itertools
import struct
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np
import tensorflow as tf

from hvdtune import errors
from hvdtune.core.rank import collectives, handles, runtime
from hvdtune.core.rank.collectives import (
    ReduceOp,
    Reduction,
    factor_of,
    native_reduce,
    root_of,
    synchronize,
)
from hvdtune.core.rank.numpy_adapter import ADAPTER, require_dtype
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set, id_of, with_id
from hvdtune.tensorflow import library

Tensor = Any
Params = ParamSpec("Params")
Result = TypeVar("Result")

_PAYLOAD: Final = b"hvdtune"
_ERRORS: Final = (
    errors.CollectiveError,
    errors.UsageError,
    errors.MismatchError,
    errors.DuplicateNameError,
    errors.RankLostError,
    errors.ShutdownError,
    errors.HangError,
    errors.CollectiveError,
)
"""By their numbers in hvdtune_error of csrc/runtime/framework_api.h."""


@dataclass(frozen=True)
class Batch:
    """Operations of a graph after which the step waits; the last of `size` that starts says so."""

    number: int = 0
    size: int = 1

    @classmethod
    def of(cls, size: int) -> Batch:
        """A new one."""
        return cls(next(_batches), size) if size > 1 else ALONE


ALONE: Final = Batch()
_batches = itertools.count(1)


def typed_error(error: Any) -> Exception:
    """What hvdtune raises for an error of one of its operations; other errors as they are."""
    payload = error.experimental_payloads.get(_PAYLOAD)
    if payload is None:
        unchanged: Exception = error
        return unchanged
    number, rank, length, text = payload.split(b" ", 3)
    tensor, message = text[: int(length)].decode(), text[int(length) :].decode()
    kind = _ERRORS[int(number)]
    if issubclass(kind, errors.CollectiveError):
        return kind(message, int(rank), tensor)
    return kind(message)


def _typed(function: Callable[Params, Result]) -> Callable[Params, Result]:
    """Has what fails at once fail with hvdtune's own errors."""

    @functools.wraps(function)
    def call(*arguments: Params.args, **options: Params.kwargs) -> Result:
        try:
            return function(*arguments, **options)
        except tf.errors.OpError as error:
            raise typed_error(error) from None

    return call


def _operations() -> Any:
    runtime.native()  # says what to do where `init` was not called
    return library.operations()


def _attributes(
    kind: str, name: str | None, process_set: ProcessSet, batch: Batch = ALONE
) -> dict[str, Any]:
    if name:
        handles.check_name(name)
    if tf.executing_eagerly():
        name, node = name or "noname", None
    else:
        name, node = name and _alone_in_graph(name), f"hvdtune_{kind}"
    return {
        "tensor_name": name or "",
        "process_set": id_of(process_set),
        "batch": batch.number,
        "batch_size": batch.size,
        "name": node,
    }


def _factors(reduction: Reduction) -> dict[str, int]:
    return {
        "reduce_op": native_reduce(reduction.op),
        "prescale": _bits(factor_of("prescale_factor", reduction.prescale_factor)),
        "postscale": _bits(factor_of("postscale_factor", reduction.postscale_factor)),
    }


def _bits(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


_names_in_graph: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()


def _alone_in_graph(name: str) -> str:
    """The name, or one made of it that no other operation of this graph has.

    What a graph does twice may be under way at once, in an order that differs between ranks: two
    tapes with gradients of the same variables, two operations that the script calls the same.
    """
    taken = _names_in_graph.setdefault(tf.compat.v1.get_default_graph(), set())
    number, found = 1, name
    while found in taken:
        number, found = number + 1, f"{name}.{number + 1}"
    taken.add(found)
    return found


def _free(output: Tensor) -> None:
    """Keeps a graph from carrying out operations in the order in which the program names them."""
    graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
    order = getattr(graph, "experimental_acd_manager", None)
    if order is not None:
        order.run_independently(output.op)


def _check(tensors: Sequence[Tensor]) -> None:
    for tensor in tensors:
        require_dtype(tensor.dtype.base_dtype.name)


def _check_included(process_set: ProcessSet) -> None:
    id_of(process_set)
    if not process_set.included():
        raise errors.UsageError(f"rank {runtime.rank()} does not belong to {process_set}")


@_typed
def allreduce(
    tensors: Sequence[Tensor],
    name: str | None,
    reduction: Reduction,
    process_set: ProcessSet,
    batch: Batch = ALONE,
) -> list[Tensor]:
    """Combines each tensor over the ranks; one operation for all."""
    _check(tensors)
    ops = _operations()
    if ops is None:
        results = _by_python(
            lambda arrays, label: synchronize(
                collectives.allreduce_async(
                    ADAPTER, arrays, _like(arrays), label, reduction, process_set
                )
            ),
            tensors,
            [tensor.dtype for tensor in tensors],
            name,
        )
        return _shaped(results, [tensor.shape for tensor in tensors])
    _check_included(process_set)
    attributes = _attributes("allreduce", name, process_set, batch)
    outputs = ops.hvdtune_allreduce(tensors=list(tensors), **_factors(reduction), **attributes)
    _free(outputs[0])
    return list(outputs)


@_typed
def reducescatter(
    tensors: Sequence[Tensor], name: str | None, reduction: Reduction, process_set: ProcessSet
) -> list[Tensor]:
    """Combines each tensor over the ranks, and leaves this rank its part of the rows."""
    _check(tensors)
    if reduction.op is ReduceOp.ADASUM:
        raise errors.UsageError(
            "reducescatter combines by Average, Sum, Min, Max or Product, not Adasum"
        )
    ops = _operations()
    if ops is None:
        results = _by_python(
            lambda arrays, label: synchronize(
                collectives.reducescatter_async(ADAPTER, arrays, label, reduction, process_set)
            ),
            tensors,
            [tensor.dtype for tensor in tensors],
            name,
        )
        return _shaped(results, [_other_rows(tensor.shape) for tensor in tensors])
    _check_included(process_set)
    attributes = _attributes("reducescatter", name, process_set)
    outputs = ops.hvdtune_reducescatter(tensors=list(tensors), **_factors(reduction), **attributes)
    _free(outputs[0])
    return list(outputs)


@_typed
def allgather(tensors: Sequence[Tensor], name: str | None, process_set: ProcessSet) -> list[Tensor]:
    """Joins the ranks' tensors along the first dimension, one by one."""
    _check(tensors)
    ops = _operations()
    if ops is None:
        results = _by_python(
            lambda arrays, label: synchronize(
                collectives.allgather_async(ADAPTER, arrays, label, process_set)
            ),
            tensors,
            [tensor.dtype for tensor in tensors],
            name,
        )
        return _shaped(results, [_other_rows(tensor.shape) for tensor in tensors])
    _check_included(process_set)
    attributes = _attributes("allgather", name, process_set)
    outputs = ops.hvdtune_allgather(tensors=list(tensors), **attributes)
    _free(outputs[0])
    return list(outputs)


@_typed
def broadcast(tensor: Tensor, root_rank: int, name: str | None, process_set: ProcessSet) -> Tensor:
    """The root's tensor on every rank."""
    _check([tensor])
    root = root_of(root_rank)
    ops = _operations()
    if ops is None:
        (result,) = _by_python(
            lambda arrays, label: [
                synchronize(
                    collectives.broadcast_async(
                        ADAPTER, arrays[0], _like(arrays)[0], root, label, process_set
                    )
                )
            ],
            [tensor],
            [tensor.dtype],
            name,
        )
        return _shaped([result], [tensor.shape])[0]
    _check_included(process_set)
    attributes = _attributes("broadcast", name, process_set)
    output = ops.hvdtune_broadcast(tensor=tensor, root_rank=root, **attributes)
    _free(output)
    return output


@_typed
def alltoall(
    tensor: Tensor, splits: Tensor | None, name: str | None, process_set: ProcessSet
) -> tuple[Tensor, Tensor]:
    """Sends `splits[i]` rows to rank i of the set; what came, and how many rows from each."""
    _check([tensor])
    if splits is not None and not splits.dtype.is_integer:
        kind = splits.dtype.name
        raise errors.UsageError(f"splits must be integers, one for each rank, not {kind}")
    rows = tf.constant(0, tf.int64) if splits is None else tf.cast(splits, tf.int64)
    ops = _operations()
    if ops is None:

        def exchange(arrays: list[Any], label: str | None) -> list[Any]:
            counts = None if splits is None else arrays[1].tolist()
            output, received = synchronize(
                collectives.alltoall_async(ADAPTER, arrays[0], counts, label, process_set)
            )
            return [output, np.array(received, np.int32)]

        output, received = _by_python(exchange, [tensor, rows], [tensor.dtype, tf.int32], name)
        shapes = [_other_rows(tensor.shape), tf.TensorShape([None])]
        return tuple(_shaped([output, received], shapes))
    _check_included(process_set)
    attributes = _attributes("alltoall", name, process_set)
    output, received = ops.hvdtune_alltoall(tensor=tensor, splits=rows, **attributes)
    _free(output)
    return output, received


@_typed
def join() -> Tensor:
    """Says that this rank has no more data; the rank that joined last, when all have."""
    ops = _operations()
    if ops is None or tf.executing_eagerly():
        return tf.py_function(lambda: collectives.join(), [], tf.int32)
    output = ops.hvdtune_join(**_attributes("join", "noname", global_process_set))
    _free(output)
    return output


_PLACES: Final[dict[str, Callable[[int], int]]] = {
    "size": lambda number: with_id(number).size(),
    "rank": lambda number: with_id(number).rank() if with_id(number).included() else -1,
    "included": lambda number: int(with_id(number).included()),
    "local_size": lambda number: runtime.local_size(),
    "local_rank": lambda number: runtime.local_rank(),
}


@_typed
def place(what: str, process_set: int = 0, name: str | None = None) -> Tensor:
    """Of `_PLACES`, an int32, as it is when the graph runs."""
    ops = _operations()
    if ops is None:
        number = tf.py_function(lambda: _PLACES[what](process_set), [], tf.int32)
        return _shaped([number], [tf.TensorShape([])])[0]
    return ops.hvdtune_place(what=what, process_set=process_set, name=name)


def mark_step(after: Sequence[Tensor]) -> None:
    """A training step ends when these tensors are there."""
    if tf.executing_eagerly():
        runtime.mark_step()
        return
    ops = _operations()
    with tf.control_dependencies(after):
        if ops is None:
            tf.py_function(runtime.mark_step, [], [])
        else:
            ops.hvdtune_mark_step()


def _by_python(
    function: Callable[[list[Any], str | None], Sequence[Any]],
    tensors: Sequence[Tensor],
    dtypes: Sequence[Any],
    name: str | None,
) -> list[Tensor]:
    """What `function` makes of arrays and a name: at once, or whenever the graph runs."""
    if tf.executing_eagerly():
        results = function([np.asarray(tensor) for tensor in tensors], name or "noname")
        return [tf.convert_to_tensor(result) for result in results]
    if name:
        label = _alone_in_graph(name)
    else:
        label = tf.compat.v1.get_default_graph().unique_name("hvdtune")

    def call(*arrays: Any) -> list[Any]:
        return list(function([np.asarray(array) for array in arrays], label))

    results = tf.numpy_function(call, list(tensors), list(dtypes), stateful=True)
    return list(results)


def _like(arrays: Sequence[Any]) -> list[Any]:
    return [np.empty_like(array, order="C") for array in arrays]


def _shaped(results: Sequence[Tensor], shapes: Sequence[Any]) -> list[Tensor]:
    for result, shape in zip(results, shapes, strict=True):
        if not tf.executing_eagerly():
            result.set_shape(shape)
    return list(results)


def _other_rows(shape: Any) -> Any:
    if shape.rank is None:
        return shape
    return tf.TensorShape([None, *shape[1:]])
