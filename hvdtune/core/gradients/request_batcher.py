"""Starts operations that became ready together with one call into the core."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Final

from hvdtune.core.rank import runtime
from hvdtune.core.rank.adapter import OnGpu, Ready
from hvdtune.core.rank.in_flight import Batch, abandon
from hvdtune.errors import CollectiveError, HvdtuneError

# A batch is submitted at this size, or when its first gradient has waited for this time: a slow
# backward pass hides a slow network.
FLUSH_BYTES: Final = 1 << 20
FLUSH_AFTER_S: Final = 0.002


class RequestBatcher:
    """Starts operations in batches: one call into the core for all that became ready together.

    When this is dropped, started operations keep the owners of their memory and continue until the
    other ranks have submitted theirs. The rest is never started.

    Thread rule: as BackwardPassCounter.
    """

    def __init__(
        self, flush_bytes: int = FLUSH_BYTES, flush_after_s: float = FLUSH_AFTER_S
    ) -> None:
        self._flush_bytes = flush_bytes
        self._flush_after_s = flush_after_s
        self._bytes = 0
        self._since_s = 0.0  # when the last batch was begun
        # Only the last may not have been submitted. Always this list: the finalizer looks at it.
        self._batches: list[Batch] = []
        self._failure: HvdtuneError | None = None
        weakref.finalize(self, abandon, self._batches).atexit = False

    def add(
        self,
        request: Any,
        addresses: Sequence[int],
        nbytes: int,
        owners: Iterable[object],
        ready: Sequence[Ready] = (),
        gpu: OnGpu | None = None,
    ) -> None:
        """Adds an operation on the memory at these addresses, one for each tensor, in place.

        Args:
            owners: objects that keep the memory as long as they live.
            ready: return when the values have arrived.
        """
        if self._batches and not self._batches[-1].takes(gpu):
            self.flush()
        if not self._batches or self._batches[-1].is_submitted:
            self._batches.append(Batch())
            self._since_s = time.monotonic()
        self._batches[-1].add(request, addresses, addresses, owners, ready, gpu)
        self._bytes += nbytes

    def flush_when_due(self) -> None:
        """Starts the batch if it is large or has waited. A signal handler may raise here, but not
        in `add`: note between the two that the operation was added.

        Raises:
            CollectiveError: see `flush`.
        """
        waited_s = time.monotonic() - self._since_s
        if self._bytes >= self._flush_bytes or waited_s >= self._flush_after_s:
            self.flush()

    def flush(self) -> None:
        """Starts the batch.

        Raises:
            CollectiveError: the job has ended, or an operation of one of the names is in flight;
                `wait` raises it again.
        """
        if not self._batches or self._batches[-1].is_submitted:
            return
        try:
            self._batches[-1].submit(runtime.native())
            self._bytes = 0
        except HvdtuneError as error:
            self._failure = self._failure or error
            self._batches.pop()
            raise

    def wait(self) -> None:
        """Starts the batch, and returns when everything started is done.

        If a signal handler raises meanwhile, it can be called again.

        Raises:
            CollectiveError: the first failure, after all have ended.
        """
        with contextlib.suppress(HvdtuneError):  # raised below
            self.flush()
        while self._batches:
            try:
                self._batches[0].finish()
            except CollectiveError as error:
                self._failure = self._failure or error
            except Exception as error:
                if not self._batches[0].was_refused(error):
                    raise
                self._failure = self._failure or CollectiveError(str(error))
                self._failure.__cause__ = error
            self._batches.pop(0)
        if self._failure is not None:
            try:
                raise self._failure
            finally:
                self._failure = None  # or it and this would hold each other, and the gradients
