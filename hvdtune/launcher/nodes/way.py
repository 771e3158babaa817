"""How a relay reaches a node that serves its command."""

from dataclasses import dataclass


@dataclass(frozen=True)
class NodeWay:
    """Where the node listens, and the inherited descriptor of a file with the key."""

    address: str
    port: int
    key_fd: int
