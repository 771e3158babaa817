"""DistributedOptimizer for optimizers of Keras: combines gradients before they are applied.

Keras 3 applies gradients in `apply`, Keras 2 (tf_keras) in `apply_gradients`; either is where they
are combined. The result shares everything with the wrapped optimizer and has its class's name, so
that a saved model loads without hvdtune; hvdtune.keras.load_model wraps the optimizer again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from hvdtune.core.gradients.groups import Groups
from hvdtune.core.gradients.keras_variables import COMBINER, variables_of
from hvdtune.core.gradients.options import passes_of, reduction_of_gradients
from hvdtune.core.gradients.variable_options import GradientOptions
from hvdtune.core.rank.collectives import ReduceOp
from hvdtune.core.rank.compression import NoneCompressor
from hvdtune.core.rank.process_sets import ProcessSet, global_process_set
from hvdtune.errors import UsageError
from hvdtune.keras.backend import Combiner, make_combiner


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = NoneCompressor,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp | int = ReduceOp.AVERAGE,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Groups | None = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Wraps an optimizer of Keras so that it applies gradients combined over all ranks.

    The result is also an instance of the optimizer's class and shares its state.

    Args:
        optimizer: of Keras 3, on the tensorflow or the torch backend, or of Keras 2. A
            LossScaleOptimizer is wrapped as a whole: around the result, it would skip steps on one
            rank that the others wait for.
        name: does nothing, as `device_dense` and `device_sparse`: the optimizer keeps its name.
        compression: one of hvd.Compression, or a class of your own with `compress` and
            `decompress`. IndexedSlices travel as they are.
        sparse_as_dense: makes tf.IndexedSlices dense before they are sent.
        gradient_predivide_factor: f divides gradients by f before they are combined and multiplies
            by f after; with op=Average only.
        op: Average or Sum.
        backward_passes_per_step: passes whose gradients are added up locally before they are sent
            and applied; the optimizer's `iterations` counts each. The optimizer may have
            `gradient_accumulation_steps`, too: Keras then takes the mean of these sums over its
            steps, and `iterations` counts its updates.
        average_aggregated_gradients: what is sent is the mean of the passes, not the sum.
        num_groups: deprecated; `groups` as a number.
        groups: gradients that are one operation: a list of lists of variables, or how many groups
            all gradients make up.
        process_set: the ranks whose gradients are combined; the others keep theirs.
        scale_local_gradients: gradients of variables given to `register_local_var`, which stay on
            this rank, are divided by the number of ranks, whatever `op` is.

    Raises:
        UsageError: an argument is not as above.
    """
    keras = keras_of(optimizer)
    if hasattr(optimizer, COMBINER):
        raise UsageError("the optimizer is a DistributedOptimizer already; wrap it once")
    if op == ReduceOp.ADASUM:
        raise UsageError("Keras optimizers do not support Adasum; use hvd.Average or hvd.Sum")
    options = GradientOptions(
        compression or NoneCompressor,
        reduction_of_gradients(op, gradient_predivide_factor),
        sparse_as_dense,
        num_groups if groups is None else groups,
        process_set,
        scale_local_gradients,
        passes_of(backward_passes_per_step),
        average_aggregated_gradients,
    )
    return _wrapped(_outermost(optimizer, keras), make_combiner(keras, options))


def PartialDistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = NoneCompressor,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: ReduceOp | int = ReduceOp.AVERAGE,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Groups | None = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Wrap an optimizer as DistributedOptimizer does, but keep gradients of `local_layers` local.

    Args:
        local_layers: a layer of Keras or several, built, whose variables differ between ranks.

    Raises:
        UsageError: local_layers has something that is no layer.
    """
    wrapped = DistributedOptimizer(
        optimizer,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        gradient_predivide_factor=gradient_predivide_factor,
        op=op,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    for variable in variables_of(local_layers):
        wrapped.register_local_var(variable)
    return wrapped


def load_model_of(keras: Any) -> Callable[..., Any]:
    """The function `load_model` for this module, which is Keras 3 or Keras 2."""

    def load_model(
        filepath: Any,
        custom_optimizers: Sequence[Any] | None = None,
        custom_objects: dict[str, Any] | None = None,
        compression: Any = NoneCompressor,
        legacy_opts: bool = False,
    ) -> Any:
        """Loads a saved model, whose optimizer then combines gradients over all ranks.

        Args:
            filepath: as for keras.models.load_model.
            custom_optimizers: classes of optimizers that Keras does not know.
            custom_objects: as for keras.models.load_model.
            compression: as for DistributedOptimizer.
            legacy_opts: does nothing.
        """
        known = {kind.__name__: kind for kind in custom_optimizers or []}
        known |= custom_objects or {}
        model = keras.models.load_model(filepath, custom_objects=known)
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None:
            model.optimizer = DistributedOptimizer(optimizer, compression=compression)
            if getattr(model, "jit_compile", None):
                model.jit_compile = False  # see hvdtune.tensorflow.xla; compiled without it
        return model

    return load_model


def keras_of(optimizer: Any) -> Any:
    """The module that the optimizer comes from, keras or tf_keras.

    Raises:
        UsageError: it comes from neither.
    """
    for name in ("keras", "tf_keras"):
        keras = sys.modules.get(name)
        if keras is None:
            continue
        kinds = [keras.optimizers.Optimizer]
        if name == "tf_keras":
            kinds.append(keras.optimizers.legacy.Optimizer)
        if isinstance(optimizer, tuple(kinds)):
            return keras
    raise UsageError(f"an optimizer of Keras is needed, not {type(optimizer).__name__}")


def _outermost(optimizer: Any, keras: Any) -> Any:
    """Keras puts an optimizer with scaled losses around what it compiles with, for models of
    float16. It skips steps, and all ranks must skip the same: it goes inside."""
    scaled = getattr(keras.optimizers, "LossScaleOptimizer", None)
    policies = getattr(keras, "dtype_policies", None)
    if scaled is None or policies is None or isinstance(optimizer, scaled):
        return optimizer
    is_half = keras.mixed_precision.dtype_policy().name == "mixed_float16"
    return scaled(optimizer, name="loss_scale_optimizer") if is_half else optimizer


class _Distributed:
    """Attributes and methods added to a wrapped optimizer of either Keras."""

    _hvdtune_combiner: Combiner
    _hvdtune_applies: ClassVar[str]  # the method in which gradients are combined

    def __setattr__(self, name: str, value: Any) -> None:
        if name == self._hvdtune_applies:
            raise _replaced(self, name)
        super().__setattr__(name, value)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The wrapped optimizer's, as which it is saved with a model."""
        return type(self).__bases__[1]

    def __reduce__(self) -> Any:
        """Pickles as the wrapped optimizer: who loads it wraps it again."""
        plain: Any = object.__new__(self.__class__)
        object.__setattr__(plain, "__dict__", self.__dict__)
        return plain.__reduce__()

    def register_local_var(self, var: Any) -> None:
        """Keeps the gradient of this variable on this rank; it is not combined."""
        self._hvdtune_combiner.register_local(var)


class _Keras3(_Distributed):
    _hvdtune_applies = "apply"

    def apply(self, grads: Any, trainable_variables: Any = None) -> Any:
        """Combine gradients over all ranks, then call the wrapped optimizer's `apply`."""
        own: Any = super()
        if trainable_variables is None:
            known = list(self._trainable_variables)  # type: ignore[attr-defined]
        else:
            known = list(trainable_variables)
        if not self.built and known:  # type: ignore[has-type]
            # Here, because `step` may be in a branch of a graph, where variables cannot be made.
            with sys.modules["keras"].name_scope(self.name, caller=self):  # type: ignore[attr-defined]
                self.build(known)  # type: ignore[attr-defined]
            self.built = True
        gradients = list(grads)

        def step(combined: list[Any]) -> None:
            own.apply(combined, None if trainable_variables is None else known)

        def skip() -> None:
            counter = self.iterations  # type: ignore[attr-defined]
            # With gradient_accumulation_steps it is computed from a count of what Keras was given.
            if hasattr(counter, "assign_add"):
                counter.assign_add(1)

        self._hvdtune_combiner.apply(gradients, known, step, skip)


class _Keras2(_Distributed):
    _hvdtune_applies = "apply_gradients"

    def apply_gradients(
        self, grads_and_vars: Iterable[Any], *arguments: Any, **options: Any
    ) -> Any:
        """Combine gradients over all ranks, then call the wrapped optimizer's `apply_gradients`."""
        own: Any = super()
        pairs = list(grads_and_vars)
        variables = [variable for _, variable in pairs]
        if hasattr(self, "build") and not getattr(self, "_built", True):
            self.build(variables)

        def step(combined: list[Any]) -> None:
            own.apply_gradients(zip(combined, variables, strict=True), *arguments, **options)

        def skip() -> None:
            self.iterations.assign_add(1)  # type: ignore[attr-defined]

        self._hvdtune_combiner.apply([g for g, _ in pairs], variables, step, skip)
        return self.iterations  # type: ignore[attr-defined]


def _wrapped(optimizer: Any, combiner: Combiner) -> Any:
    inner = type(optimizer)
    mixin = _Keras3 if hasattr(inner, "apply") else _Keras2
    if mixin._hvdtune_applies in vars(optimizer):
        raise _replaced(optimizer, mixin._hvdtune_applies)
    # Horovod's module, which programs look for in `str(optimizer)`
    kind = type(inner.__name__, (mixin, inner), {"__module__": "horovod._keras"})
    wrapper: Any = object.__new__(kind)
    # One dictionary for both: whoever holds the wrapped optimizer sees the same state.
    object.__setattr__(wrapper, "__dict__", optimizer.__dict__)
    object.__setattr__(wrapper, COMBINER, combiner)
    return wrapper


def _replaced(optimizer: Any, method: str) -> UsageError:
    return UsageError(
        f"{method} of this {type(optimizer).__name__} was replaced, so a DistributedOptimizer "
        "cannot combine its gradients over the ranks; for DynamicEmbeddingOptimizer see "
        "docs/recommenders-addons.md"
    )
