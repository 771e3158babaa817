"""Operations in flight: owners of their memory, handles, failure, completion, and waiting.

Every framework's operations are a `Batch`. Those of torch.distributed are a `Flight`
(hvdtune.distributed.flight), which adds what torch expects of them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from hvdtune.core.rank.adapter import OnGpu, Ready
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import CollectiveError, HvdtuneError

if TYPE_CHECKING:
    from hvdtune.core import _native

WAIT_SLICE_S: Final = 0.2  # interval at which a waiting thread checks for signals


class InFlight:
    """Operations that are submitted with one call, and the owners of the memory that they use.

    From submission until the core has returned the memory, the object is in `PROCESS.in_flight`.
    So the owners outlive every reference of the caller's. A signal handler may raise between any
    two instructions of a method: the state is then consistent, and the method can be called again.

    Thread rule: any thread may call `_look`; Python's lock guards every attribute.

    Attributes:
        handles: of the core, which appends them, and sets them to 0 when they end.
        owners: the objects that keep the memory.
    """

    __slots__ = ("_failure", "_native", "_operations", "handles", "owners")

    def __init__(
        self, owners: Sequence[object], operations: list[_native.Operation] | None
    ) -> None:
        """`operations` receives those that have ended; None discards them."""
        self.handles: list[int] = []
        self.owners = owners
        self._operations = operations
        self._failure: BaseException | None = None
        self._native: Any = None  # the _native.Runtime that has the operations

    @property
    def is_submitted(self) -> bool:
        """Return whether the core has, or had, the operations."""
        return bool(self.handles)

    def is_of(self, native: _native.Runtime) -> bool:
        """Return whether the operations were submitted to this runtime."""
        return self._native is native

    def settle(self) -> None:
        """Ends the operations if the core has; returns at once."""
        raise NotImplementedError

    def leave_to_parent(self, refuse: Any) -> None:
        """Called in a child of fork: from now on every method raises what `refuse` raises."""
        self._native, self.handles = refuse, self.handles or [-1]

    def _submit(
        self,
        native: _native.Runtime,
        requests: Sequence[_native.Request],
        inputs: Sequence[int],
        outputs: Sequence[int],
        **options: Any,
    ) -> None:
        """Submits the requests. If the core refuses them, nothing is in flight."""
        self._native = native
        PROCESS.in_flight.add(self)
        try:
            native.submit(requests, inputs, outputs, self.handles, **options)
        finally:
            if not self.handles:
                PROCESS.in_flight.discard(self)

    def _look(self, native: _native.Runtime, wait_s: float) -> bool:
        """Waits for the core; returns whether all handles have ended, here or in another thread.

        If an operation failed, `_failure` is set before the handles can be seen to have ended: no
        signal handler and no other thread runs between the core's exception and its assignment.
        """
        try:
            native.finish(self.handles, wait_s, self._operations)
        except HvdtuneError as error:
            self._failure = error
            error.__traceback__ = None  # whose frames hold the runtime and the tensors
            if any(self.handles):  # as in a child of fork
                self._failure = None
                raise
        return not any(self.handles)

    def _leave(self) -> None:
        """The core uses the memory no longer."""
        PROCESS.in_flight.discard(self)


class Batch(InFlight):
    """Operations of a framework, which wait for their values and on their GPU's stream.

    For operations on a GPU's memory, `finish` makes the caller's stream wait and not the host,
    unless their results are wanted. The batch has not ended when it returns, and is abandoned.

    Thread rule: one thread at a time, except for `settle`.
    """

    __slots__ = ("_gpu", "_late", "_ready", "_stream_waits", "inputs", "outputs", "requests")
    owners: list[object]

    def __init__(self, *, keeps_operations: bool = False) -> None:
        """`keeps_operations`: their results are wanted."""
        super().__init__([], [] if keeps_operations else None)
        self.requests: list[_native.Request] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self._gpu: OnGpu | None = None
        self._stream_waits = False
        self._ready: list[Ready] = []
        self._late: Future[None] | None = None

    def add(
        self,
        request: _native.Request,
        inputs: Sequence[int],
        outputs: Sequence[int],
        owners: Iterable[object],
        ready: Iterable[Ready] = (),
        gpu: OnGpu | None = None,
    ) -> None:
        """Adds an operation on the memory at these addresses, one for each of its tensors.

        REQUIRES: `takes(gpu)`.

        Args:
            ready: return when the values have arrived.
        """
        self._gpu = gpu or self._gpu
        self.owners += owners
        self._ready += ready
        self.inputs += inputs
        self.outputs += outputs
        self.requests += [request]

    def takes(self, gpu: OnGpu | None) -> bool:
        """Return whether an operation on this GPU can be added: a batch has at most one GPU."""
        return gpu is None or self._gpu in (None, gpu)

    @property
    def is_submitted(self) -> bool:
        """Return whether the core has the operations, or gets them when their values arrive."""
        return bool(self.handles) or self._late is not None

    def submit(self, native: _native.Runtime) -> None:
        """Submits the operations when their values have arrived. A second call does nothing.

        Raises:
            CollectiveError: the job has ended, or an operation with one of the names is in flight.
                Nothing is submitted. With `ready`, `finish` raises it.
        """
        if self.is_submitted:
            return
        if PROCESS.abandoned:
            end_abandoned()
        if not self._ready:
            self._submit_now(native)
            return
        self._native = native
        PROCESS.in_flight.add(self)
        try:
            self._late = _submitter().submit(self._submit_when_ready)
        finally:
            if not self.is_submitted:
                PROCESS.in_flight.discard(self)

    def _submit_when_ready(self) -> None:
        PROCESS.in_flight.add(self)
        for wait in self._ready:
            wait()
        if not self.handles and self._native is not None:
            self._submit_now(self._native)

    def _submit_now(self, native: _native.Runtime) -> None:
        gpu = self._gpu
        where = {} if gpu is None else {"gpu": gpu.number, "stream": gpu.stream}
        self._submit(native, self.requests, self.inputs, self.outputs, **where)

    def has_ended(self) -> bool:
        """Return whether `finish` would return, or raise, at once."""
        if self._late is not None and not self._late.done():
            return False
        native = self._native
        return native is None or all(native.has_ended(handle) for handle in self.handles)

    @property
    def has_failed(self) -> bool:
        """Return whether `finish` will raise the failure that `settle` found."""
        return self._failure is not None

    def finish(self) -> None:
        """Returns when every operation has ended, or the stream waits; the core's handles end.

        Raises:
            CollectiveError: the first failure, after all have ended.
        """
        native = self._native
        try:
            if self._late is not None:
                self._late.result()
            if self._gpu is not None and self._let_stream_wait():
                return
            while native is not None and not self.is_over:
                if not self._look(native, WAIT_SLICE_S):
                    note_wait(native)
        finally:
            if PROCESS.blocked:
                note_end_of_wait(native)
            if self.is_over:
                self._forget()
        failure = self._failure
        if failure is not None:
            try:
                raise failure
            finally:  # or failure and batch would reference each other, and the tensors
                self._failure = failure = None

    def _let_stream_wait(self) -> bool:
        """Makes the caller's stream wait. Returns False if the host must wait instead."""
        gpu, native = self._gpu, self._native
        if gpu is None or native is None or self._operations is not None or self._stream_waits:
            return False
        stream = gpu.current_stream()
        try:
            while not native.wait_on_stream(self.handles, stream, WAIT_SLICE_S):
                note_wait(native)
        except CollectiveError:
            return False  # the host waits until all have ended, and then gets the failure
        PROCESS.abandoned.add(self)
        self._stream_waits = True
        return True

    def only_operation(self) -> _native.Operation | None:
        """Returns the operation of a batch of one, after `finish`; None unless it is kept."""
        return self._operations[0] if self._operations else None

    def settle(self) -> None:
        """Releases the memory and the core, whose job has ended; `finish` raises any failure.

        For a batch that no thread waits for; any thread.
        """
        native = self._native
        if native is not None and self.handles and self._look(native, 0.0) and self.is_over:
            self._forget()
            self._native = None

    def leave_to_parent(self, refuse: Any) -> None:
        """See InFlight."""
        self._late = None
        super().leave_to_parent(refuse)

    def was_refused(self, error: BaseException) -> bool:
        """Return whether this error, raised by `ready`, prevented the submission."""
        late = self._late
        return late is not None and late.done() and late.exception() is error

    @property
    def is_over(self) -> bool:
        """Return whether the core has returned the memory, so that nothing is left to wait for."""
        return not any(self.handles) and (self._late is None or self._late.done())

    def _forget(self) -> None:
        self._leave()
        self.owners = []
        self._ready = []


def settle_all(native: _native.Runtime | None = None) -> None:
    """Settles everything in flight, or everything that this runtime has."""
    for each in list(PROCESS.in_flight):
        if native is None or each.is_of(native):
            each.settle()


def abandon(batches: Iterable[Batch]) -> None:
    """Gives up waiting. The operations end, and free their memory, when the other ranks have
    submitted theirs.

    Safe in a finalizer, on any thread.
    """
    PROCESS.abandoned.update(batch for batch in batches if batch in PROCESS.in_flight)
    end_abandoned()


def end_abandoned() -> None:
    """Releases the memory of abandoned batches that have ended."""
    for batch in list(PROCESS.abandoned):
        if batch.has_ended():
            try:
                batch.finish()
            except Exception as error:
                # No thread waits for a failure. What a signal handler raises is the caller's.
                if not (isinstance(error, HvdtuneError) or batch.was_refused(error)):
                    raise
            PROCESS.abandoned.discard(batch)


def _submitter() -> ThreadPoolExecutor:
    with PROCESS.lock:
        if PROCESS.submitter is None:
            PROCESS.submitter = ThreadPoolExecutor(1, thread_name_prefix="hvdtune-late")
            PROCESS.on_shutdown.append(_end_submitter)
        return PROCESS.submitter


def _end_submitter() -> None:
    with PROCESS.lock:
        submitter, PROCESS.submitter = PROCESS.submitter, None
    if submitter is not None:
        submitter.shutdown()


def note_wait(native: _native.Runtime) -> None:
    """Reports to the core that this thread has waited for a while, as evidence of a deadlock.

    A thread that calls hvdtune has a Python frame, even if C++ code of a framework makes the call.
    If all such threads wait for operations, none can submit anything or start a thread that could.
    This is checked with Python's lock held, so that no other thread runs meanwhile.

    A thread that does anything else, such as loading data, could submit something next. Then no
    deadlock is proved, and the hang is reported after the warning time. Frameworks whose threads
    wait outside of Python, as TensorFlow's do, are never proved to be blocked.
    """
    PROCESS.blocked.add(threading.get_ident())
    threads = len(sys._current_frames())
    native.note_blocked_threads(threads if threads == len(PROCESS.blocked) else 0)


def note_end_of_wait(native: _native.Runtime | None) -> None:
    """Ends what `note_wait` has reported of this thread."""
    PROCESS.blocked.discard(threading.get_ident())
    if native is not None:
        native.note_blocked_threads(0)
