"""What Horovod's own modules, and programs around it, use to look at an installation."""

import functools
import importlib.util
import re
import sysconfig
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from typing import Final, ParamSpec, TypeVar

from hvdtune import __version__
from hvdtune.core.config.environment import changed_environ
from hvdtune.core.gradients.groups import split
from hvdtune.core.rank import build_info
from hvdtune.core.rank.collectives import ReduceOp, handle_average_backwards_compatibility

P = ParamSpec("P")
T = TypeVar("T")

_VERSION: Final = re.compile(
    r"v?(?:(\d+)!)?(\d+(?:\.\d+)*)"
    r"(?:[-_.]?(a|b|c|rc|alpha|beta|pre|preview)[-_.]?(\d+)?)?"
    r"(?:[-_.]?(post|rev|r)[-_.]?(\d+)?)?(?:[-_.]?(dev)[-_.]?(\d+)?)?(\+[a-z0-9._-]+)?",
    re.IGNORECASE,
)
_STAGES: Final = {"a": 0, "b": 1, "c": 2, "r": 2, "p": 2}

# Horovod's names of the frameworks, and what is imported for those that hvdtune binds.
_BOUND: Final = {"torch": "torch", "tensorflow": "tensorflow", "keras": "keras"}


def env(**variables: str | None) -> AbstractContextManager[None]:
    """Set these environment variables in the block, and unset those that are None."""
    return changed_environ(variables)


def _cache(function: Callable[P, T]) -> Callable[P, T]:
    # functools.cache takes f(a=1, b=2) and f(b=2, a=1) for different calls.
    results: dict[Hashable, T] = {}

    @functools.wraps(function)
    def cached(*args: P.args, **kwargs: P.kwargs) -> T:
        key = args, frozenset(kwargs.items())
        if key not in results:
            results[key] = function(*args, **kwargs)
        return results[key]

    return cached


@_cache
def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether `horovod.<ext_base_name>` can be imported."""
    module = _BOUND.get(ext_base_name)
    core = importlib.util.find_spec("hvdtune.core._native")
    return module is not None and core is not None and importlib.util.find_spec(module) is not None


def check_extension(ext_name: str, ext_env_var: str, pkg_path: str, *args: str) -> None:
    """Raises ImportError when `ext_name`, `horovod.torch` say, cannot be imported.

    The other arguments say how Horovod would be built with it.
    """
    if not extension_available(ext_name.rpartition(".")[2]):
        raise ImportError(f"{ext_name} is not available in this hvdtune ({__version__})")


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Whether the framework of `horovod.<ext_base_name>` sees a GPU."""
    if not extension_available(ext_base_name):
        return False
    if ext_base_name == "torch":
        import torch

        return torch.cuda.is_available()
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def _built(name: str) -> Callable[..., bool]:
    """The function of this name of `build_info`, which takes Horovod's `verbose` here."""
    known = getattr(build_info, name)

    def built(verbose: bool = False) -> bool:
        return bool(known())

    built.__name__ = built.__qualname__ = name
    built.__doc__ = known.__doc__
    return built


mpi_built, gloo_built, nccl_built = map(_built, ("mpi_built", "gloo_built", "nccl_built"))
ddl_built, ccl_built = map(_built, ("ddl_built", "ccl_built"))
cuda_built, rocm_built = map(_built, ("cuda_built", "rocm_built"))


def get_ext_suffix() -> str:
    """How the file name of an extension module ends."""
    return sysconfig.get_config_var("EXT_SUFFIX") or ".so"


def get_average_backwards_compatibility_fun(
    reduce_ops: object,
) -> Callable[[ReduceOp | int | None, bool | None], ReduceOp]:
    """A function of (op, average) that gives the op, `average` being what came before it.

    `reduce_ops` has Horovod's constants, which are the same numbers for every framework. The
    function raises ValueError when both are given.
    """
    return handle_average_backwards_compatibility


def num_rank_is_power_2(num_rank: int) -> bool:
    """Whether it is 1, 2, 4, ..."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(l: Sequence[T], n: int) -> list[Sequence[T]]:  # noqa: E741
    """Cuts a list into n pieces in order; those that are longer by one come first."""
    return split(l, n)


def is_iterable(x: object) -> bool:
    """Whether `for` can go over it."""
    try:
        iter(x)  # type: ignore[call-overload]
    except TypeError:
        return False
    return True


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Whether version `ver` is `target` or later.

    Raises ValueError when one of them is no text, or `target` not of the form major.minor.patch.
    """
    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(f"versions must be strings such as '1.13.0', not {ver!r} and {target!r}")
    if target.count(".") != 2:
        raise ValueError(
            f"the version to compare with must have the form major.minor.patch, not '{target}'"
        )
    return _order(ver) >= _order(target)


def _order(version: str) -> tuple[object, ...]:
    """What orders versions as PEP 440 says: epoch, release, pre-release, post, dev, local."""
    found = _VERSION.fullmatch(version.strip())
    if found is None:
        raise ValueError(f"{version!r} is not a version")
    epoch, release, stage, stage_number, post, post_number, dev, dev_number, local = found.groups()
    numbers = [int(part) for part in release.split(".")]
    while numbers[-1:] == [0]:
        numbers.pop()
    before = (_STAGES[stage[0].lower()], int(stage_number or 0)) if stage else (3, 0)
    if dev and not stage and not post:
        before = (-1, 0)
    return (
        int(epoch or 0),
        numbers,
        before,
        int(post_number or 0) if post else -1,
        int(dev_number or 0) if dev else float("inf"),
        local is not None,
    )


def check_installed_version(name: str, version: str, exception: Exception | None = None) -> None:
    """Whether a framework still is the version that Horovod was compiled for.

    hvdtune is compiled for none: its core takes addresses, so no version can be the wrong one.
    """
