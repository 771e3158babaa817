"""What Horovod's modules for TensorFlow share, and programs around it call."""

from typing import Any

import tensorflow as tf

from ..common.util import _cache

__all__ = ["_cache", "_executing_eagerly", "_make_subgraph", "refs_to_vars", "vars_to_refs"]


def _executing_eagerly() -> bool:
    """Whether operations are carried out at once and are not added to a graph."""
    return bool(tf.executing_eagerly())


def _make_subgraph(f: Any) -> Any:
    """The function as a graph."""
    return tf.function(f)


def vars_to_refs(vars: Any) -> Any:
    """A variable's reference, which can be hashed; of a list of them, a tuple of references."""
    if isinstance(vars, list | tuple):
        return tuple(map(vars_to_refs, vars))
    return vars.ref()


def refs_to_vars(refs: Any) -> Any:
    """The variables of what `vars_to_refs` returned, a list for a tuple."""
    if isinstance(refs, list | tuple):
        return [refs_to_vars(ref) for ref in refs]
    return refs.deref()
