"""The cores of the runtime's threads, one per rank of a host (HVDTUNE_THREAD_AFFINITY). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from hvdtune import parse
from hvdtune.core.config.own_variables import read_variable
from hvdtune.errors import UsageError
from hvdtune.horovod import variables
from hvdtune.plural import counted

if TYPE_CHECKING:
    from hvdtune.core.config.dialect import LauncherPlace

_VARIABLE: Final = "HVDTUNE_THREAD_AFFINITY"


def read_thread_cores(env: Mapping[str, str]) -> tuple[str, tuple[int, ...]]:
    """Return the variable that lists the cores, as `NAME=VALUE`, and the cores.

    Both are empty if none is set. Raises UsageError for a value that is not a list of cores.
    """
    cores: tuple[int, ...] = read_variable(env, _VARIABLE, parse.wholes, ())
    names = (_VARIABLE, *(term.variable for term in variables.standing_for(_VARIABLE)))
    return next((f"{name}={env[name]}" for name in names if env.get(name)), ""), cores


def core_of_rank(env: Mapping[str, str], local_rank: int, local_size: int) -> int:
    """Return the core of a rank's threads, -1 for any. Raises UsageError for too few cores."""
    source, cores = read_thread_cores(env)
    if not cores:
        return -1
    if len(cores) < local_size:
        raise UsageError(
            f"{source} lists {counted(len(cores), 'core')}, but a host has "
            f"{counted(local_size, 'rank')}. List one core per rank, as in 0,2"
        )
    return cores[local_rank]


def core_at_place(env: Mapping[str, str], place: LauncherPlace) -> int:
    """Return the core of a rank that another launcher has started, as `core_of_rank` does."""
    source, cores = read_thread_cores(env)
    if cores and place.local_rank is None and not place.is_node:
        raise UsageError(
            f"{source} lists one core per rank of a host, but {place.title} sets no local rank. "
            "Bind the processes with options of that launcher"
        )
    local_rank = place.local_rank or 0
    return core_of_rank(env, local_rank, place.local_size or local_rank + 1)
