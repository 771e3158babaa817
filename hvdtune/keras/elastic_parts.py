"""Elastic training with whichever Keras: the State, the loop and what the callbacks do."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

from hvdtune.core.elastic import loop
from hvdtune.core.elastic.randomness import dealt_seed, first_seed
from hvdtune.core.elastic.state import ObjectState, check_names
from hvdtune.core.gradients.keras_variables import SEED_STATE
from hvdtune.core.rank import runtime
from hvdtune.core.rank.objects import broadcast_object
from hvdtune.errors import CollectiveError, UsageError
from hvdtune.keras.broadcast import array_of, broadcast_variables, training_variables

T = TypeVar("T")


class VariablesState(ObjectState):
    """A State of variables and plain objects; a base to derive from.

    A commit copies the variables' values.

    Args:
        kwargs: the plain objects, with their first values.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._saved_values: list[tuple[Any, Any]] = []
        self._first_seed = first_seed()
        super().__init__(broadcast_object, runtime.rank, **kwargs)
        self._save_variables()

    def kept_variables(self) -> list[Any]:
        """Return the variables to keep, the same number in the same order on all ranks."""
        raise NotImplementedError

    def save(self) -> None:
        self._save_variables()
        super().save()

    def restore(self) -> None:
        for variable, value in self._saved_values:
            self.write(variable, value)
        super().restore()

    def sync(self) -> None:
        self.send()
        self._sync_attributes()
        self._save_what_is_right()

    def snapshot(self) -> Any:
        values = [value for _, value in self._saved_values]
        return {"variables": values, "objects": super().snapshot()}

    def adopt(self, snapshot: Any) -> None:
        variables, values = self.kept_variables(), snapshot["variables"]
        own = [value.shape for value in self.read(variables)]
        found = [value.shape for value in values]
        if own != found:
            raise UsageError(
                f"The commit contains variables of the shapes {found}; those of this training "
                f"have the shapes {own}"
            )
        check_names(snapshot["objects"], self._saved_state)
        self._saved_values = list(zip(variables, values, strict=True))
        self._saved_state = dict(snapshot["objects"])
        self.restore()

    def send(self) -> None:
        """Gives all ranks the values of rank 0."""
        broadcast_variables(self.kept_variables(), 0)

    def read(self, variables: list[Any]) -> list[Any]:
        """Copies of the variables' values."""
        return [array_of(variable) for variable in variables]

    def write(self, variable: Any, value: Any) -> None:
        """Gives a variable a value."""
        variable.assign(value)

    def seed(self) -> int:
        return self._first_seed

    def deal_randomness(self, seed: int, commits: int) -> None:
        number = dealt_seed(seed, commits, runtime.rank()) % 2**32
        random.seed(number)
        np.random.seed(number)
        self.seed_framework(number)
        generators = [row for row in self.kept_variables() if _is_generator(row)]
        for index, variable in enumerate(generators):
            words = dealt_seed(seed, commits, runtime.rank(), index)
            # Keras keeps the seed and how often it was used.
            values = np.array([words % 2**32, 0], dtype=np.uint32)
            self.write(variable, values.astype(array_of(variable).dtype))

    def seed_framework(self, number: int) -> None:
        """Seeds the framework's own generators with a number of 32 bits."""

    def _save_variables(self) -> None:
        variables = self.kept_variables()
        self._saved_values = list(zip(variables, self.read(variables), strict=True))


class KerasState(VariablesState):
    """A State of a model of Keras, its optimizer and whatever else is given by name.

    `state.model` and `state.optimizer` are these. After a change of ranks the generators of random
    numbers (Python's, NumPy's, the framework's, and those of layers such as Dropout) are seeded
    from rank 0's first state, the number of commits and the rank, so that the same changes at the
    same commits give the same numbers.

    Args:
        model: a model whose variables exist.
        optimizer: its optimizer, where it is not compiled with it.
        kwargs: plain objects with their first values.

    Raises:
        UsageError: the model has no variables yet.
    """

    def __init__(self, model: Any, optimizer: Any = None, **kwargs: Any) -> None:
        if not getattr(model, "built", False):
            raise UsageError(
                "The model has no variables yet, and a State must contain them: call "
                "model.build(input_shape) first"
            )
        self.model = model
        self.optimizer = optimizer if optimizer is not None else getattr(model, "optimizer", None)
        _build(self.optimizer, model)
        super().__init__(**kwargs)

    def kept_variables(self) -> list[Any]:
        return training_variables(self.model, self.optimizer)

    def seed_framework(self, number: int) -> None:
        _keras_of(self.model).utils.set_random_seed(number)


def _is_generator(variable: Any) -> bool:
    return getattr(variable, "name", "") == SEED_STATE


def _build(optimizer: Any, model: Any) -> None:
    """Makes an optimizer's variables: a newcomer has as many as those who have trained."""
    if optimizer is None or getattr(optimizer, "built", getattr(optimizer, "_built", False)):
        return
    trained, keras = model.trainable_variables, _keras_of(model)
    if hasattr(keras, "name_scope"):
        with keras.name_scope(optimizer.name, caller=optimizer):
            optimizer.build(trained)
        optimizer.built = True
        return
    # Of Keras 2: those of optimizers.legacy have no `build`.
    tensorflow: Any = sys.modules["tensorflow"]
    name = getattr(optimizer, "name", None) or optimizer._name
    with tensorflow.init_scope(), tensorflow.name_scope(name):
        make = getattr(optimizer, "build", None) or optimizer._create_all_weights
        make(trained)


def _keras_of(model: Any) -> Any:
    """The module that a model comes from, keras or tf_keras."""
    legacy: Any = sys.modules.get("tf_keras")
    if legacy is not None and isinstance(model, legacy.Model):
        return legacy
    return sys.modules["keras"]


def run(func: Callable[..., T]) -> Callable[..., T]:
    """Decorates a training function, so that it goes on when ranks come and go.

    The function's first argument is a State. It calls `fit` for what is left of the training, and
    is called anew in every generation of the job:

        @hvd.elastic.run
        def train(state):
            model.fit(data, initial_epoch=state.epoch, epochs=epochs, callbacks=callbacks)
    """
    return loop.run(func, _failure_of)


def _failure_of(error: BaseException) -> CollectiveError | None:
    module: Any = sys.modules.get("hvdtune.tensorflow.errors")  # loaded where it computes
    found: CollectiveError | None = None if module is None else module.failure_of(error)
    return found


class CommitStatePart:
    """Commits the State after batches and epochs. It comes last among the callbacks.

    Args:
        state: the State.
        batches_per_commit: after so many batches, and at the end of each epoch.
    """

    def __init__(self, state: Any, batches_per_commit: int = 1) -> None:
        super().__init__()
        if batches_per_commit < 1:
            raise UsageError(f"batches_per_commit is {batches_per_commit}, but must be at least 1")
        self.state = state
        self.batches_per_commit = batches_per_commit
        self.batches_remaining = batches_per_commit

    def on_train_begin(self, logs: Any = None) -> None:
        # A newcomer counts from the same batch as the others.
        self.batches_remaining = self.batches_per_commit

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.batches_remaining -= 1
        if self.batches_remaining == 0:
            self._commit()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._commit()

    def _commit(self) -> None:
        self.batches_remaining = self.batches_per_commit
        self.state.commit()


class UpdateBatchStatePart:
    """Keeps the number of the epoch's last batch in `state.batch`; 0 after an epoch.

    Args:
        state: a State with `batch`.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.state.batch = batch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.batch = 0


class UpdateEpochStatePart:
    """Keeps the number of epochs that are over in `state.epoch`.

    Where `fit` is given `initial_epoch`, epochs are counted by it; else from what `state.epoch` was
    when `fit` began.

    Args:
        state: a State with `epoch`.
    """

    def __init__(self, state: Any) -> None:
        super().__init__()
        self.state = state
        self.initial_epoch = state.epoch
        self._first: int | None = None

    def on_train_begin(self, logs: Any = None) -> None:
        self.initial_epoch = self.state.epoch
        self._first = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._first is None:
            self._first = epoch

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.state.epoch = self.initial_epoch + epoch - (self._first or 0) + 1


ELASTIC_CALLBACKS: Final[dict[str, type[Any]]] = {
    "CommitStateCallback": CommitStatePart,
    "UpdateBatchStateCallback": UpdateBatchStatePart,
    "UpdateEpochStateCallback": UpdateEpochStatePart,
}
