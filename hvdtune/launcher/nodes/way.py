"""How a relay reaches a node that serves its command."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NodeWay:
    """Which node it is, where it listens, and the inherited descriptor of a file with the key."""

    number: int
    address: str
    port: int
    key_fd: int
