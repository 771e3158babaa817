"""Handles of operations: started, polled and waited for, the same for every framework."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from hvdtune.core.rank.adapter import OnGpu, Ready
from hvdtune.core.rank.in_flight import WAIT_SLICE_S, Batch, abandon, end_abandoned, settle_all
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import CollectiveError, HvdtuneError, MismatchError, UsageError

if TYPE_CHECKING:
    from hvdtune.core import _native


def await_gpu() -> None:
    """Returns when every submitted operation on GPU tensors has succeeded.

    `synchronize` makes the stream wait, not the host: call this before results are kept.

    Raises:
        CollectiveError: the job has failed, so the latest results may be worthless.
    """
    native = PROCESS.runtime
    while native is not None and not native.await_gpu(WAIT_SLICE_S):
        pass


def _end_with_job() -> None:
    PROCESS.on_shutdown.append(_release_all)


def _release_all() -> None:
    """Releases the memory of operations that no thread waits for. The job has ended."""
    end_abandoned()
    settle_all()
    for handle, pending in list(PROCESS.pending.items()):
        if pending.batch.has_failed:
            PROCESS.pending[handle] = replace(pending, finish=_nothing)


def _nothing(_: object) -> None:
    pass


PROCESS.on_init.append(_end_with_job)


@dataclass(frozen=True, eq=False)
class _Pending:
    batch: Batch  # of one operation, which it keeps
    finish: Callable[[Any], Any]  # takes the operation, or None if the host does not wait
    thread: int  # that started it


def named(kind: str, name: str | None, process_set: int) -> str:
    """Return `kind.name`. Unnamed operations are numbered in call order in each process set.

    `Numbered` assigns the number before anything can be refused.

    Raises:
        UsageError: the name is not text.
    """
    if name:
        check_name(name)
        return f"{kind}.{name}"
    with PROCESS.lock:
        return f"{kind}.noname.{next(PROCESS.unnamed[PROCESS.generation, process_set])}"


# Prefix of the core's name of an operation that a rank refuses.
_REFUSED: Final = "refused"


class Numbered:
    """A context in which an operation is made and submitted; it returns the operation's name.

    An unnamed operation gets its number before anything can be refused. If the caller's arguments
    are refused, the other ranks get an error. Without it they would wait for this rank, or take
    its next operation for this one.
    """

    __slots__ = ("_name", "_set_id")

    def __init__(self, name: str | None, process_set: int) -> None:
        self._name, self._set_id = name, process_set

    def __enter__(self) -> str:
        if self._name:
            self._set_id = -1
            return self._name
        PROCESS.native()  # without a job there is no number to agree on
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
    """Like `Numbered`, for operations that are called one after another and all have this name."""

    _refusals: ClassVar[dict[tuple[int, int, str], int]] = {}  # by generation and process set

    def __init__(self, name: str, process_set: int) -> None:
        self._name, self._set_id = name, process_set
        self._key = (PROCESS.generation, process_set, name)

    def __enter__(self) -> str:
        # The previous operation has this name: the other ranks must get its refusal first.
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
    """Return whether the caller's arguments were refused, so that nothing was submitted."""
    is_of_core = isinstance(error, CollectiveError)
    return isinstance(error, (UsageError, TypeError, ValueError)) and not is_of_core


def _refuse(name: str, process_set: int) -> int | None:
    """Submits a refusal of the operation, and returns its handle."""
    from hvdtune.core import _native

    request = _native.Request(
        op="barrier", name=f"{_REFUSED}.{name}", tensors=[], process_set=process_set
    )
    with contextlib.suppress(CollectiveError, UsageError):  # the set no longer exists
        return start(request, [], [], [], _nothing)
    return None


def check_name(name: str) -> None:
    """Raises UsageError unless the name is text."""
    try:
        name.encode()
    except (AttributeError, UnicodeEncodeError):
        raise UsageError(f"a tensor's name must be text, not {name!r}") from None


def note_join(process_set: int) -> None:
    """Restarts the numbers of unnamed operations: all ranks of the set have met in `join`."""
    with PROCESS.lock:
        PROCESS.unnamed.pop((PROCESS.generation, process_set), None)
        PROCESS.joins[PROCESS.generation, process_set] += 1


def joins(process_set: int) -> int:
    """Return how often the ranks of the set have met in `join`; equal on all of them."""
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
    """Submits one request on the memory at these addresses.

    Args:
        keep_alive: the owners of that memory.
        finish: makes the result of the done operation.
        ready: return when the values have arrived.
        has_results: `finish` reads the operation's own results or numbers. On a GPU the host then
            waits for them.

    Returns:
        A handle, for `synchronize`.

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
    """Return whether `synchronize(handle)` would return, or raise, at once."""
    return _find(handle).batch.has_ended()


def synchronize(handle: int) -> Any:
    """Waits until the operation is done and returns its result; the handle ends.

    If a signal handler raises meanwhile (Ctrl-C, a time limit), the operation keeps its tensors and
    its result, and `synchronize` can be called again with the same handle.

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
    """Like `synchronize`, for a function that does not return the handle to its caller.

    If a signal handler raises meanwhile, the operation is abandoned. Its name stays in use, and its
    tensors may be written, until the other ranks have submitted theirs.
    """
    try:
        return synchronize(handle)
    except BaseException:
        abandon_handles([handle])
        raise


def gather_lines(name: str, line: bytes) -> list[bytes]:
    """Return the line of every rank, in rank order.

    Args:
        name: of the operation; an error names it if a rank does not call this.
    """
    import numpy as np

    from hvdtune.core import _native

    own = np.frombuffer(line + b"\n", np.uint8)
    request = _native.Request(op="allgather", name=name, tensors=[("uint8", [len(own)])])

    def finish(operation: _native.Operation) -> bytes:
        lines = np.empty(operation.result_bytes(0), np.uint8)
        operation.copy_result(0, lines.ctypes.data, lines.nbytes)
        return lines.tobytes()

    handle = start(request, [own.ctypes.data], [0], [own], finish)
    return list(complete(handle).splitlines())


class Scope:
    """A block that synchronizes all handles that it starts. An exception abandons the rest, as in
    `complete`."""

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
    """Abandons operations by their handles, which end. Unknown handles are ignored."""
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
