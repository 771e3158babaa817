"""A backend of `torch.distributed`: `init_process_group("hvdtune")`.

Importing this registers it, as does importing torch where hvdtune is installed. Tensors are on the
CPU. See docs/distributed.md.
"""

from __future__ import annotations

from typing import Any

from hvdtune.distributed.registration import NAME, register

__all__ = ["NAME", "monitored_barrier", "register"]

register()


def __getattr__(name: str) -> Any:
    """`monitored_barrier`: what carries it out is loaded with the first group only."""
    if name == "monitored_barrier":
        from hvdtune.distributed.process_group import monitored_barrier

        return monitored_barrier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
