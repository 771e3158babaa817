"""A barrier through torch's store that names the missing ranks. The core has no part in it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from torch import distributed

from hvdtune.distributed.flight import backend_error
from hvdtune.distributed.store_board import GroupPlace
from hvdtune.errors import RankLostError

# Interval between two checks for a lost member.
_LOOK_S: Final = 0.25
Loss = Callable[[], RankLostError | None]


def call_roll(
    place: GroupPlace, name: str, timeout_s: float, loss: Loss, *, wait_all: bool
) -> None:
    """Returns when all members have called it.

    Args:
        name: of this call, the same on all members and unique.
        timeout_s: how long rank 0 waits for the others. They wait for it twice as long.
        loss: returns the error if a member was lost, with its rank in the job.
        wait_all: rank 0 waits for all before it names the missing ones, instead of for one.

    Raises:
        DistBackendError: names the members that did not come or were lost; `rank` is the first.
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
    """Raises DistBackendError if a member was lost before the key came."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        left_s = deadline_s - time.monotonic()
        # A file store raises RuntimeError after the timeout, as does any store that is gone; torch
        # takes a timeout of 0 for no limit.
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
        f"monitored_barrier: {names} did not call it within {timeout_s:g} s"
    )
    vars(error).update(rank=ranks[0])
    return error
