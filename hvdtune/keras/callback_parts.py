"""The work of the callbacks, for either Keras.

Each part is a base class that comes before that Keras' own Callback.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from typing import Any, Final

from hvdtune.core.rank import runtime
from hvdtune.core.rank.objects import allgather_object
from hvdtune.errors import UsageError
from hvdtune.keras.broadcast import broadcast_variables, training_variables
from hvdtune.keras.collectives import mean_of, minimum_of


class BroadcastPart:
    """Gives every rank the root's weights and optimizer state when training begins.

    Where a rank's optimizer is not built then, all ranks give its state after the first batch, and
    where a rank's model is not, the weights, too. Use it before callbacks that look at weights.
    Generators of random layers get a seed of each rank's own that follows from the root's.

    Args:
        root_rank: whose they are.
        device: does nothing.
        local_variables: variables that stay as they are on each rank.
    """

    model: Any

    def __init__(self, root_rank: int, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.device = device
        self.broadcast_done = False
        self._local = [id(variable) for variable in local_variables or []]

    def register_local_var(self, var: Any) -> None:
        """Leaves this variable as it is on each rank."""
        self._local.append(id(var))

    def on_train_begin(self, logs: Any = None) -> None:
        self.broadcast_done = False
        optimizer = getattr(self.model, "optimizer", None)
        has_model = bool(self.model.built)
        has_all = has_model and bool(getattr(optimizer, "built", False))
        sizes = self._sizes() if has_model else (0, 0)
        # Ranks whose models differ would wait for each other's gradients for ever.
        said = [has_all, has_model, *sizes, *(-size for size in sizes)]
        all_have_all, all_have_models, *bounds = minimum_of(said, "variables.built")
        if all_have_models and bounds != [*sizes, *(-size for size in sizes)]:
            raise UsageError(
                f"the ranks' models differ: {_range(bounds[0], -bounds[2])} variables with "
                f"{_range(bounds[1], -bounds[3])} elements in total; rank "
                f"{runtime.rank()} has {sizes[0]:,} variables with {sizes[1]:,} elements. Build "
                "the same model on every rank"
            )
        # A model that the root has loaded is built where the others' new ones are not.
        if all_have_all:
            self._broadcast()
        elif all_have_models:
            broadcast_variables(self._shared(self.model.variables), self.root_rank)

    def _sizes(self) -> tuple[int, int]:
        """Return the number of the model's variables equal on all ranks, and their total size."""
        rows = self._shared(self.model.variables)
        return len(rows), sum(math.prod(variable.shape) for variable in rows)

    def _shared(self, variables: Iterable[Any]) -> list[Any]:
        return [variable for variable in variables if id(variable) not in self._local]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self.broadcast_done:
            self._broadcast()

    def _broadcast(self) -> None:
        self.broadcast_done = True
        rows = training_variables(self.model, getattr(self.model, "optimizer", None))
        broadcast_variables(self._shared(rows), self.root_rank)


def _range(least: int, most: int) -> str:
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


class MetricAveragePart:
    """Makes metrics of an epoch the mean over all ranks. Use it before callbacks that read them.

    Args:
        device: does nothing.

    Raises:
        UsageError: at the end of an epoch, on all ranks: their metrics have different names.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()
        self.device = device

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if runtime.size() == 1:
            return
        own = logs if logs is not None else {}
        _check_names(allgather_object(sorted(own), "metric.names"))
        own.update(mean_of(own))


def _check_names(by_rank: list[list[str]]) -> None:
    """Raise UsageError where a rank lacks a metric, for which the others would wait."""
    names = {name for own in by_rank for name in own}
    ranks = {name: [rank for rank, own in enumerate(by_rank) if name in own] for name in names}
    some = sorted(name for name, found in ranks.items() if len(found) < len(by_rank))
    if some:
        found = ranks[some[0]]
        where = f"rank{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"
        raise UsageError(
            f"MetricAverageCallback: of {len(by_rank)} ranks only {where} reported "
            f"{', '.join(name for name in some if ranks[name] == found)}. Pass the same metrics, "
            "validation_data and validation_freq to fit() on every rank."
        )


class LearningRatePart:
    """Multiplies the learning rate by epoch.

    Args:
        initial_lr: the learning rate that is multiplied.
        multiplier: a number, or a function of the epoch, which is a fraction where `staircase` is
            not set.
        start_epoch: from then on.
        end_epoch: up to, and without; None for ever.
        staircase: changes at the begin of epochs only, not with every batch.
        momentum_correction: where the learning rate changes, the velocity of an optimizer with
            momentum changes as much, as https://arxiv.org/abs/1706.02677 has it.
        steps_per_epoch: how many batches make up an epoch; found out if Keras knows it.

    Raises:
        UsageError: initial_lr is missing, or the optimizer's learning rate is a schedule.
    """

    model: Any
    params: Any

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise UsageError("initial_lr is missing: specify the learning rate to multiply")
        self.initial_lr = initial_lr
        self.start_epoch = start_epoch
        self.end_epoch = end_epoch
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        if callable(multiplier):
            self.staircase = staircase
            self.multiplier = multiplier
        else:
            number = multiplier
            self.staircase = True
            self.multiplier = lambda epoch: number

    def on_train_begin(self, logs: Any = None) -> None:
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = (self.params or {}).get("steps")
            if not self.steps_per_epoch:
                raise UsageError(
                    f"{type(self).__name__}: the number of batches per epoch is unknown; pass "
                    "steps_per_epoch="
                )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if not self.staircase:
            self._adjust(epoch + batch / (self.steps_per_epoch or 1))
        elif batch == 0:
            self._adjust(epoch)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if logs is not None:
            logs["lr"] = float(self.model.optimizer.learning_rate)

    def _adjust(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        rate = optimizer.learning_rate
        if not hasattr(rate, "assign"):
            raise UsageError(
                f"{type(self).__name__}: the optimizer's learning rate is a schedule; use a number"
            )
        before, after = float(rate), self.initial_lr * self.multiplier(epoch)
        optimizer.learning_rate = after
        if self.momentum_correction and getattr(optimizer, "momentum", None) and before > 0:
            self._correct_momentum(optimizer, after / before)

    def _correct_momentum(self, optimizer: Any, ratio: float) -> None:
        # The momentum itself is a constant of the compiled step; so what it multiplies is changed.
        velocities = getattr(optimizer, "momentums", None)
        if velocities is None and hasattr(optimizer, "get_slot"):  # a legacy one of Keras 2
            slots = optimizer.get_slot_names()
            trained = self.model.trainable_variables if "momentum" in slots else []
            velocities = [optimizer.get_slot(variable, "momentum") for variable in trained]
        is_built = getattr(optimizer, "built", getattr(optimizer, "_built", False))
        if velocities is None and is_built:
            warnings.warn(
                f"{type(self).__name__}: {type(optimizer).__name__} has no momentum to correct",
                RuntimeWarning,
                stacklevel=2,
            )
        if ratio != 1.0:
            for velocity in velocities or []:
                velocity.assign(velocity * ratio)


class WarmupPart(LearningRatePart):
    """Raises the learning rate from that of one rank to that of all, over the first epochs.

    See https://arxiv.org/abs/1706.02677.

    Args:
        initial_lr: the learning rate for all ranks, size() times that of one.
        warmup_epochs: how long.
        momentum_correction: see LearningRateScheduleCallback.
        steps_per_epoch: see LearningRateScheduleCallback.
        verbose: above 0: rank 0 prints when it is over.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: int = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            # So that epochs end at round numbers.
            done = epoch + 1.0 / (self.steps_per_epoch or 1)
            ranks = runtime.size()
            return (done * (ranks - 1) / warmup_epochs + 1) / ranks

        super().__init__(
            initial_lr, multiplier, 0, warmup_epochs, False, momentum_correction, steps_per_epoch
        )
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        is_last = self.end_epoch is not None and epoch == self.end_epoch - 1
        if is_last and self.verbose > 0 and runtime.rank() == 0:
            rate = float(self.model.optimizer.learning_rate)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")


class BestModelPart:
    """Keeps the best model of a training, in `filepath`, an attribute that can be set.

    Args:
        monitor: the metric by which models are compared.
        verbose: 1 prints when a model is kept.
        save_weights_only: keeps weights only.
        mode: "min", "max" or "auto", for whether less of the metric is better.
        save_freq: "epoch", or every so many batches.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
    ) -> None:
        own: Any = super()
        own.__init__(
            "best.weights.h5" if save_weights_only else "best.keras",
            monitor=monitor,
            verbose=verbose,
            save_best_only=True,
            save_weights_only=save_weights_only,
            mode=mode,
            save_freq=save_freq,
        )


CALLBACKS: Final[dict[str, type[Any]]] = {
    "BroadcastGlobalVariablesCallback": BroadcastPart,
    "MetricAverageCallback": MetricAveragePart,
    "LearningRateScheduleCallback": LearningRatePart,
    "LearningRateWarmupCallback": WarmupPart,
    "BestModelCheckpoint": BestModelPart,
}


def callbacks_of(
    keras: Any, module: str, parts: dict[str, type[Any]] = CALLBACKS
) -> list[type[Any]]:
    """The classes of `parts`, in that order, for this Keras; `module` is where they are found."""
    made = []
    for name, part in parts.items():
        is_checkpoint = part is BestModelPart
        base = keras.callbacks.ModelCheckpoint if is_checkpoint else keras.callbacks.Callback
        made.append(type(name, (part, base), {"__doc__": part.__doc__, "__module__": module}))
    return made
