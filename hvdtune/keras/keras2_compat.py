"""Keeps spellings that scripts for Horovod use, and that Keras 3 no longer has, working.

Nothing here is done by importing hvdtune.keras: programs that import Horovod's names get it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class CallableList(list[Any]):
    """A list that was a method once: `opt.variables` and `opt.variables()` are the same."""

    def __call__(self) -> list[Any]:
        return self


def keep(keras: Any) -> None:
    """Makes every model, optimizer and variable of Keras 3 understand the old spellings.

    `opt.variables()`; `opt.lr`, to read and to set, and `lr=` where an optimizer is made;
    `model.compile(experimental_run_tf_function=)`, which does nothing; `variable.ref()`, on the
    tensorflow backend; `keras.backend.set_value(opt.lr, value)` and `get_value(opt.lr)`. A second
    call changes nothing.

    Args:
        keras: the module keras, or tf.keras; Keras 2 knows them all.
    """
    optimizer = keras.optimizers.Optimizer
    if hasattr(keras, "Variable"):
        _keep_values(keras)  # of each module by itself: `keras` and `tf.keras` have other backends
    if hasattr(optimizer, "lr"):
        return
    optimizer.lr = property(_lr, _set_lr)
    for kind in (optimizer, keras.optimizers.LossScaleOptimizer):
        kind.variables = _callable(kind.variables)
    made = _owner(optimizer, "__init__")
    made.__init__ = _taking_lr(made.__init__)
    # Keras compares what a model has with this class's own: it must be changed there.
    compiled = _owner(keras.Model, "compile")
    compiled.compile = _dropping(compiled.compile, "experimental_run_tf_function")
    if keras.backend.backend() == "tensorflow":
        keras.Variable.ref = _ref


def _owner(kind: type, name: str) -> Any:
    """The class that `kind` has the method from."""
    return next(base for base in kind.__mro__ if name in vars(base))


def _keep_values(keras: Any) -> None:
    backend, variable = keras.backend, keras.Variable
    former_get: Any = getattr(backend, "get_value", None)
    former_set: Any = getattr(backend, "set_value", None)
    if getattr(former_set, "__module__", "") == __name__:
        return

    def get_value(x: Any) -> Any:
        known = isinstance(x, variable) or former_get is None
        return x.numpy() if known else former_get(x)

    def set_value(x: Any, value: Any) -> None:
        if isinstance(x, variable) or former_set is None:
            x.assign(value)
        else:
            former_set(x, value)

    backend.get_value, backend.set_value = get_value, set_value


def _lr(optimizer: Any) -> Any:
    return optimizer.learning_rate


def _set_lr(optimizer: Any, value: Any) -> None:
    optimizer.learning_rate = value


def _callable(variables: property) -> property:
    assert variables.fget is not None
    listed = variables.fget
    return property(lambda self: CallableList(listed(self)), doc=variables.__doc__)


def _taking_lr(init: Callable[..., None]) -> Callable[..., None]:
    # Every optimizer hands what it does not know itself to this one, and its learning rate by name.
    @functools.wraps(init)
    def taking_lr(self: Any, *arguments: Any, lr: Any = None, **options: Any) -> None:
        if lr is not None:
            options["learning_rate"] = lr
        init(self, *arguments, **options)

    return taking_lr


def _dropping(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def dropping(*arguments: Any, **options: Any) -> Any:
        options.pop(name, None)
        return method(*arguments, **options)

    return dropping


def _ref(variable: Any) -> Any:
    # Of TensorFlow's variable, which tapes know it by; `value` may be a copy of another dtype.
    return variable._value.ref()
