"""What a rank does with TensorFlow between submission and completion.

TensorFlow's operations wait for their results, so they run on a thread, which the main thread
starts and joins; meanwhile it may do what it likes.
"""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import hvdtune.tensorflow as hvd
from hvdtune.core.rank import runtime
from hvdtune.errors import HvdtuneError
from tests.memory.programs import Call, Program
from tests.memory.values import expected, input_of, splits_of

FEATURES = 7


def apply(call: Call, number: int, tensor: Any, ranks: int) -> Any:
    """The operation's result."""
    name = f"call{number}.{call.collective}"
    if call.collective == "allreduce":
        return hvd.allreduce(tensor, op=hvd.Sum, name=name)
    if call.collective == "reducescatter":
        return hvd.reducescatter(tensor, op=hvd.Sum, name=name)
    if call.collective == "broadcast":
        return hvd.broadcast(tensor, call.root, name=name)
    if call.collective == "alltoall":
        return hvd.alltoall(tensor, splits=splits_of(call.count, ranks), name=name)[0]
    return hvd.allgather(tensor, name=name)


class Threaded:
    """Work of which each part runs on a thread of its own."""

    def __init__(self, program: Program, chance: random.Random) -> None:
        self._program = program
        self._threads: list[threading.Thread] = []
        self._errors: list[Exception] = []
        self._found: list[str] = []
        self._sevens: list[np.ndarray] = []

    def _begin(self, part: Callable[[], object]) -> None:
        def run() -> None:
            try:
                part()
            except (HvdtuneError, tf.errors.OpError) as error:
                self._errors.append(error.with_traceback(None))
            except BaseException as error:
                self._found.append(f"raised {error!r}")

        thread = threading.Thread(target=run)
        self._threads.append(thread)
        thread.start()

    def start_odd(self, odd: bool) -> None:
        tensor = tf.ones(3, tf.float64 if odd else tf.float32)
        self._begin(lambda: hvd.allreduce(tensor, op=hvd.Sum, name="odd"))

    def finish(self) -> None:
        for thread in self._threads:
            thread.join()
        self._threads = []

    def drop(self) -> None:
        """Drops what this object holds; the threads hold what they need."""
        gc.collect()
        self._sevens += [np.full(1 << 17, 7.0, np.float32) for _ in range(4)]

    def errors(self) -> list[Exception]:
        return self._errors

    def problems(self) -> list[str]:
        found, self._found = self._found, []
        return found + self.problems_of_memory()

    def problems_of_memory(self) -> list[str]:
        total = sum(int((array != 7).sum()) for array in self._sevens)
        return [f"{total} elements changed in memory that is not in flight"] if total else []

    def digest(self) -> Any:
        return None

    def use_again(self) -> None:
        self.finish()
        self._sevens += [np.full(1 << 17, 7.0, np.float32) for _ in range(4)]

    def forget(self) -> list[Any]:
        self.finish()
        self._sevens = []
        return []


class Eager(Threaded):
    """Operations on tensors, each on a thread."""

    def __init__(self, program: Program, chance: random.Random) -> None:
        super().__init__(program, chance)
        self._rows: list[tuple[Call, int, Any, np.ndarray]] = []

    def prepare(self) -> None:
        self._rows = []
        for number, call in enumerate(self._program.calls):
            values = input_of(call, number, runtime.rank())
            tensor = tf.cast(tf.constant(values), call.dtype)
            # A view of the tensor's own memory, which nobody may write.
            self._rows.append((call, number, tensor, tensor.numpy()))

    def start(self) -> None:
        for row in self._rows:
            self._begin(lambda row=row: self._check(row, self._applied(row)))
        self._rows = []

    def _applied(self, row: tuple[Call, int, Any, np.ndarray]) -> Any:
        call, number, tensor, _ = row
        return apply(call, number, tensor, self._program.size)

    def _check(self, row: tuple[Call, int, Any, np.ndarray], result: Any) -> None:
        call, number, tensor, view = row
        rank, size = runtime.rank(), self._program.size
        found = tf.cast(result, tf.float64).numpy()
        if not np.array_equal(found, expected(call, number, rank, size)):
            self._found.append(f"call {number}, {call}: wrong values")
        given = input_of(call, number, rank).astype(np.float64)
        for what in (tensor.numpy(), view):
            if not np.array_equal(what.astype(np.float64), given):
                self._found.append(f"call {number}, {call}: its input has changed")


class Graph(Eager):
    """The same operations in one graph, where they overlap and may work in place."""

    def start(self) -> None:
        rows, self._rows = self._rows, []

        @tf.function(autograph=False)
        def all_of_them(*tensors: Any) -> list[Any]:
            # Of a tensor that nobody else has, an operation may take the memory for its result.
            given = [tensor + tf.zeros_like(tensor) for tensor in tensors]
            return [
                apply(row[0], row[1], tensor, self._program.size)
                for row, tensor in zip(rows, given, strict=True)
            ]

        def run() -> None:
            results = all_of_them(*(row[2] for row in rows))
            for row, result in zip(rows, results, strict=True):
                self._check(row, result)

        self._begin(run)


class Tape(Threaded):
    """Gradients of a few variables, eagerly or in a graph."""

    def __init__(self, program: Program, chance: random.Random) -> None:
        super().__init__(program, chance)
        counts = [call.count for call in program.calls] + [100, 5]
        self._variables: list[Any] = [tf.Variable(tf.zeros(count)) for count in counts]
        self._in_graph = program.seed % 2 == 0

    def prepare(self) -> None:
        pass

    def start(self) -> None:
        variables, factor = self._variables, float(2 * runtime.rank() + 2)

        def gradients() -> list[Any]:
            with hvd.DistributedGradientTape(tf.GradientTape()) as tape:
                loss = factor * tf.add_n([tf.reduce_sum(variable) for variable in variables])
            return tape.gradient(loss, variables)

        def run() -> None:
            call = tf.function(gradients, autograph=False) if self._in_graph else gradients
            mean = self._program.size + 1.0
            for number, gradient in enumerate(call()):
                if not np.array_equal(gradient.numpy(), np.full(gradient.shape, mean, np.float32)):
                    self._found.append(f"gradient {number} has wrong values")

        self._begin(run)

    def drop(self) -> None:
        self._variables = []
        super().drop()


KINDS = {"eager": Eager, "graph": Graph, "tape": Tape}
