"""The hosts that a scheduler has given the job in whose script or shell this process runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hvdtune.core.config.dialect import expand_hosts, repeated_counts
from hvdtune.launcher.hosts import Host


@dataclass(frozen=True)
class Allocation:
    """Hosts with a slot for each task that the scheduler has room for, and who says so.

    `tasks` is the number of tasks that were asked for, 0 where only hosts or processors were.
    """

    hosts: tuple[Host, ...]
    source: str
    tasks: int = 0


def read_allocation(env: Mapping[str, str]) -> Allocation | None:
    """The allocation that the variables of Slurm, PBS or LSF describe, None where there is none."""
    return _of_slurm(env) or _of_file(env, "PBS_NODEFILE") or _of_file(env, "LSB_DJOB_HOSTFILE")


def _of_slurm(env: Mapping[str, str]) -> Allocation | None:
    names = expand_hosts(env.get("SLURM_JOB_NODELIST", ""))
    slots = repeated_counts(env.get("SLURM_TASKS_PER_NODE", ""))
    if not names or len(slots) != len(names) or 0 in slots:
        return None
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
    except OSError:
        return None  # of an allocation that this host is no part of
    hosts = tuple(Host(host, count) for host, count in slots.items())
    return Allocation(hosts, name, slots.total()) if hosts else None
