"""Operations between two members of a group.

Each two of them that communicate have a runtime of their own, in which a broadcast from the one
that sends carries the tensor. It is formed with their first operation, by a thread that ends then:
neither waits for the other to call before its own call returns.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import distributed

from hvdtune.distributed.flight import Flight
from hvdtune.distributed.job import GroupPlace, GroupRuntime, form_beside

if TYPE_CHECKING:
    from hvdtune.core import _native

Begin = Callable[["_native.Runtime"], None]


class PairRuntime:
    """This member and another one.

    Thread rule: any thread; `_lock` guards all state. Operations of one direction and tag have
    numbers in call order, by which the core finds those that belong together.
    """

    def __init__(self, place: GroupPlace, peer: int) -> None:
        low, high = sorted((place.rank, peer))
        self._place = GroupPlace(
            distributed.PrefixStore(  # type: ignore[attr-defined]
                f"hvdtune/pair/{low}/{high}", place.store.clone()
            ),
            0 if place.rank == low else 1,
            2,
            place.timeout_s,
            (place.ranks[low], place.ranks[high]),
        )
        self._lock = threading.Lock()
        self._runtime: GroupRuntime | None = None
        self._error: BaseException | None = None
        self._is_over = False
        self._early: list[tuple[Flight, Begin]] = []
        self._counts: Counter[tuple[bool, int]] = Counter()
        threading.Thread(target=self._form, name="hvdtune-pair", daemon=True).start()

    @property
    def ranks(self) -> tuple[int, ...]:
        """The numbers of both in the job."""
        return self._place.ranks

    def root(self, *, sends: bool) -> int:
        """Who of the two has the tensor."""
        return self._place.rank if sends else 1 - self._place.rank

    def number(self, tag: int, *, sends: bool) -> int:
        """How many operations of this direction and tag there were before; counts one more."""
        with self._lock:
            count = self._counts[sends, tag]
            self._counts[sends, tag] += 1
            return count

    def start(self, flight: Flight, begin: Begin) -> None:
        """Calls begin(runtime) when there is a runtime; otherwise the flight fails."""
        with self._lock:
            if self._error is None and self._runtime is None:
                self._early.append((flight, begin))
                return
            runtime, error = self._runtime, self._error
        _begin(flight, begin, runtime, error)

    def leave(self) -> None:
        """Ends the runtime; what is in flight fails."""
        with self._lock:
            self._is_over = True
            runtime = self._runtime
        if runtime is not None:
            runtime.leave()

    def _form(self) -> None:
        runtime: GroupRuntime | None = None
        failure: BaseException | None = None
        try:
            runtime = form_beside(self._place)
        except Exception as error:
            failure = error
        with self._lock:
            self._runtime, self._error = runtime, failure
            early, self._early = self._early, []
            is_over = self._is_over
        for flight, begin in early:
            _begin(flight, begin, runtime, failure)
        if is_over and runtime is not None:
            runtime.leave()


def _begin(
    flight: Flight, begin: Begin, runtime: GroupRuntime | None, error: BaseException | None
) -> None:
    if runtime is None:
        flight.fail(error)
        return
    try:
        begin(runtime.native)
    except Exception as refused:
        flight.fail(refused)
