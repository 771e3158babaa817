"""The store of a process group as a board: its members meet through it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from torch import distributed

from hvdtune.core.job import route
from hvdtune.core.job.rendezvous import Board, Offer, Opening, withdrawal

if TYPE_CHECKING:
    from hvdtune.core.config.environment import Config

# Interval between two looks into the store, if a wait may end early.
_FIRST_LOOK_S: Final = 0.001
_LAST_LOOK_S: Final = 0.05


@dataclass(frozen=True)
class GroupPlace:
    """The place of this process in a group, and the store through which its members meet.

    Attributes:
        ranks: the members' ranks in the job, in the order of those in the group.
        is_hopeless: returns True if other members can no longer come.
    """

    store: Any
    rank: int
    size: int
    timeout_s: float
    ranks: tuple[int, ...]
    is_hopeless: Callable[[], bool] | None = None


class StoreBoard(Board):
    """A meeting of all members of a group.

    A group of the same name may be formed again, with the same store. Each member counts how often
    it has come, and those of one count meet.

    Attributes:
        count: the number of this meeting, from 1.
        are_launched: whether `hvdtune run` has started each member with this place.
    """

    def __init__(self, place: GroupPlace, config: Config, *, is_launched: bool) -> None:
        """Returns when all members have come. Raises DistStoreError if one has not in time."""
        self.is_hopeless = place.is_hopeless
        self._place = place
        self._address = config.rendezvous.own_address
        self.count = place.store.add(f"hvdtune/comes/{place.rank}", 1)
        hello = json.dumps({"host": config.place.host, "launched": is_launched})
        place.store.set(self._key(place.rank), hello)
        hellos = self._hellos()
        self.are_launched = all(hello["launched"] for hello in hellos)
        self._is_on_one_host = len({hello["host"] for hello in hellos}) == 1

    def opening(self) -> Opening:
        return Opening(listening_address(self._address, is_on_one_host=self._is_on_one_host))

    def posted(self, offer: Offer) -> contextlib.AbstractContextManager[object]:
        self._place.store.set(self._key("offer"), offer.to_json())
        return contextlib.nullcontext()

    def withdraw(self, why: str) -> None:
        self._place.store.set(self._key("offer"), withdrawal(why))

    def await_offer(self, timeout_s: float) -> Offer:
        """Wait for at most the group's timeout, since rank 0 may have yet to see all hellos."""
        key = self._key("offer")
        await_keys(self._place.store, [key], self._place.timeout_s, self.is_hopeless)
        return Offer.from_json(self._place.store.get(key))

    def _key(self, what: object) -> str:
        return f"hvdtune/{self.count}/{what}"

    def _hellos(self) -> list[dict[str, Any]]:
        store, who = self._place.store, f"Rank {self._place.rank} of {self._place.size}"
        keys = [self._key(rank) for rank in range(self._place.size)]
        try:
            await_keys(store, keys, self._place.timeout_s, self.is_hopeless)
        except RuntimeError:  # the only error of a file store
            missing = [str(rank) for rank, key in enumerate(keys) if not has(store, key)]
            if str(self._place.rank) in missing:
                raise distributed.DistStoreError(
                    f"{who}: The store stopped responding; the process that hosts it (usually rank "
                    "0) has exited."
                ) from None
            raise distributed.DistStoreError(
                f"{who}: rank {', '.join(missing)} did not join within {self._place.timeout_s:g} s"
            ) from None
        return [json.loads(store.get(key)) for key in keys]


def await_keys(
    store: Any,
    keys: Sequence[str],
    timeout_s: float,
    is_hopeless: Callable[[], bool] | None = None,
) -> None:
    """Returns when the store has the keys.

    Raises:
        DistStoreError: not within the timeout, or the wait is hopeless.
        RuntimeError: likewise, or the store is gone.
    """
    if is_hopeless is None:
        store.wait(keys, timedelta(seconds=timeout_s))
        return
    deadline_s = time.monotonic() + timeout_s
    pause_s = _FIRST_LOOK_S
    while not store.check(keys):
        if is_hopeless() or time.monotonic() > deadline_s:
            raise distributed.DistStoreError("The other ranks have not joined")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LAST_LOOK_S)


def has(store: Any, key: str) -> bool:
    """Return whether the store has the key; False if the store is gone."""
    with contextlib.suppress(RuntimeError):
        return bool(store.check([key]))
    return False


def listening_address(chosen: str, *, is_on_one_host: bool) -> str:
    """Return the address on which rank 0 listens. Raises UsageError if the others cannot reach it.

    Args:
        chosen: the address of this host that the user has chosen; "" for the default.
    """
    return route.LOOPBACK if is_on_one_host else chosen or route.default_address()
