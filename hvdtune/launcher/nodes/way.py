"""A node as the launcher reaches it, and the job keys that both derive from their common key."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Mapping
from dataclasses import dataclass

from hvdtune.core.config.key_source import KEY_BYTES


@dataclass(frozen=True)
class NodeWay:
    """The address of a node for a relay, and the facts that the node needs for one job.

    Attributes:
        number: of the node, from 1.
        address: where the node listens.
        port: where the node listens.
        key_fd: an inherited descriptor of a file with the nodes' common key.
        nonce: of the job, as hexadecimal digits: see `derive_job_key`.
        variables: names of the environment variables that the launcher sets for the rank.
    """

    number: int
    address: str
    port: int
    key_fd: int
    nonce: str = ""
    variables: tuple[str, ...] = ()


def new_job_key(nodes: Mapping[str, NodeWay]) -> tuple[bytes, str]:
    """Return a new key for a job, and its nonce ("" without nodes).

    With nodes the key is derived from their common key, so that only the nonce has to travel.
    """
    if not nodes:
        return os.urandom(KEY_BYTES), ""
    nonce = os.urandom(KEY_BYTES)
    common = os.pread(next(iter(nodes.values())).key_fd, KEY_BYTES, 0)
    return derive_job_key(common, nonce), nonce.hex()


def derive_job_key(common: bytes, nonce: bytes) -> bytes:
    """Return the key of the job with this nonce."""
    return hmac.digest(common, b"hvdtune job key " + nonce, hashlib.sha256)
