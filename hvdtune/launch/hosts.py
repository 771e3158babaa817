"""Host lists: `-H a:2,b:2` and host files."""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from pathlib import Path

from hvdtune import __version__
from hvdtune.errors import UsageError

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


def require_local(hosts: tuple[Host, ...]) -> None:
    """Raises UsageError naming the first host that is not this machine.

    Every 127.x.y.z is this machine and counts as a host of its own.
    """
    for host in hosts:
        if not is_local(host.name):
            raise UsageError(
                f"-H: host {host.name} is not this machine ({socket.gethostname()}); remote hosts "
                f"come with the ssh launcher in a later version, this is hvdtune {__version__}"
            )


def is_local(name: str) -> bool:
    """Whether a host's name is this machine's."""
    if name == "localhost" or name in (socket.gethostname(), socket.getfqdn()):
        return True
    try:
        return ipaddress.IPv4Address(name).is_loopback
    except ipaddress.AddressValueError:
        return False


def _entry(form: re.Pattern[str], text: str, where: str) -> Host:
    match = form.fullmatch(text)
    if match is None:
        raise UsageError(f"{where}: '{text}' is not a host with its slots, as in node1:4")
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
