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
    """Return a ProcessGroup that torch does not register, for libraries that form their own.

    Args:
        store: of torch, common to the members. A prefix of it is for one group at a time.
        rank: this process's number in the group of `size`.
        timeout: how long to wait for the others, and for an operation.
        title: the group's name in messages.

    Raises as hvdtune.distributed.job.form does.
    """
    from hvdtune.distributed.job import form
    from hvdtune.distributed.process_group import HvdtuneProcessGroup
    from hvdtune.distributed.store_board import GroupPlace

    place = GroupPlace(store, rank, size, timeout.total_seconds(), tuple(range(size)))
    return HvdtuneProcessGroup(NAME, title, place, form(place))


def __getattr__(name: str) -> Any:
    """Load `monitored_barrier` when it is needed: it imports the process group."""
    if name == "monitored_barrier":
        from hvdtune.distributed.process_group import monitored_barrier

        return monitored_barrier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
