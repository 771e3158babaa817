"""A barrier that tells who has not come, through torch's store: the core has no part in it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from torch import distributed

from hvdtune.distributed.flight import backend_error
from hvdtune.distributed.job import GroupPlace
from hvdtune.errors import RankLostError

# How soon a member that was lost is noticed.
_LOOK_S: Final = 0.25
Loss = Callable[[], RankLostError | None]


def call_roll(
    place: GroupPlace, name: str, timeout_s: float, loss: Loss, *, wait_all: bool
) -> None:
    """Returns when all members have called it with the same name, which no other roll call has.

    Args:
        timeout_s: how long rank 0 waits for the others, and half of the time that they wait for it.
        loss: that a member was lost, named by its rank of the job.
        wait_all: rank 0 waits for all before it names the missing ones, instead of for one.

    Raises:
        DistBackendError: names who has not come or was lost, in its `rank` the first of them.
    """
    key = f"hvdtune/roll/{name}/"
    if place.rank != 0:
        place.store.set(f"{key}{place.rank}", b"here")
        if not _came(place.store, f"{key}all", 2 * timeout_s, loss):
            raise _absent(place, [0], 2 * timeout_s)
        missing, timeout_s = json.loads(place.store.get(f"{key}all"))
    else:
        deadline_s = time.monotonic() + timeout_s
        missing = []
        for rank in range(1, place.size):
            if not _came(place.store, f"{key}{rank}", deadline_s - time.monotonic(), loss):
                missing.append(rank)
                if not wait_all:
                    break
        place.store.set(f"{key}all", json.dumps([missing, timeout_s]))
    if missing:
        raise _absent(place, missing, timeout_s)


def _came(store: Any, key: str, timeout_s: float, loss: Loss) -> bool:
    """Raises DistBackendError where a member was lost before the key came."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        left_s = deadline_s - time.monotonic()
        # A file store says that the time is over by a RuntimeError, and so does any that has gone;
        # torch takes 0 for no limit.
        with contextlib.suppress(RuntimeError):
            store.wait([key], timedelta(seconds=min(max(left_s, 0.001), _LOOK_S)))
            return True
        if (lost := loss()) is not None:
            raise backend_error("monitored_barrier", lost, ())
        if left_s <= 0:
            return bool(store.check([key]))


def _absent(
    place: GroupPlace, missing: list[int], timeout_s: float
) -> distributed.DistBackendError:
    ranks = [place.ranks[rank] for rank in missing]
    names = ", ".join(f"rank {rank}" for rank in ranks)
    error = distributed.DistBackendError(
        f"monitored_barrier: {names} did not call in {timeout_s:g} s"
    )
    vars(error).update(rank=ranks[0])
    return error
