"""The hosts that a scheduler has given the job in whose script or shell this process runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from hvdtune.core.config.dialect import expand_hosts, repeated_counts
from hvdtune.errors import UsageError
from hvdtune.launcher.hosts import Host, first_spellings
from hvdtune.plural import counted

T = TypeVar("T")

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SHOWN: Final = 60
_INSTEAD: Final = "to list the hosts yourself, use -H HOST:SLOTS, as in -H localhost:2"


@dataclass(frozen=True)
class Allocation:
    """Hosts with a slot for each task that the scheduler has room for, and who says so.

    `tasks` is the number of tasks that were asked for, 0 where only hosts or processors were.
    """

    hosts: tuple[Host, ...]
    source: str
    tasks: int = 0


def read_allocation(env: Mapping[str, str]) -> Allocation | None:
    """The allocation that the variables of Slurm, PBS or LSF describe, None where there is none.

    Raises UsageError where there is one, but its hosts cannot be read.
    """
    try:
        return _read(env)
    except ValueError as error:
        raise UsageError(f"{error}; {_INSTEAD}") from None


def _read(env: Mapping[str, str]) -> Allocation | None:
    """Raises ValueError with a sentence."""
    return _of_slurm(env) or _of_file(env, "PBS_NODEFILE") or _of_file(env, "LSB_DJOB_HOSTFILE")


def _of_slurm(env: Mapping[str, str]) -> Allocation | None:
    listed = env.get("SLURM_JOB_NODELIST", "")
    if not listed:
        return None
    names = _expanded(env, "SLURM_JOB_NODELIST", expand_hosts)
    if not names or not all(map(_NAME.fullmatch, names)):
        raise ValueError(f"SLURM_JOB_NODELIST={listed} is not a list of hosts as in n[1-3],m7")
    counts = env.get("SLURM_TASKS_PER_NODE", "")
    # A shell that Slurm did not start has the list only.
    is_lone = len(names) == 1 and not counts
    slots = (1,) if is_lone else _expanded(env, "SLURM_TASKS_PER_NODE", repeated_counts)
    if len(slots) != len(names) or 0 in slots:
        value = f"is {counts}" if counts else "is not set"
        raise ValueError(
            f"SLURM_JOB_NODELIST={listed} has {counted(len(names), 'host')}, but "
            f"SLURM_TASKS_PER_NODE, the number of tasks on each, {value}"
        )
    asked = env.get("SLURM_NTASKS", "")
    hosts = tuple(map(Host, names, slots))
    return Allocation(hosts, "SLURM_JOB_NODELIST", int(asked) if asked.isdigit() else 0)


def _of_file(env: Mapping[str, str], name: str) -> Allocation | None:
    """A file with a line for each task."""
    path = env.get(name)
    if not path:
        return None
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise ValueError(f"the list of this job's hosts, {name}={path}: {reason}") from None
    for number, line in enumerate(lines, 1):
        if line.strip() and not _NAME.fullmatch(line.strip()):
            shown = line.strip()[:_SHOWN]
            raise ValueError(
                f"the list of this job's hosts, {name}={path}:{number}: {shown!r} is not a "
                "host name such as node1"
            )
    listed = [line.strip() for line in lines if line.strip()]
    spelled = first_spellings(listed)
    slots = Counter(spelled[name.lower()] for name in listed)
    if not slots:
        raise ValueError(f"the list of this job's hosts, {name}={path}, is empty")
    return Allocation(
        tuple(Host(host, count) for host, count in slots.items()), name, slots.total()
    )


def _expanded(
    env: Mapping[str, str], name: str, expand: Callable[[str], tuple[T, ...]]
) -> tuple[T, ...]:
    try:
        return expand(env.get(name, ""))
    except ValueError as error:
        raise ValueError(f"{name}={env[name]} {error}") from None
