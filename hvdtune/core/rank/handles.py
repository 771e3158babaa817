"""Operations in flight of this process: started, polled, waited for, once for every framework."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hvdtune.core.rank.adapter import Ready
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import CollectiveError, UsageError

if TYPE_CHECKING:
    from hvdtune.core import _native

Submitted = list[int] | Future[list[int]]  # native handles, or when there will be some
WAIT_SLICE_S: Final = 0.2  # how often a waiting thread looks for Ctrl-C


@dataclass(frozen=True)
class _Pending:
    native: _native.Runtime  # the one it is submitted to
    submitted: Submitted
    keep_alive: tuple[object, ...]
    finish: Callable[[_native.Operation], Any]

    def is_submitted(self) -> bool:
        return isinstance(self.submitted, list) or self.submitted.done()

    def handle(self) -> int:
        return handles_of(self.submitted)[0]


def named(kind: str, name: str | None, process_set: int) -> str:
    """`kind.name`; what has no name is numbered in call order, each process set by itself.

    Raises:
        UsageError: the name is no text.
    """
    if name:
        check_name(name)
        return f"{kind}.{name}"
    with PROCESS.lock:
        return f"{kind}.noname.{next(PROCESS.unnamed[PROCESS.generation, process_set])}"


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
    finish: Callable[[_native.Operation], Any],
    ready: Sequence[Ready] = (),
) -> int:
    """Submits one request on the memory at these addresses, which `keep_alive` must own.

    Where values are still on their way, the last of `ready` to return is when they can be read.

    Returns:
        A handle, of which `synchronize` returns what `finish` makes of the done operation.

    Raises:
        UsageError, DuplicateNameError, CollectiveError: see hvdtune.core.rank.collectives. With
            `ready`, `synchronize` raises them.
    """
    native = PROCESS.native()
    submitted = submit(native, [request], inputs, outputs, ready)
    with PROCESS.lock:
        handle = next(PROCESS.handles)
        PROCESS.pending[handle] = _Pending(native, submitted, tuple(keep_alive), finish)
    return handle


def submit(
    native: _native.Runtime,
    requests: Sequence[_native.Request],
    inputs: Sequence[int],
    outputs: Sequence[int],
    ready: Sequence[Ready] = (),
) -> Submitted:
    """Submits now, or when the last of `ready` has returned; see `handles_of`."""
    if not ready:
        return native.submit(requests, inputs, outputs)

    def when_ready() -> list[int]:
        for wait in ready:
            wait()
        return native.submit(requests, inputs, outputs)

    with PROCESS.lock:
        if PROCESS.submitter is None:
            PROCESS.submitter = ThreadPoolExecutor(1, thread_name_prefix="hvdtune-late")
            PROCESS.on_shutdown.append(_end_submitter)
        return PROCESS.submitter.submit(when_ready)


def _end_submitter() -> None:
    with PROCESS.lock:
        submitter, PROCESS.submitter = PROCESS.submitter, None
    if submitter is not None:
        submitter.shutdown()


def handles_of(submitted: Submitted) -> list[int]:
    """The native handles; waits for the submission and raises what it raised."""
    return submitted if isinstance(submitted, list) else submitted.result()


def poll(handle: int) -> bool:
    """Whether `synchronize(handle)` would return, or raise, at once."""
    pending = _find(handle)
    if not pending.is_submitted():
        return False
    try:
        return pending.native.poll(pending.handle())
    except CollectiveError:
        return True


def synchronize(handle: int) -> Any:
    """Waits until the operation is done and returns its result; the handle ends.

    Raises:
        UsageError: the handle is unknown or was synchronized before.
        CollectiveError: the operation failed, see hvdtune.core.rank.collectives.
    """
    pending = _find(handle)
    failure: CollectiveError | None = None
    try:
        submitted = pending.handle()
    except CollectiveError:
        with PROCESS.lock:
            PROCESS.pending.pop(handle, None)
        raise
    try:
        while not pending.native.wait(submitted, WAIT_SLICE_S):
            pass
    except CollectiveError as error:
        failure = error
    operation = pending.native.release(submitted)
    with PROCESS.lock:
        PROCESS.pending.pop(handle, None)
    if failure is not None:
        try:
            raise failure
        finally:
            del failure  # or it and this frame would hold each other, and the tensors
    return pending.finish(operation)


def wait_all(native: _native.Runtime, handles: Sequence[int]) -> None:
    """Returns when all of these native handles are done and released.

    Raises:
        CollectiveError: the first failure, when all have ended.
    """
    failure: CollectiveError | None = None
    try:
        while not native.wait_all(handles, WAIT_SLICE_S):
            pass
    except CollectiveError as error:
        failure = error
    for handle in handles:
        with contextlib.suppress(CollectiveError):  # the first one is told
            while failure is not None and not native.wait(handle, WAIT_SLICE_S):
                pass
        native.release(handle)
    if failure is not None:
        raise failure


def _find(handle: int) -> _Pending:
    with PROCESS.lock:
        pending: _Pending | None = PROCESS.pending.get(handle)
    if pending is None:
        raise UsageError(f"handle {handle} is unknown, or was synchronized before")
    return pending
