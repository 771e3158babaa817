"""TensorFlow and Keras: what an operation costs in a graph, and a step against torch's.

    python -m studies.bench.frameworks              # about 8 minutes
    python -m studies.bench.frameworks --rounds 3

**Operations.** A tf.function of 200 operations on 4 KB, one after the other, in one process:
`tf.identity`, `hvd.allreduce`, and the same 200 requests given to the core by themselves. The bar:
an allreduce takes at most three times what an identity takes, and what the core takes. TensorFlow
goes on after an asynchronous kernel in another thread, which an identity is spared: what that takes
by itself is seen in `tf.raw_ops.QueueSizeV2`, asynchronous as well and next to no work.

**Copies.** The same of 4 MB, 20 negations with and without an allreduce after each: what an
allreduce of one process adds is about what it copies, as there is nothing to combine. Beside it
torch's in place and into a new tensor. The bar: no more copies than torch's in place.

**Steps.** The CNN of studies/quickstart, in Keras by `fit` and in torch by a loop, each on one
thread: alone, without hvdtune, and as two ranks through hvdtune. How much longer a step of two
ranks takes is a matter of the machine, too, so that factor of Keras is compared with torch's. The
bar: at most 1.1 times as large.

Peers take turns; shown are medians over rounds, with the middle half as spread.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

OPERATIONS = 200
_STEPS = 60
_WARM_STEPS = 20
_BATCH = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--work", choices=("operations", "keras", "torch"), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work == "operations":
        measure_operations(arguments.rounds)
        measure_copies(arguments.rounds)
    elif arguments.work:
        step = keras_steps if arguments.work == "keras" else torch_steps
        with contextlib.suppress(KeyboardInterrupt):
            tell(step(), arguments.out)
    else:
        _run(["--work", "operations", "--rounds", str(arguments.rounds * 7)])
        compare_steps(arguments.rounds)


def _run(options: list[str], ranks: int = 0) -> None:
    launcher = ["-m", "hvdtune", "run", "-np", str(ranks), sys.executable] if ranks else []
    command = [sys.executable, *launcher, "-m", "studies.bench.frameworks", *options]
    environ = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "KERAS_BACKEND": "tensorflow"}
    subprocess.run(command, check=True, env=environ, stderr=subprocess.DEVNULL)


def spread(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def measure_operations(rounds: int) -> None:
    """Prints a table in Markdown."""
    import numpy as np
    import tensorflow as tf

    import hvdtune.tensorflow as hvd
    from hvdtune.core.rank import runtime
    from hvdtune.core.rank.collectives import ReduceOp, Reduction, allreduce_request

    hvd.init()
    values = tf.ones(1024)

    @tf.function
    def identities(tensor: Any) -> Any:
        for _ in range(OPERATIONS):
            tensor = tf.raw_ops.Identity(input=tensor)
        return tensor

    @tf.function
    def allreduces(tensor: Any) -> Any:
        for number in range(OPERATIONS):
            tensor = hvd.allreduce(tensor, op=hvd.Sum, name=f"tensor.{number}")
        return tensor

    @tf.function
    def queue_sizes(queue: Any) -> Any:
        size = tf.constant(0)
        for _ in range(OPERATIONS):
            with tf.control_dependencies([size]):
                size = tf.raw_ops.QueueSizeV2(handle=queue)
        return size

    queue = tf.queue.FIFOQueue(1, tf.float32)
    array = np.ones(1024, np.float32)
    request = allreduce_request("array", [("float32", array.shape)], Reduction(ReduceOp.SUM))
    native, address = runtime.native(), [array.ctypes.data]

    def core() -> None:
        for _ in range(OPERATIONS):
            handles: list[int] = []
            native.submit([request], address, address, handles)
            native.finish(handles, 1.0)

    peers: dict[str, Callable[[], object]] = {
        "tf.identity": lambda: identities(values),
        "tf.raw_ops.QueueSizeV2": lambda: queue_sizes(queue.queue_ref),
        "hvd.allreduce": lambda: allreduces(values),
        "the core alone": core,
    }
    samples: dict[str, list[float]] = {name: [] for name in peers}
    for round_number in range(rounds + 3):
        for name, call in peers.items():
            begin = time.perf_counter()
            call()
            if round_number >= 3:
                samples[name].append((time.perf_counter() - begin) / OPERATIONS * 1e6)
    print("| operation on 4 KB, one process | us each |\n|---|---:|")
    for name, row in samples.items():
        print(f"| {name} | {spread(row)} |")
    rows = list(zip(*samples.values(), strict=True))
    print(
        f"| allreduce / (3 identity + core) | {spread([a / (3 * i + c) for i, _, a, c in rows])} |"
    )
    print(f"| allreduce / (queue + core) | {spread([a / (q + c) for _, q, a, c in rows])} |")


def measure_copies(rounds: int) -> None:
    """Prints a table in Markdown."""
    import tensorflow as tf
    import torch

    import hvdtune.tensorflow as hvd
    import hvdtune.torch as torch_hvd

    count, elements = 20, 1 << 20
    values, tensor = tf.ones(elements), torch.ones(elements)

    @tf.function
    def negate(given: Any) -> Any:
        for _ in range(count):
            given = tf.negative(given)
        return given

    @tf.function
    def negate_and_reduce(given: Any) -> Any:
        for number in range(count):
            given = hvd.allreduce(tf.negative(given), op=hvd.Sum, name=f"large.{number}")
        return given

    def in_torch(reduce: Callable[..., Any] | None) -> None:
        for number in range(count):
            own = torch.neg(tensor)
            if reduce is not None:
                reduce(own, op=torch_hvd.Sum, name=f"torch.{number}")

    peers: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "tensorflow": (lambda: negate(values), lambda: negate_and_reduce(values)),
        "torch, in place": (lambda: in_torch(None), lambda: in_torch(torch_hvd.allreduce_)),
        "torch, a new tensor": (lambda: in_torch(None), lambda: in_torch(torch_hvd.allreduce)),
    }
    samples: dict[str, list[float]] = {name: [] for name in peers}
    for round_number in range(rounds + 3):
        for name, calls in peers.items():
            times = []
            for call in calls:
                begin = time.perf_counter()
                call()
                times.append((time.perf_counter() - begin) / count * 1e6)
            if round_number >= 3:
                samples[name].append(times[1] - times[0])
    print(
        "\n| allreduce of 4 MB, one process, beyond what makes the tensor | us each |\n|---|---:|"
    )
    for name, row in samples.items():
        print(f"| {name} | {spread(row)} |")


def compare_steps(rounds: int) -> None:
    """Prints a table in Markdown."""
    times: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds):
            for framework in ("keras", "torch"):
                for ranks in (0, 2):
                    out = Path(folder) / f"{number}.{framework}.{ranks}"
                    _run(["--work", framework, "--out", str(out)], ranks)
                    times.setdefault((framework, ranks), []).append(float(out.read_text()))
    print("\n| step | alone ms | two ranks ms | factor |\n|---|---:|---:|---:|")
    factors = {}
    for framework in ("keras", "torch"):
        alone, two = times[framework, 0], times[framework, 2]
        factors[framework] = [b / a for a, b in zip(alone, two, strict=True)]
        print(f"| {framework} | {spread(alone)} | {spread(two)} | {spread(factors[framework])} |")
    ratios = [k / t for k, t in zip(factors["keras"], factors["torch"], strict=True)]
    print(f"| keras / torch | | | {spread(ratios)} |")


def tell(times: list[float], out: Path) -> None:
    """The median step in ms, from rank 0."""
    if int(os.environ.get("HVDTUNE_RANK", "0")) == 0:
        out.write_text(str(statistics.median(times[_WARM_STEPS:]) * 1e3))


def _is_alone() -> bool:
    return "HVDTUNE_RANK" not in os.environ


def keras_steps() -> list[float]:
    """Seconds of each step."""
    import keras
    import tensorflow as tf

    from studies.quickstart.train_keras import load, make_model

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9)
    if not _is_alone():
        import hvdtune.keras as hvd

        hvd.init()
        optimizer = hvd.DistributedOptimizer(optimizer)
    images, labels, *_ = load()
    model = make_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss)
    ends: list[float] = []

    class Clock(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            ends.append(time.perf_counter())

    rows = _BATCH * 20
    epochs = (_STEPS + _WARM_STEPS) // 20
    model.fit(
        images[:rows],
        labels[:rows],
        batch_size=_BATCH,
        epochs=epochs,
        verbose=0,
        callbacks=[Clock()],
    )
    return [b - a for a, b in itertools.pairwise(ends)]


def torch_steps() -> list[float]:
    """Seconds of each step."""
    import torch

    from studies.quickstart.train_torch import load, make_model

    torch.set_num_threads(1)
    model = make_model()
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    if not _is_alone():
        import hvdtune.torch as hvd

        hvd.init()
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    images, labels, *_ = load()
    ends = []
    for number in _batches(_STEPS + _WARM_STEPS):
        rows = slice(number * _BATCH, (number + 1) * _BATCH)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[rows]), labels[rows])
        loss.backward()
        optimizer.step()
        ends.append(time.perf_counter())
    return [b - a for a, b in itertools.pairwise(ends)]


def _batches(count: int) -> Iterator[int]:
    for number in range(count):
        yield number % 20


if __name__ == "__main__":
    main()
