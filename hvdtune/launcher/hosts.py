"""Host lists: `-H a:2,b:2` and host files."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from hvdtune.core.job.route import own_address_towards
from hvdtune.core.rank.affinity import usable_processors
from hvdtune.errors import ArgumentError, LaunchError, UsageError
from hvdtune.plural import counted

# A name, an address of IPv4, or in brackets one of IPv6
_NAME: Final = r"(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]*|\[[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?\])"
_ENTRY: Final = re.compile(_NAME + r"(?::(?P<slots>\d+))?")
_LINE: Final = re.compile(_NAME + r"(?:(?::|\s+slots\s*=\s*)(?P<slots>\d+))?")

# Beyond both nobody means the number: ranks compute, and each has threads beside.
_ALWAYS_ALLOWED_RANKS: Final = 64
_RANKS_PER_PROCESSOR: Final = 16


@dataclass(frozen=True)
class Host:
    """A machine, or a loopback alias that counts as one, and how many ranks it may hold."""

    name: str
    slots: int


def this_host(ranks: int) -> tuple[Host, ...]:
    """This machine with a slot for each of so many ranks, where nobody has listed hosts.

    Raises UsageError for more than 64 ranks that are also more than 16 for each processor. As with
    mpirun, whoever lists the host with its slots may have them.
    """
    processors = usable_processors()
    most = max(_ALWAYS_ALLOWED_RANKS, _RANKS_PER_PROCESSOR * processors)
    if ranks > most:
        raise ArgumentError(
            "ranks",
            f"this host has {counted(processors, 'processor')}, and more than {most} ranks would "
            "stall it; to start them anyway, list the host with its slots, as in "
            f"localhost:{ranks}",
            ranks,
        )
    return (Host("localhost", ranks),)


def parse_hosts(text: str, slots: int = 1) -> tuple[Host, ...]:
    """The hosts of `name:slots,name:slots`; a name alone has `slots`. Raises UsageError.

    An address of IPv6 stands in brackets, as in `[2001:db8::1]:4`.
    """
    fault = partial(ArgumentError, "hosts")
    parts = text.split(",")
    return _distinct([_entry(_ENTRY, part.strip(), slots, fault) for part in parts], fault)


def read_hostfile(path: Path, slots: int = 1) -> tuple[Host, ...]:
    """The hosts of a file of `name slots=N` lines; a name alone has `slots`, and `#` starts a
    comment. Raises UsageError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = str(error.strerror) if isinstance(error, OSError) else "it is not text"
        raise ArgumentError("hostfile", reason, path) from None
    hosts = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if entry:
            place = f"{path}:{number}"
            fault = partial(ArgumentError, "hostfile", value=place)
            hosts.append(_entry(_LINE, entry, slots, fault))
    if not hosts:
        raise ArgumentError("hostfile", "the file names no host", path)
    return _distinct(hosts, partial(ArgumentError, "hostfile", value=path))


def parse_discovered(text: str, slots: int = 1) -> tuple[Host, ...]:
    """What a discovery script prints: a line `name` or `name:slots` for each host; a name alone has
    `slots`. Raises UsageError."""
    fault = partial(ArgumentError, "host_discovery_script")
    lines = [line.strip() for line in text.splitlines()]
    return _distinct([_entry(_ENTRY, line, slots, fault) for line in lines if line], fault)


def remote_hosts(names: Iterable[str]) -> tuple[str, ...]:
    """The names that are other machines', each once, in order."""
    return tuple(name for name in first_spellings(names).values() if not is_local(name))


def free_port(address: str) -> int:
    """Return a port on which nothing listens at the moment."""
    with socket.create_server((address, 0)) as server:
        return int(server.getsockname()[1])


def first_spellings(names: Iterable[str]) -> dict[str, str]:
    """Return the first spelling of each name by the name in lower case.

    Names of hosts that differ in case only name one host.
    """
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name.lower(), name)
    return found


def is_local(name: str) -> bool:
    """Whether a host's name or address is this machine's.

    Every 127.x.y.z is this machine and counts as a host of its own.
    """
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        name, own = name.lower(), socket.gethostname().lower()
        if name in ("localhost", own):
            return True
        # Asking for the whole name may take many seconds where no name server answers.
        same_start = name.partition(".")[0] == own.partition(".")[0]
        return same_start and name == socket.getfqdn().lower()
    return address.is_loopback or str(address) in _own_addresses()


def ssh_args(port: int | None, identity_file: str | None) -> tuple[str, ...]:
    """The arguments that tell ssh how to log in, beyond its own configuration."""
    words = () if port is None else ("-p", str(port))
    return words if identity_file is None else (*words, "-i", identity_file)


def checked_ssh_args(
    remote: Sequence[str], port: int | None, identity_file: str | None
) -> tuple[str, ...]:
    """`ssh_args` for other hosts, if any. Raises UsageError when there is no such file."""
    if remote and identity_file is not None and not Path(identity_file).is_file():
        raise ArgumentError("ssh_identity_file", "there is no such file", identity_file)
    return ssh_args(port, identity_file) if remote else ()


def _own_addresses() -> set[str]:
    import psutil

    return {entry.address for entries in psutil.net_if_addrs().values() for entry in entries}


def address_for(remote: Sequence[str], address: str) -> str:
    """Where a launcher with ranks on these other hosts listens; `address` is what was asked for.

    Raises UsageError when those hosts cannot reach that, LaunchError when no way leads to them.
    """
    if address and ipaddress.ip_address(address).is_loopback:
        raise UsageError(
            f"{address} is this host's loopback, which {remote[0]} cannot reach: set "
            "HVDTUNE_INTERFACE to the interface that leads there, or set no address"
        )
    return address or address_towards(remote[0])


NAME_ADVICE: Final = "check the spelling, or add it to DNS or /etc/hosts"


def unresolved(error: OSError) -> str:
    """What is the matter with a name that this host does not know."""
    return f"this host cannot resolve the name ({error.strerror})"


def address_towards(host: str) -> str:
    """This machine's address on the way to another, by which that one reaches it.

    A link-local address of IPv6 comes with this machine's interface: fe80::1%eth0.

    Raises LaunchError when the name is unknown or no way leads there.
    """
    try:
        return own_address_towards(host)
    except socket.gaierror as error:
        raise LaunchError(f"{host}: {unresolved(error)}: {NAME_ADVICE}") from None
    except OSError as error:
        raise LaunchError(
            f"no route to host {host}: {error.strerror}; HVDTUNE_INTERFACE names the interface "
            "that leads there"
        ) from None


def _entry(
    form: re.Pattern[str], text: str, slots: int, fault: Callable[[str], UsageError]
) -> Host:
    match = form.fullmatch(text)
    if match is None:
        user = "; ssh takes the user from ~/.ssh/config" if "@" in text else ""
        raise fault(f"'{text}' is not a host with its slots, as in node1:4{user}")
    name = match["name"].removeprefix("[").removesuffix("]")
    if name != match["name"] and not _is_ipv6(name):
        raise fault(f"'{match['name']}' is not an IPv6 address")
    slots = int(match["slots"] or slots)
    if slots == 0:
        raise fault(f"host {name} has no slots")
    return Host(name, slots)


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def _distinct(hosts: list[Host], fault: Callable[[str], UsageError]) -> tuple[Host, ...]:
    seen: set[str] = set()
    for host in hosts:
        if host.name.lower() in seen:
            raise fault(f"host {host.name} is listed twice")
        seen.add(host.name.lower())
    return tuple(hosts)
