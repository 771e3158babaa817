"""The address of this host's network interface."""

from __future__ import annotations

import ipaddress
import socket

from hvdtune.errors import UsageError


def require_interface(name: str, source: str) -> None:
    """Raise UsageError unless this network interface of this host has an address.

    Args:
        source: the option or variable that names the interface.
    """
    try:
        address_of_interface(name)
    except ValueError as error:
        raise UsageError(f"{source} {name} {error}") from None


def address_of_interface(name: str) -> str:
    """Return the address of a network interface. Raises ValueError, with the end of a sentence."""
    import psutil

    interfaces = psutil.net_if_addrs()
    if name not in interfaces:
        raise ValueError(f"is not one of this host's interfaces: {', '.join(sorted(interfaces))}")
    addresses = [
        ipaddress.ip_address(entry.address)
        for entry in interfaces[name]
        if entry.family in (socket.AF_INET, socket.AF_INET6)
    ]
    if not addresses:
        raise ValueError("has no address")
    # A link-local address of IPv6 (fe80::1%eth0) leads no further than its link.
    return str(min(addresses, key=lambda address: (address.version, address.is_link_local)))
