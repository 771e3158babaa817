"""Which of this host's addresses leads where."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any, Final

from hvdtune.errors import UsageError

_ANY_PORT: Final = 9
# Addresses of documentation, which lead wherever the default route does.
_FAR_AWAY: Final = ("192.0.2.1", "2001:db8::1")


def own_address_towards(host: str) -> str:
    """This machine's address on the way to another, by which that one reaches it.

    A link-local address of IPv6 comes with this machine's interface: fe80::1%eth0.

    Raises OSError when the name is unknown or no way leads there.
    """
    family, kind, protocol, _, where = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[
        0
    ]
    # Nothing is sent: connecting a datagram socket only chooses the way.
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(where)
        return _with_interface(probe.getsockname())


def address_for_peers(host: str) -> str:
    """`own_address_towards` another host of the job. Raises UsageError saying what to do."""
    try:
        return own_address_towards(host)
    except OSError as error:
        raise UsageError(
            f"the way to {host} is not known ({error.strerror}): set HVDTUNE_INTERFACE to the "
            "interface that the hosts have in common"
        ) from None


def default_address() -> str:
    """This machine's address on the way to everywhere, "" where it has no such way."""
    for host in _FAR_AWAY:
        try:
            return own_address_towards(host)
        except OSError:
            continue
    return ""


def addresses_of(host: str) -> list[str]:
    """The numeric addresses of a host. Raises OSError when the name is unknown."""
    found = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(_with_interface(entry[4]) for entry in found))


def is_own(address: str) -> bool:
    """Whether this machine has a numeric address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def is_loopback(address: str) -> bool:
    """Whether a numeric address leads no further than this machine."""
    return ipaddress.ip_address(address).is_loopback


def _with_interface(address: tuple[Any, ...]) -> str:
    """The text of a socket's address, with the interface where it is nothing without."""
    number = str(address[0]).partition("%")[0]
    scope = address[3] if len(address) > 3 else 0
    return f"{number}%{socket.if_indextoname(scope)}" if scope else number
