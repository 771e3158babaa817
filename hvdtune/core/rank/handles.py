"""Operations in flight of this process: started, polled, waited for, once for every framework."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from hvdtune.core.rank.adapter import OnGpu, Ready
from hvdtune.core.rank.blocked_threads import note_end_of_wait, note_wait
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import CollectiveError, HvdtuneError, MismatchError, UsageError

if TYPE_CHECKING:
    from hvdtune.core import _native

WAIT_SLICE_S: Final = 0.2  # how often a waiting thread looks for Ctrl-C


class Batch:
    """Operations that are submitted with one call, and the owners of the memory that they use.

    From its submission until all of it has ended, a batch is in `PROCESS.in_flight`, so the owners
    live for as long as the core may read or write their memory, whoever drops the batch. A signal
    handler may raise between any two instructions of its methods: then the batch is still what it
    was, and the method can be called again.

    Of operations on a GPU's memory, `finish` lets the caller's stream wait and not the host, unless
    their results are wanted: then the batch has not ended when it returns, and is abandoned.

    Thread rule: one thread at a time, but for `settle`.
    """

    __slots__ = (
        "_failure",
        "_gpu",
        "_late",
        "_native",
        "_operations",
        "_ready",
        "_stream_waits",
        "_waiting",
        "handles",
        "inputs",
        "outputs",
        "owners",
        "requests",
    )

    def __init__(self, *, keeps_operations: bool = False) -> None:
        """`keeps_operations`: their results are wanted."""
        self.requests: list[_native.Request] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.owners: list[object] = []
        self.handles: list[int] = []  # the core's: it adds them, and makes them 0 when they end
        self._operations: list[_native.Operation] | None = [] if keeps_operations else None
        self._failure: HvdtuneError | None = None
        self._gpu: OnGpu | None = None
        self._stream_waits = False
        self._ready: list[Ready] = []
        self._native: Any = None  # the _native.Runtime that it is submitted to
        self._late: Future[None] | None = None
        self._waiting = False

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

        Where values are still on their way, the last of `ready` to return is when they can be read.
        REQUIRES: `takes(gpu)`.
        """
        self._gpu = gpu or self._gpu
        self.owners += owners
        self._ready += ready
        self.inputs += inputs
        self.outputs += outputs
        self.requests += [request]

    def takes(self, gpu: OnGpu | None) -> bool:
        """Whether an operation on memory of this place can be added: there can be one GPU only."""
        return gpu is None or self._gpu in (None, gpu)

    @property
    def is_submitted(self) -> bool:
        """Whether the core has the operations, or will have them when their values are there."""
        return bool(self.handles) or self._late is not None

    def submit(self, native: _native.Runtime) -> None:
        """Submits the operations, when the last of `ready` has returned; again does nothing.

        Raises:
            CollectiveError: the job has ended, or an operation of one of the names is in flight.
                Nothing is submitted then. With `ready`, `finish` raises it.
        """
        if self.is_submitted:
            return
        if PROCESS.abandoned:
            _end_abandoned()
        self._native = native
        PROCESS.in_flight.add(self)
        try:
            if self._ready:
                self._late = _submitter().submit(self._submit_when_ready)
            else:
                self._submit_now(native)
        finally:
            if not self.handles and self._late is None:
                PROCESS.in_flight.discard(self)

    def _submit_when_ready(self) -> None:
        PROCESS.in_flight.add(self)
        for wait in self._ready:
            wait()
        if not self.handles and self._native is not None:
            self._submit_now(self._native)

    def _submit_now(self, native: _native.Runtime) -> None:
        gpu = (-1, 0) if self._gpu is None else (self._gpu.number, self._gpu.stream)
        native.submit(self.requests, self.inputs, self.outputs, self.handles, *gpu)

    def has_ended(self) -> bool:
        """Whether `finish` would return, or raise, at once."""
        if self._late is not None and not self._late.done():
            return False
        native = self._native
        return native is None or all(native.has_ended(handle) for handle in self.handles)

    @property
    def has_failed(self) -> bool:
        """Whether `finish` will raise what `settle` was told."""
        return self._failure is not None

    def finish(self) -> None:
        """Returns when every operation has ended, or the stream waits; the core's handles end.

        Raises:
            CollectiveError: the first failure, after all have ended.
        """
        self._waiting = True
        try:
            if self._late is not None:
                self._late.result()
            if self._let_stream_wait():
                return
            while self._native is not None and not self.is_over:
                if not self._native.finish(self.handles, WAIT_SLICE_S, self._operations):
                    note_wait(self._native)
        except CollectiveError as error:
            self._failure = error  # to be raised, even if a signal handler raises before
        finally:
            self._waiting = False
            if PROCESS.blocked:
                note_end_of_wait(self._native)
            if self.is_over:
                self._forget()
        failure = self._failure
        if failure is not None:
            try:
                raise failure
            finally:  # or it and this would hold each other, and the tensors
                self._failure = failure = None

    def _let_stream_wait(self) -> bool:
        """Whether the caller's stream waits from now on, and nobody needs to wait on the host."""
        gpu, native = self._gpu, self._native
        if gpu is None or native is None or self._operations is not None or self._stream_waits:
            return False
        stream = gpu.current_stream()
        try:
            while not native.wait_on_stream(self.handles, stream, WAIT_SLICE_S):
                note_wait(native)
        except CollectiveError:
            return False  # the host waits until all have ended, and is then told
        PROCESS.abandoned.add(self)
        self._stream_waits = True
        return True

    def only_operation(self) -> _native.Operation | None:
        """Returns the operation of a batch that has only one, once `finish` has returned.

        None where operations are not kept.
        """
        return self._operations[0] if self._operations else None

    def settle(self) -> None:
        """Lets go of the memory and of the core, whose job has ended; `finish` tells how.

        For a batch that nobody waits for; any thread.
        """
        if self._native is None or self._waiting or not self.handles:
            return
        failure = self._native.settle(self.handles, self._operations)
        if failure is not None:
            self._failure = failure
        if self.is_over:
            self._forget()
            self._native = None

    def leave_to_parent(self, refuse: Any) -> None:
        """In a child of fork, where every method raises what those of `refuse` do."""
        self._native, self._late, self.handles = refuse, None, self.handles or [-1]

    def was_refused(self, error: BaseException) -> bool:
        """Whether the operations were not submitted because of this error, raised by `ready`."""
        late = self._late
        return late is not None and late.done() and late.exception() is error

    @property
    def is_over(self) -> bool:
        """Whether the core has given back the memory, so that nothing is left to wait for."""
        return not any(self.handles) and (self._late is None or self._late.done())

    def _forget(self) -> None:
        PROCESS.in_flight.discard(self)
        self.owners = []
        self._ready = []


def await_gpu() -> None:
    """Returns when every operation on tensors of a GPU that was submitted has succeeded.

    For who keeps what is computed from them: `synchronize` lets the stream wait, not the host.

    Raises:
        CollectiveError: the job has failed, so that results of the last of them may be worthless.
    """
    native = PROCESS.runtime
    while native is not None and not native.await_gpu(WAIT_SLICE_S):
        pass


def abandon(batches: Iterable[Batch]) -> None:
    """Lets go of operations that nobody will wait for; they end, and free their memory, when the
    other ranks have done their part.

    Safe in a finalizer, on any thread.
    """
    PROCESS.abandoned.update(batch for batch in batches if batch in PROCESS.in_flight)
    _end_abandoned()


def _end_abandoned() -> None:
    for batch in list(PROCESS.abandoned):
        if batch.has_ended():
            try:
                batch.finish()
            except Exception as error:
                # Nobody waits for a failure; what a signal handler raises is the caller's.
                if not (isinstance(error, HvdtuneError) or batch.was_refused(error)):
                    raise
            PROCESS.abandoned.discard(batch)


def _end_with_job() -> None:
    PROCESS.on_shutdown.append(_let_go)


def _let_go() -> None:
    """When the job has ended, nobody needs the memory of what nobody has waited for."""
    _end_abandoned()
    for batch in list(PROCESS.in_flight):
        batch.settle()
    for handle, pending in list(PROCESS.pending.items()):
        if pending.batch.has_failed:
            PROCESS.pending[handle] = replace(pending, finish=_nothing)


def _nothing(_: object) -> None:
    pass


PROCESS.on_init.append(_end_with_job)


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


@dataclass(frozen=True, eq=False)
class _Pending:
    batch: Batch  # of one operation, which it keeps
    finish: Callable[[Any], Any]  # of the operation, None where nobody waits on the host
    thread: int  # that started it


def named(kind: str, name: str | None, process_set: int) -> str:
    """`kind.name`; what has no name is numbered in call order, each process set by itself.

    `Numbered` does so before anything can be refused.

    Raises:
        UsageError: the name is no text.
    """
    if name:
        check_name(name)
        return f"{kind}.{name}"
    with PROCESS.lock:
        return f"{kind}.noname.{next(PROCESS.unnamed[PROCESS.generation, process_set])}"


# Begins the core's name of an operation that a rank refuses.
_REFUSED: Final = "refused"


class Numbered:
    """A context in which an operation is made and submitted; it gives its name.

    One without a name is numbered before anything can be refused. Where a mistake of the caller's
    is, the others are told that this rank takes no part in it. They would else wait for it, or take
    this rank's next one for it.
    """

    __slots__ = ("_name", "_set_id")

    def __init__(self, name: str | None, process_set: int) -> None:
        self._name, self._set_id = name, process_set

    def __enter__(self) -> str:
        if self._name:
            self._set_id = -1
            return self._name
        PROCESS.native()  # or there is no job, and nobody to agree with about a number
        with PROCESS.lock:
            number = next(PROCESS.unnamed[PROCESS.generation, self._set_id])
        self._name = f"noname.{number}"
        return self._name

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._set_id >= 0 and self._name and _is_mistake(error):
            refusal = _refuse(self._name, self._set_id)
            if refusal is not None:
                abandon_handles([refusal])


class Repeated:
    """As `Numbered`, for operations that are called one after another and all have this name."""

    _refusals: ClassVar[dict[tuple[int, int, str], int]] = {}  # by generation and process set

    def __init__(self, name: str, process_set: int) -> None:
        self._name, self._set_id = name, process_set
        self._key = (PROCESS.generation, process_set, name)

    def __enter__(self) -> str:
        # The others have to hear of the operation before, which has this name.
        refusal = self._refusals.pop(self._key, None)
        if refusal is not None:
            with contextlib.suppress(MismatchError):
                complete(refusal)
        return self._name

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if _is_mistake(error):
            refusal = _refuse(self._name, self._set_id)
            if refusal is not None:
                self._refusals[self._key] = refusal


def _is_mistake(error: BaseException | None) -> bool:
    """Whether it is the caller's, so that there is no operation."""
    is_told = isinstance(error, CollectiveError)
    return isinstance(error, (UsageError, TypeError, ValueError)) and not is_told


def _refuse(name: str, process_set: int) -> int | None:
    """The handle of what tells the others that this rank takes no part in the operation."""
    from hvdtune.core import _native

    request = _native.Request(
        op="barrier", name=f"{_REFUSED}.{name}", tensors=[], process_set=process_set
    )
    with contextlib.suppress(CollectiveError, UsageError):  # no job has this set any more
        return start(request, [], [], [], lambda _: None)
    return None


def check_name(name: str) -> None:
    """Raises UsageError when it is no text."""
    try:
        name.encode()
    except (AttributeError, UnicodeEncodeError):
        raise UsageError(f"a tensor's name must be text, not {name!r}") from None


def note_join(process_set: int) -> None:
    """All ranks of the set have met in `join`: they number what has no name from 0 again."""
    with PROCESS.lock:
        PROCESS.unnamed.pop((PROCESS.generation, process_set), None)
        PROCESS.joins[PROCESS.generation, process_set] += 1


def joins(process_set: int) -> int:
    """How often all ranks of the set have met in `join`, the same on each of them."""
    with PROCESS.lock:
        return PROCESS.joins[PROCESS.generation, process_set]


def start(
    request: _native.Request,
    inputs: Sequence[int],
    outputs: Sequence[int],
    keep_alive: Iterable[object],
    finish: Callable[[Any], Any],
    ready: Sequence[Ready] = (),
    gpu: OnGpu | None = None,
    *,
    has_results: bool = False,
) -> int:
    """Submits one request on the memory at these addresses, which `keep_alive` must own.

    Where values are still on their way, the last of `ready` to return is when they can be read.
    `has_results` says that `finish` reads the operation's own results or numbers; on a GPU the host
    then waits for them.

    Returns:
        A handle, of which `synchronize` returns what `finish` makes of the done operation.

    Raises:
        UsageError, DuplicateNameError, CollectiveError: see hvdtune.core.rank.collectives. With
            `ready`, `synchronize` raises them.
    """
    native = PROCESS.native()
    for agreement in list(PROCESS.undecided):
        agreement.decide()
    batch = Batch(keeps_operations=gpu is None or has_results)
    batch.add(request, inputs, outputs, keep_alive, ready, gpu)
    handle = next(PROCESS.handles)
    pending = _Pending(batch, finish, threading.get_ident())
    PROCESS.pending[handle] = pending
    try:
        batch.submit(native)
    except BaseException:
        abandon_handles([handle])  # which the caller will not have
        raise
    return handle


def poll(handle: int) -> bool:
    """Whether `synchronize(handle)` would return, or raise, at once."""
    return _find(handle).batch.has_ended()


def synchronize(handle: int) -> Any:
    """Waits until the operation is done and returns its result; the handle ends.

    When a signal handler raises before this returns (Ctrl-C, a time limit), the operation keeps its
    tensors and its result: call this again with the same handle.

    Raises:
        UsageError: the handle is unknown or was synchronized before.
        CollectiveError: the operation failed, see hvdtune.core.rank.collectives.
    """
    pending = _find(handle)
    batch = pending.batch
    try:
        batch.finish()
        result = pending.finish(batch.only_operation())
    except BaseException as error:
        if isinstance(error, HvdtuneError) or batch.was_refused(error):
            PROCESS.pending.pop(handle, None)
        raise
    # Not by a call, after which a signal handler might raise and the result would be lost.
    if handle in PROCESS.pending:
        del PROCESS.pending[handle]
    return result


def complete(handle: int) -> Any:
    """As `synchronize`, for a function that does not give its caller the handle.

    When a signal handler raises while this waits, the operation is abandoned: its name stays taken,
    and its tensors may be written, until the other ranks have done their part.
    """
    try:
        return synchronize(handle)
    except BaseException:
        abandon_handles([handle])
        raise


class Scope:
    """A block that synchronizes all handles that it starts, so that an exception abandons the rest.

    See `complete` for what becomes of them.
    """

    def __enter__(self) -> None:
        self._first = next(PROCESS.handles)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            return
        thread = threading.get_ident()
        rows = list(PROCESS.pending.items())
        abandon_handles(
            [handle for handle, row in rows if handle > self._first and row.thread == thread]
        )


def abandon_handles(handles: Iterable[int]) -> None:
    """As `abandon`, for operations by their handles, which end; unknown ones are passed over."""
    for handle in handles:
        pending = PROCESS.pending.get(handle)
        if pending is not None:
            abandon([pending.batch])
            PROCESS.pending.pop(handle, None)


def _find(handle: int) -> _Pending:
    pending: _Pending | None = PROCESS.pending.get(handle)
    if pending is None:
        PROCESS.require_own()
        raise UsageError(f"handle {handle} is unknown, or was synchronized before")
    return pending
