"""Functions that differ from another one in their parameters only.

Horovod's functions have many forms. A form made here is compiled as if it had been written out: it
is called directly, and `inspect.signature` and `help` show its parameters.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

Function = Callable[..., Any]


def compiled(
    like: Function, name: str, parameters: Iterable[inspect.Parameter], expression: str, doc: str
) -> Function:
    """A function of `like`'s module that returns what the expression gives.

    Args:
        expression: may use the parameters and the names of that module.
    """
    taken = list(parameters)
    names = ", ".join(parameter.name for parameter in taken)
    made: dict[str, Any] = {}
    source = f"def {name}({names}): return {expression}"
    exec(source, inspect.unwrap(like).__globals__, made)
    function = made[name]
    function.__defaults__ = tuple(p.default for p in taken if p.default is not p.empty)
    function.__annotations__ = {p.name: p.annotation for p in taken}
    function.__module__, function.__doc__ = like.__module__, doc
    return function  # type: ignore[no-any-return]


def reordered(function: Function, order: str) -> Function:
    """The function with its parameters in another order, which names all of them."""
    known = inspect.signature(function).parameters
    given = ", ".join(f"{name}={name}" for name in order.split())
    parameters = (known[name] for name in order.split())
    expression = f"{function.__qualname__}({given})"
    return compiled(function, function.__name__, parameters, expression, function.__doc__ or "")
