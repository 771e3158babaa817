"""Horovod's view of hosts and slots; hvdtune's own is hvdtune.launcher.plan."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hvdtune.launcher import hosts as launch_hosts
from hvdtune.launcher.plan import plan_slots
from hvdtune.plural import counted


@dataclass
class HostInfo:
    """A host and how many ranks it may hold."""

    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string: str) -> "HostInfo":
        """The host of `name:slots`. Raises ValueError."""
        return parse_hosts(host_string)[0]


@dataclass
class SlotInfo:
    """The place of one rank."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int


INVALID_SLOT_INFO = SlotInfo("", -1, -1, -1, -1, -1, -1)


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """The hosts of `name:slots,name:slots`. Raises ValueError."""
    return [HostInfo(host.name, host.slots) for host in launch_hosts.parse_hosts(hosts_string)]


def parse_hosts_and_slots(hosts: str) -> tuple[list[str], dict[str, int]]:
    """The names in `name:slots,name:slots`, and the slots by name. Raises ValueError."""
    slots = {host.hostname: host.slots for host in parse_hosts(hosts)}
    return list(slots), slots


def parse_host_files(filename: str) -> str:
    """A file of `name slots=N` lines as `name:N,name:N`. Raises ValueError."""
    listed = launch_hosts.read_hostfile(Path(filename))
    return ",".join(f"{host.name}:{host.slots}" for host in listed)


def get_host_assignments(
    hosts: Sequence[HostInfo], min_num_proc: int, max_num_proc: int | None = None
) -> list[SlotInfo]:
    """Fills the hosts in order with as many ranks as they have slots, at most `max_num_proc`.

    Raises ValueError when there is no room for `min_num_proc` ranks.
    """
    room = sum(host.slots for host in hosts)
    if room < min_num_proc:
        raise ValueError(f"the hosts have {counted(room, 'slot')}, but {min_num_proc} are needed")
    size = min(room, sys.maxsize if max_num_proc is None else max_num_proc)
    planned = plan_slots([launch_hosts.Host(host.hostname, host.slots) for host in hosts], size)
    return [
        SlotInfo(
            hostname=slot.host,
            rank=slot.rank,
            local_rank=slot.local_rank,
            cross_rank=slot.cross_rank,
            size=size,
            local_size=slot.local_size,
            cross_size=slot.cross_size,
        )
        for slot in planned
    ]
