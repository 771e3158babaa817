"""What a rank does with Keras, on either backend: it fits a small model on a thread."""

from __future__ import annotations

import random
import threading
from typing import Any

import keras
import numpy as np

import hvdtune.keras as hvd
from hvdtune.core.rank import runtime
from tests.memory.programs import Program


class Fit:
    """A few steps from the same weights; all ranks end with the same ones."""

    def __init__(self, program: Program, chance: random.Random) -> None:
        self._program = program
        self._errors: list[Exception] = []
        self._found: list[str] = []
        self._model: Any = None
        self._thread: threading.Thread | None = None
        self._sevens: list[np.ndarray] = []

    def prepare(self) -> None:
        if self._model is None:
            keras.utils.set_random_seed(self._program.seed % 1000)
            self._model = keras.Sequential(
                [keras.Input((6,)), keras.layers.Dense(200), keras.layers.Dense(1)]
            )
            self._model.compile(hvd.DistributedOptimizer(keras.optimizers.SGD(0.001)), loss="mse")

    def start(self) -> None:
        generator = np.random.default_rng(runtime.rank())
        rows = generator.standard_normal((8, 6)), generator.standard_normal((8, 1))

        def run() -> None:
            try:
                self._model.fit(*rows, batch_size=4, epochs=1, verbose=0)
            except Exception as error:
                self._errors.append(error.with_traceback(None))

        self._thread = threading.Thread(target=run)
        self._thread.start()

    def finish(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def errors(self) -> list[Exception]:
        return self._errors

    def problems(self) -> list[str]:
        return self.problems_of_memory()

    def problems_of_memory(self) -> list[str]:
        total = sum(int((array != 7).sum()) for array in self._sevens)
        return [f"{total} elements changed in memory that is not in flight"] if total else []

    def digest(self) -> Any:
        if self._errors:
            return None
        return [float(np.sum(weight, dtype=np.float64)) for weight in self._model.get_weights()]

    def use_again(self) -> None:
        self._sevens += [np.full(1 << 17, 7.0, np.float32) for _ in range(4)]

    def forget(self) -> list[Any]:
        self._model, self._sevens = None, []
        return []


KINDS = {"fit": Fit}
