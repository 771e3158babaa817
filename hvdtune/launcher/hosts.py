"""Host lists: `-H a:2,b:2` and host files."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hvdtune.errors import LaunchError, UsageError

_ENTRY = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]*)(?::(?P<slots>\d+))?")
_LINE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]*)(?:(?::|\s+slots\s*=\s*)(?P<slots>\d+))?")


@dataclass(frozen=True)
class Host:
    """A machine, or a loopback alias that counts as one, and how many ranks it may hold."""

    name: str
    slots: int


def parse_hosts(text: str) -> tuple[Host, ...]:
    """The hosts of `name:slots,name:slots`; a name alone has one slot. Raises UsageError."""
    entries = [_entry(_ENTRY, part.strip(), "-H") for part in text.split(",")]
    return _distinct(entries, "-H")


def read_hostfile(path: Path) -> tuple[Host, ...]:
    """The hosts of a file of `name slots=N` lines; `#` starts a comment. Raises UsageError."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not text"
        raise UsageError(f"--hostfile {path}: {reason}") from None
    hosts = []
    for number, line in enumerate(text.splitlines(), 1):
        entry = line.partition("#")[0].strip()
        if entry:
            hosts.append(_entry(_LINE, entry, f"{path}:{number}"))
    if not hosts:
        raise UsageError(f"--hostfile {path} names no host")
    return _distinct(hosts, f"--hostfile {path}")


def remote_hosts(names: Iterable[str]) -> tuple[str, ...]:
    """The names that are other machines', each once, in order."""
    return tuple(name for name in dict.fromkeys(names) if not is_local(name))


def is_local(name: str) -> bool:
    """Whether a host's name or address is this machine's.

    Every 127.x.y.z is this machine and counts as a host of its own.
    """
    try:
        address = ipaddress.IPv4Address(name)
    except ipaddress.AddressValueError:
        own = socket.gethostname()
        if name in ("localhost", own):
            return True
        # Asking for the whole name may take many seconds where no name server answers.
        return name.partition(".")[0] == own.partition(".")[0] and name == socket.getfqdn()
    return address.is_loopback or name in _own_addresses()


def ssh_args(port: int | None, identity_file: str | None) -> tuple[str, ...]:
    """The arguments that tell ssh how to log in, beyond its own configuration."""
    words = () if port is None else ("-p", str(port))
    return words if identity_file is None else (*words, "-i", identity_file)


def checked_ssh_args(
    remote: Sequence[str], port: int | None, identity_file: str | None
) -> tuple[str, ...]:
    """`ssh_args` for other hosts, if any. Raises UsageError when there is no such file."""
    if remote and identity_file is not None and not Path(identity_file).is_file():
        raise UsageError(f"--ssh-identity-file: there is no file {identity_file}")
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
            f"{address} is this host's loopback, which {remote[0]} cannot reach: give the "
            "interface that leads there, or leave --network-interfaces out"
        )
    return address or address_towards(remote[0])


def address_towards(host: str) -> str:
    """This machine's address on the way to another, by which that one reaches it.

    Raises LaunchError when the name is unknown or no way leads there.
    """
    try:
        # Nothing is sent: connecting a datagram socket only chooses the way.
        family, kind, protocol, _, where = socket.getaddrinfo(host, 22, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(where)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise LaunchError(
            f"no route to host {host}: {error.strerror}; --network-interfaces names the interface "
            "that leads there"
        ) from None


def _entry(form: re.Pattern[str], text: str, where: str) -> Host:
    match = form.fullmatch(text)
    if match is None:
        user = "; ssh takes the user from ~/.ssh/config" if "@" in text else ""
        raise UsageError(f"{where}: '{text}' is not a host with its slots, as in node1:4{user}")
    slots = int(match["slots"] or 1)
    if slots == 0:
        raise UsageError(f"{where}: host {match['name']} has no slots")
    return Host(match["name"], slots)


def _distinct(hosts: list[Host], where: str) -> tuple[Host, ...]:
    seen: set[str] = set()
    for host in hosts:
        if host.name in seen:
            raise UsageError(f"{where}: host {host.name} is listed twice")
        seen.add(host.name)
    return tuple(hosts)
