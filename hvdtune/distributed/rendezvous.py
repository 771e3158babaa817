"""The store of a job whose launcher does not set torch's variables for it.

Torch's own `env://` needs MASTER_ADDR and MASTER_PORT, which torchrun sets. `hvdtune run`, mpirun
and srun do not, but hvdtune's core finds the other ranks by the variables that they set. So the
ranks form the job of the core first, and rank 0 sends them the address of torch's store through it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final
from urllib.parse import parse_qsl, urlparse

from torch import distributed
from torch.distributed.distributed_c10d import default_pg_timeout

from hvdtune.core.config import dialects, environment
from hvdtune.core.rank import objects
from hvdtune.core.rank.process import PROCESS
from hvdtune.distributed.job import form_for_store
from hvdtune.distributed.store_board import listening_address
from hvdtune.errors import UsageError

_tcp_store: Final[Any] = distributed.TCPStore  # type: ignore[attr-defined]
_PLACE: Final = {"RANK": "rank", "WORLD_SIZE": "world_size"}


def is_ours(environ: Mapping[str, str], url: str) -> bool:
    """Return whether torch cannot find the ranks, and the core can. Raises as `recognise` does."""
    given = dict(parse_qsl(urlparse(url).query))
    place = [variable for variable, name in _PLACE.items() if name not in given]
    if all(environ.get(variable) for variable in (*place, "MASTER_ADDR", "MASTER_PORT")):
        return False
    return dialects.recognise(environ, forming=True) is not None


def meet(url: str, timeout: timedelta = default_pg_timeout) -> Iterator[tuple[Any, int, int]]:
    """A handler that torch registers for a scheme: yields store, rank and size, once.

    Raises:
        UsageError: the script gives another place than the launcher, or the job is elastic.
        RendezvousError: not every rank came within the start timeout.
    """
    if environment.inherited_environ().get("HVDTUNE_WORKER"):
        raise UsageError(
            "torch.distributed needs a job of fixed size, and this one is elastic. Start it "
            "without --min-np"
        )
    form_for_store(timeout.total_seconds())
    rank, size = PROCESS.told("rank"), PROCESS.told("size")
    given = {name: int(value) for name, value in parse_qsl(urlparse(url).query)}
    for name, value in zip(_PLACE.values(), (rank, size), strict=True):
        if given.get(name, value) != value:
            raise UsageError(
                f"init_process_group was given {name}={given[name]}, but the launcher set {value}. "
                "Omit the argument"
            )
    yield _store(rank, size, timeout), rank, size


def _store(rank: int, size: int, timeout: timedelta) -> Any:
    if rank != 0:
        host, port = objects.broadcast_object(None, name="torch.store")
        return _tcp_store(host, port, size, is_master=False, timeout=timeout)
    chosen = environment.Config.from_environ().rendezvous.own_address
    host = listening_address(chosen, is_on_one_host=PROCESS.told("cross_size") == 1)
    store = _tcp_store(
        host, 0, size, is_master=True, timeout=timeout, wait_for_workers=False, multi_tenant=True
    )
    objects.broadcast_object((host, store.port), name="torch.store")
    return store
