"""Addresses of this host, and the routes from it to other hosts."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from typing import Any, Final

from hvdtune.errors import UsageError

LOOPBACK: Final = "127.0.0.1"
_ANY_PORT: Final = 9
# Addresses reserved for documentation, to which the default route leads.
_FAR_AWAY: Final = ("192.0.2.1", "2001:db8::1")
_ADVICE: Final = "Set HVDTUNE_INTERFACE to the network interface that the hosts share"


def own_address_towards(host: str) -> str:
    """Return the address at which another host reaches this one.

    A link-local address of IPv6 has the name of this host's interface: fe80::1%eth0.

    Raises OSError if the name is unknown or there is no route.
    """
    family, kind, protocol, _, where = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[
        0
    ]
    # Connecting a datagram socket chooses a route and sends nothing.
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(where)
        return _with_interface(probe.getsockname())


def address_for_peers(host: str) -> str:
    """Return `own_address_towards` another host of the job. Raises UsageError without a route."""
    try:
        return own_address_towards(host)
    except OSError as error:
        raise UsageError(f"No route to host {host} ({error.strerror}). {_ADVICE}") from None


def default_address() -> str:
    """Return this host's address on its default route. Raises UsageError without a route."""
    for host in _FAR_AWAY:
        with contextlib.suppress(OSError):
            return own_address_towards(host)
    raise UsageError(f"This host has no route to other hosts. {_ADVICE}")


def addresses_of(host: str) -> list[str]:
    """Return the numeric addresses of a host. Raises OSError if the name is unknown."""
    found = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(_with_interface(entry[4]) for entry in found))


def is_own(address: str) -> bool:
    """Return whether this machine has a numeric address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach a numeric address."""
    return ipaddress.ip_address(address).is_loopback


def endpoint(address: str, port: int) -> str:
    """Return `address:port`, or `[address]:port` for an address of IPv6."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _with_interface(address: tuple[Any, ...]) -> str:
    """Return the text of a socket's address, with the interface if it is link-local."""
    number = str(address[0]).partition("%")[0]
    scope = address[3] if len(address) > 3 else 0
    return f"{number}%{socket.if_indextoname(scope)}" if scope else number
