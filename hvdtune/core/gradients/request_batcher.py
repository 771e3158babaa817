"""Starts operations that became ready together with one call into the core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hvdtune.core.rank import handles, runtime
from hvdtune.core.rank.adapter import Ready
from hvdtune.errors import CollectiveError

FLUSH_BYTES: Final = 1 << 20  # large gradients that become ready wait for each other up to this


class RequestBatcher:
    """Starts operations in batches: one call into the core for all that became ready together.

    Thread rule: as BackwardPassCounter. The memory of an operation must live until `wait` returns.
    """

    def __init__(self, flush_bytes: int = FLUSH_BYTES) -> None:
        self._flush_bytes = flush_bytes
        self._collected: list[tuple[Any, Sequence[int]]] = []
        self._bytes = 0
        self._ready: list[Ready] = []
        self._started: list[tuple[Any, handles.Submitted]] = []

    def add(
        self, request: Any, addresses: Sequence[int], nbytes: int, ready: Sequence[Ready] = ()
    ) -> None:
        """Adds an operation on the memory at these addresses, one for each tensor, in place.

        Where values are on their way to it, they have arrived when all of `ready` have returned.
        """
        self._collected.append((request, addresses))
        self._ready += ready
        self._bytes += nbytes
        if self._bytes >= self._flush_bytes:
            self.flush()

    def flush(self) -> None:
        """Starts what was added.

        Raises:
            CollectiveError: the job has ended, or an operation of one of the names is in flight.
        """
        collected, self._collected, self._bytes = self._collected, [], 0
        ready, self._ready = self._ready, []
        if collected:
            native = runtime.native()
            flat = [address for _, addresses in collected for address in addresses]
            requests = [request for request, _ in collected]
            self._started.append((native, handles.submit(native, requests, flat, flat, ready)))

    def wait(self) -> None:
        """Starts what was added and returns when everything started is done.

        Raises:
            CollectiveError: the first failure, after all have ended.
        """
        self.flush()
        started, self._started = self._started, []
        failure: CollectiveError | None = None
        for native, each in started:
            try:
                handles.wait_all(native, handles.handles_of(each))
            except CollectiveError as error:
                failure = failure or error
        if failure is not None:
            raise failure
