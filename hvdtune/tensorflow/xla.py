"""Keeping XLA away from training steps that combine gradients with other ranks."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from hvdtune.core.gradients.keras_variables import COMBINER
from hvdtune.errors import UsageError


def keep_away(keras: Any) -> None:
    """Keeps models of Keras 3 from training by XLA with an optimizer that combines gradients.

    XLA cannot compile operations that wait for other ranks. Keras 3 compiles the training step by
    XLA on accelerators by default, if the model's layers support it. Called on import:
    `model.compile(hvd.DistributedOptimizer(...))` looks `compile` up before it makes the
    optimizer.
    """
    if not hasattr(keras.Model, "jit_compile"):
        return  # Keras 2 does not use XLA by default
    # Where it is defined: a model whose class has another is loaded without being compiled.
    owner = next(kind for kind in keras.Model.__mro__ if "compile" in vars(kind))
    before: Any = owner.compile
    if hasattr(before, COMBINER):
        return
    signature = inspect.signature(before)

    @functools.wraps(before)
    def compile(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options)
        optimizer = given.arguments.get("optimizer")
        if hasattr(getattr(optimizer, "inner_optimizer", None), COMBINER):
            raise UsageError(
                "a LossScaleOptimizer around a DistributedOptimizer would skip steps that other "
                "ranks wait for: use hvd.DistributedOptimizer(LossScaleOptimizer(optimizer))"
            )
        if hasattr(optimizer, COMBINER):
            if given.arguments.setdefault("jit_compile", False) not in (False, None, "auto"):
                raise UsageError(
                    "XLA cannot compile a step that combines gradients with other ranks; remove "
                    "jit_compile=True"
                )
            given.arguments["jit_compile"] = False
        return before(*given.args, **given.kwargs)

    setattr(compile, COMBINER, True)
    owner.compile = compile
