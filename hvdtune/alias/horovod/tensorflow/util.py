"""What Horovod's modules for TensorFlow share, and programs around it call."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import tensorflow as tf

__all__ = ["_cache", "_executing_eagerly", "_make_subgraph", "refs_to_vars", "vars_to_refs"]

P = ParamSpec("P")
T = TypeVar("T")


def _executing_eagerly() -> bool:
    """Whether operations are carried out at once, outside of a graph."""
    return bool(tf.executing_eagerly())


def _make_subgraph(f: Callable[..., Any]) -> Any:
    """The function as a tf.function."""
    return tf.function(f)


def _cache(f: Callable[P, T]) -> Callable[P, T]:
    """The function, which is called once for the same arguments eagerly and once in graphs."""
    known: dict[Any, T] = {}

    @functools.wraps(f)
    def cached(*args: P.args, **kwargs: P.kwargs) -> T:
        key = (args, frozenset(kwargs.items()), _executing_eagerly())
        if key not in known:
            known[key] = f(*args, **kwargs)
        return known[key]

    return cached


def vars_to_refs(vars: Any) -> Any:
    """Returns what can be a key in place of a variable; of lists, a tuple of such keys."""
    if isinstance(vars, list | tuple):
        return tuple(vars_to_refs(each) for each in vars)
    return vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """The variables that `vars_to_refs` was given, in lists."""
    if isinstance(refs, list | tuple):
        return [refs_to_vars(each) for each in refs]
    return refs.deref()
