"""Operations on TensorFlow's tensors, eagerly and in graphs, without gradients.

Each is one of the library's, or is carried out by Python where there is no library. In a graph
operations run as soon as their inputs are there, in any order; Python's run in program order.
"""

from __future__ import annotations

import itertools
import struct
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import tensorflow as tf

from hvdtune import errors
from hvdtune.core.rank import collectives, handles, runtime
from hvdtune.core.rank.collective_spec import CollectiveSpec
from hvdtune.core.rank.collectives import (
    Reduction,
    complete,
    factor_of,
    native_reduction,
    root_of,
)
from hvdtune.core.rank.numpy_adapter import ADAPTER, require_dtype
from hvdtune.core.rank.process import PROCESS
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set, id_of, with_id
from hvdtune.tensorflow import library
from hvdtune.tensorflow.errors import plainly

Tensor = Any
_UNNAMED: Final = "noname"  # the name of eager operations, which run one after another


@dataclass(frozen=True, eq=False)
class OperationBatch:
    """Operations of a graph that the step waits for, once the last of `size` has started."""

    number: int = 0
    size: int = 1

    @classmethod
    def of(cls, size: int) -> OperationBatch:
        """Return a new batch of `size` operations; eagerly, each is waited for by itself."""
        return ALONE if size == 1 or tf.executing_eagerly() else cls(next(_batches), size)


ALONE: Final = OperationBatch()
_batches = itertools.count(1)


def _operations() -> Any:
    runtime.native()  # raises if `init` was not called
    return library.operations()


def _attributes(
    kind: str, name: str | None, process_set: ProcessSet, batch: OperationBatch = ALONE
) -> dict[str, Any]:
    if name:
        handles.check_name(name)
    if tf.executing_eagerly():
        name, node = name or _UNNAMED, None
    else:
        name, node = name and _alone_in_graph(name), f"hvdtune_{kind}"
    return {
        "tensor_name": name or "",
        "process_set": id_of(process_set),
        "batch": batch.number,
        "batch_size": batch.size,
        "name": node,
    }


def _factors(operation: str, reduction: Reduction) -> dict[str, int | str]:
    return {
        "reduce_op": native_reduction(operation, reduction.op),
        "prescale": _bits(factor_of("prescale_factor", reduction.prescale_factor)),
        "postscale": _bits(factor_of("postscale_factor", reduction.postscale_factor)),
    }


def _bits(value: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


def _device(attributes: dict[str, Any]) -> AbstractContextManager[Any]:
    """Return the device of a collective: as TensorFlow places it if the core can carry tensors in a
    GPU's memory, else on the CPU, from and to which TensorFlow copies."""
    if not tf.config.get_visible_devices("GPU"):
        return nullcontext()
    if PROCESS.has_gpu_operations() and attributes.get("reduce_op") != "adasum":
        return nullcontext()
    on_cpu: AbstractContextManager[Any] = tf.device("CPU:0")
    return on_cpu


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


def run(
    spec: CollectiveSpec,
    tensors: Sequence[Tensor],
    how: Any,
    name: str | None,
    process_set: ProcessSet,
    batch: OperationBatch = ALONE,
) -> list[Tensor]:
    """Carries out a collective on tensors, as one operation; `how` is explained in CollectiveSpec.

    The results of an alltoall are what came, and how many rows of it each rank has sent.
    """
    if name or not tf.executing_eagerly() or not runtime.is_initialized():
        return _run(spec, tensors, how, name, process_set, batch)
    with handles.Repeated(_UNNAMED, id_of(process_set)):
        return _run(spec, tensors, how, name, process_set, batch)


@plainly
def _run(
    spec: CollectiveSpec,
    tensors: Sequence[Tensor],
    how: Any,
    name: str | None,
    process_set: ProcessSet,
    batch: OperationBatch,
) -> list[Tensor]:
    for tensor in tensors:
        require_dtype(tensor.dtype.base_dtype.name)
    if spec.how == "splits":
        how = _rows(how)
    elif spec.how == "root_rank":
        how = root_of(how)
    ops = _operations()
    if ops is None:
        return _run_by_python(spec, tensors, how, name, process_set)
    given = {"tensors": list(tensors)} if spec.has_groups else {"tensor": tensors[0]}
    if spec.how:
        given |= _factors(spec.name, how) if spec.how == "reduction" else {spec.how: how}
    attributes = _attributes(spec.name, name, process_set, batch)
    process_set.rank()  # refuses the sets of other ranks
    with _device(given):
        outputs = getattr(ops, f"hvdtune_{spec.name}")(**given, **attributes)
    results = [outputs] if isinstance(outputs, tf.Tensor) else list(outputs)
    _free(results[0])
    return results


def _rows(splits: Tensor | None) -> Tensor:
    """Returns the splits as the operation takes them: no numbers divide the rows evenly."""
    if splits is None:
        return tf.constant([], tf.int64)
    if not splits.dtype.is_integer:
        kind = splits.dtype.name
        raise errors.UsageError(f"splits must be integers, one for each rank, not {kind}")
    return tf.cast(splits, tf.int64)


@plainly
def join() -> Tensor:
    """Announces that this rank has no more data; returns the last rank to join, when all have."""
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


@plainly
def place(what: str, process_set: int = 0, name: str | None = None) -> Tensor:
    """One of `_PLACES` when the graph runs, an int32."""
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


def _run_by_python(
    spec: CollectiveSpec,
    tensors: Sequence[Tensor],
    how: Any,
    name: str | None,
    process_set: ProcessSet,
) -> list[Tensor]:
    has_rows = spec.how == "splits"

    def call(*given: Any) -> list[Any]:
        arrays, told = [np.asarray(array) for array in given], how
        if has_rows:
            told = arrays.pop().tolist()
        handle = spec.start(ADAPTER, arrays, told, label, process_set, spec.has_groups)
        result = complete(handle)
        if has_rows:
            return [result[0], np.array(result[1], np.int32)]
        return list(result) if spec.has_groups else [result]

    inputs = [*tensors, how] if has_rows else list(tensors)
    if tf.executing_eagerly():
        label = name or _UNNAMED
        return [tf.convert_to_tensor(result) for result in call(*inputs)]
    if name:
        label = _alone_in_graph(name)
    else:
        label = tf.compat.v1.get_default_graph().unique_name("hvdtune")
    dtypes = [tensor.dtype for tensor in tensors] + [tf.int32] * has_rows
    results = tf.numpy_function(call, inputs, dtypes, stateful=True)
    shapes = [t.shape if spec.keeps_shape else _other_rows(t.shape) for t in tensors]
    return _shaped(list(results), shapes + [tf.TensorShape([None])] * has_rows)


def _shaped(results: Sequence[Tensor], shapes: Sequence[Any]) -> list[Tensor]:
    for result, shape in zip(results, shapes, strict=True):
        if not tf.executing_eagerly():
            result.set_shape(shape)
    return list(results)


def _other_rows(shape: Any) -> Any:
    if shape.rank is None:
        return shape
    return tf.TensorShape([None, *shape[1:]])
