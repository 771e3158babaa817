"""The hosts of a run and its number of ranks: from options, nodes, a platform or an allocation."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from hvdtune.core.config.dialects import recognise
from hvdtune.core.config.environment import own_environ
from hvdtune.core.rank.affinity import usable_processors
from hvdtune.errors import UsageError
from hvdtune.launcher.allocation import read_allocation
from hvdtune.launcher.hosts import Host, parse_hosts, read_hostfile, this_host
from hvdtune.launcher.nodes.slots import slots_of_lone_node, visible_gpus
from hvdtune.plural import counted

if TYPE_CHECKING:
    from hvdtune.cli.options import PlacementOptions
    from hvdtune.launcher.nodes.way import NodeWay

_LEAST_TO_TUNE: Final = 2


@dataclass(frozen=True)
class ChosenHosts:
    """The hosts of a run.

    Attributes:
        ranks: their number; None: all slots.
        words: the options for the same placement.
        notice: a sentence about the choice.
        ways: the ways to the other hosts if a launcher runs on each.
    """

    hosts: tuple[Host, ...]
    ranks: int | None = None
    words: tuple[str, ...] = ()
    notice: str = ""
    ways: Mapping[str, NodeWay] = field(default_factory=dict)


def choose_hosts(
    asked: PlacementOptions, *, restarts: bool = False, tunes: bool = False, discovers: bool = False
) -> ChosenHosts:
    """Return the hosts of -H or --hostfile, else of a platform or an allocation, else this one.

    Args:
        restarts: each measurement starts the command.
        tunes: a study searches the knobs of hvdtune's own ranks.
        discovers: a script reports the hosts.

    Raises UsageError for hosts that contradict each other or cannot be read.
    """
    ranks, slots = asked.num_proc, asked.slots_per_host
    words = ("--slots-per-host", str(slots)) if slots else ()
    if asked.hosts is not None and asked.hostfile is not None:
        raise UsageError("give -H or --hostfile, not both")
    if asked.hostfile is not None:
        found = read_hostfile(asked.hostfile, slots or 1)
        return ChosenHosts(found, ranks, words=(*_number(ranks), *words))
    if asked.hosts is not None:
        found = parse_hosts(asked.hosts, slots or 1)
        return ChosenHosts(found, ranks, words=(*_number(ranks), "-H", asked.hosts, *words))
    if discovers:
        return ChosenHosts(this_host(ranks or 1), ranks)
    env = own_environ()
    if not restarts and not ranks and not slots and (lone := slots_of_lone_node(env)):
        return ChosenHosts(this_host(lone), lone, words=_number(lone))
    if (allocated := _allocated(ranks, slots, env)) is not None:
        return replace(allocated, words=(*allocated.words, *words))
    if slots is not None:
        return ChosenHosts((Host("localhost", slots),), ranks, words=(*_number(ranks), *words))
    if ranks is None and tunes:
        return _hosts_to_tune(env)
    notice = "" if ranks else _unused_tasks(env)
    return ChosenHosts(this_host(ranks or 1), ranks, _number(ranks), notice)


def placed_on(
    hosts: Sequence[Host], ranks: int | None, ways: Mapping[str, NodeWay] = MappingProxyType({})
) -> ChosenHosts:
    """Return the placement on these hosts."""
    text = ",".join(f"{host.name}:{host.slots}" for host in hosts)
    return ChosenHosts(tuple(hosts), ranks, (*_number(ranks), "-H", text), ways=ways)


def _number(ranks: int | None) -> tuple[str, ...]:
    return ("-np", str(ranks)) if ranks else ()


def _allocated(ranks: int | None, slots: int | None, env: Mapping[str, str]) -> ChosenHosts | None:
    """Return the placement on the several hosts of an allocation, None without one.

    None as well inside a task of the scheduler, which is a job of its own, and without ssh. Raises
    UsageError if the hosts of the allocation cannot be read.
    """
    if recognise(env) is not None or not shutil.which("ssh"):
        return None
    allocation = read_allocation(env)
    if allocation is None or len(allocation.hosts) == 1:
        return None
    hosts = tuple(Host(host.name, slots or host.slots) for host in allocation.hosts)
    found = placed_on(hosts, ranks or (slots and slots * len(hosts)) or allocation.tasks or 1)
    notice = (
        f"using the hosts of {allocation.source}, {found.words[-1]}; -H localhost:N stays on this "
        "host"
    )
    return replace(found, notice=notice)


def _unused_tasks(env: Mapping[str, str]) -> str:
    """Return a sentence if one rank starts in an allocation of several tasks on this host."""
    if recognise(env) is not None or not shutil.which("ssh"):
        return ""
    allocation = read_allocation(env)
    if allocation is None or allocation.tasks < 2:
        return ""
    return (
        f"starting 1 rank, but the allocation of {allocation.hosts[0].name} has "
        f"{allocation.tasks} tasks; use -np {allocation.tasks} to start one rank per task"
    )


def _hosts_to_tune(env: Mapping[str, str]) -> ChosenHosts:
    """Return the placement of a study on this host: a rank per GPU, else per OMP_NUM_THREADS cores.

    There are at least two ranks: one rank has no communication to tune.
    """
    if gpus := visible_gpus(env):
        share, reason = gpus, counted(gpus, "GPU")
    else:
        cores, threads = usable_processors(), _threads(env)
        share, reason = cores // threads, counted(cores, "usable core")
        reason += f", OMP_NUM_THREADS={threads}" if threads > 1 else ""
    ranks = max(share, _LEAST_TO_TUNE)
    if ranks != share:
        reason += "; a study needs 2 ranks"
    notice = f"starting {ranks} ranks on this host ({reason}); -np N starts N ranks"
    return ChosenHosts(this_host(ranks), ranks, words=_number(ranks), notice=notice)


def _threads(env: Mapping[str, str]) -> int:
    text = env.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(text) if text.isdigit() and int(text) else 1
