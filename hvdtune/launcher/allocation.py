"""The hosts that a scheduler has given the job in whose script or shell this process runs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hvdtune.core.config.dialect import expand_hosts, repeated_counts
from hvdtune.errors import LaunchError
from hvdtune.launcher.hosts import Host
from hvdtune.plural import counted

_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]+")


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

    Raises LaunchError where there is one, but its hosts cannot be read.
    """
    return _of_slurm(env) or _of_file(env, "PBS_NODEFILE") or _of_file(env, "LSB_DJOB_HOSTFILE")


def _of_slurm(env: Mapping[str, str]) -> Allocation | None:
    listed = env.get("SLURM_JOB_NODELIST", "")
    if not listed:
        return None
    names = expand_hosts(listed)
    if not names or not all(map(_NAME.fullmatch, names)):
        raise LaunchError(f"SLURM_JOB_NODELIST={listed} is not a list of hosts as in n[1-3],m7")
    counts = env.get("SLURM_TASKS_PER_NODE", "")
    slots = repeated_counts(counts)
    if len(slots) != len(names) or 0 in slots:
        told = f"is {counts}" if counts else "is not set"
        raise LaunchError(
            f"SLURM_JOB_NODELIST={listed} has {counted(len(names), 'host')}, but "
            f"SLURM_TASKS_PER_NODE, which has the tasks of each, {told}"
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
        slots = Counter(Path(path).read_text().split())
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise LaunchError(f"the list of this job's hosts, {name}={path}: {reason}") from None
    if not slots:
        raise LaunchError(f"the list of this job's hosts, {name}={path}, is empty")
    return Allocation(
        tuple(Host(host, count) for host, count in slots.items()), name, slots.total()
    )
