"""A backend of `torch.distributed`: `init_process_group("hvdtune")`.

Importing this registers it, as does importing torch where hvdtune is installed. Tensors are on the
CPU. See docs/distributed.md.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hvdtune.distributed.registration import NAME, register

__all__ = ["NAME", "form_group", "monitored_barrier", "register"]

register()


def form_group(store: Any, rank: int, size: int, timeout: timedelta, title: str = "0") -> Any:
    """A ProcessGroup that torch does not know, for libraries that form theirs themselves.

    Args:
        store: of torch, common to the members; of one prefix there is one group at a time.
        rank: this process's number in the group, of `size`.
        timeout: how long to wait for the others, and for an operation.
        title: what messages call the group.

    Raises as hvdtune.distributed.job.form does.
    """
    from hvdtune.distributed.job import GroupPlace, form
    from hvdtune.distributed.process_group import HvdtuneProcessGroup

    place = GroupPlace(store, rank, size, timeout.total_seconds(), tuple(range(size)))
    return HvdtuneProcessGroup(NAME, title, place, form(place))


def __getattr__(name: str) -> Any:
    """`monitored_barrier`: what carries it out is loaded with the first group only."""
    if name == "monitored_barrier":
        from hvdtune.distributed.process_group import monitored_barrier

        return monitored_barrier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
