"""Operations of process groups in flight, and the thread that completes them without a waiter.

A caller that waits for an operation does so in the core. If no thread waits, because a future was
requested or the Work was dropped, the core puts the ended operation into a queue, and one thread of
the process completes it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

import torch
from torch import distributed

from hvdtune.core.rank.in_flight import WAIT_SLICE_S, InFlight
from hvdtune.distributed.job import find_loss, hang_warning_s, names_of, news_can_come
from hvdtune.errors import CollectiveError, MismatchError, RankLostError, ShutdownError

if TYPE_CHECKING:
    from hvdtune.core import _native

F = TypeVar("F", bound=Callable[..., Any])
Finish = Callable[[Any], list[torch.Tensor]]  # takes a _native.Operation, or None

# How long the process's first group may take to report a lost rank.
_NEWS_S: Final = 1.0
_NEWS_OF_LEAVERS_S: Final = 0.5
_FOREVER_S: Final = 3600.0
_is_profiled: Final[Callable[[], bool]] = torch.autograd._profiler_enabled  # type: ignore[attr-defined]
# In messages of the core: a rank has left, and ranks call different operations.
_CORE_HAS_LEFT: Final = " has shut down, so no collective can complete"
_CORE_DIFFERS: Final = "every rank must call the same operation"
_NO_RANGE: Final = contextlib.nullcontext()
_GRACE_S: Final = 5.0  # for callbacks that run when the interpreter ends
_WAKE: Final = 0  # a token that no flight has


def eager(function: F) -> F:
    """Excludes the function from torch.compile."""
    disabled: Any = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return cast(F, disabled)


def in_profile(prefix: str, what: str) -> contextlib.AbstractContextManager[object]:
    """Return a range of torch.profiler for the operation of a flight, if a profiler is active."""
    if not _is_profiled():
        return _NO_RANGE
    return torch.profiler.record_function(f"hvdtune:{prefix}{what.partition(' ')[0]}")


class Flight(InFlight):
    """One operation of a process group: adds deadlines, futures and errors of torch to InFlight.

    Thread rule: any thread. `_finishing` is held while the result is made; nothing sleeps under it.
    The collector may run a finalizer in a thread that holds any lock, so finalizers take none: the
    methods they call rely on Python's lock, as single operations on a deque, dict or attribute do.

    Attributes:
        what: the operation for messages, as in `allreduce 12 of process group 0`.
        awaits: the reason for messages why it is not submitted yet.
        verdict_s: how much longer than the group's timeout a waiter waits, for the core to find the
            rank at fault.
        source: the sender's rank, of a receipt; -1 if unknown.
        is_lost: whether it failed because another member was lost, rather than left.
        on_mismatch: called when the ranks disagreed about it, before it ends; maybe twice.
    """

    __slots__ = (
        "__weakref__",
        "_begun",
        "_ended",
        "_error",
        "_failed_s",
        "_finish",
        "_finishing",
        "_is_watched",
        "_promise",
        "_ranks",
        "_result",
        "_timeout_s",
        "awaits",
        "deadline_s",
        "is_lost",
        "on_mismatch",
        "source",
        "verdict_s",
        "what",
    )

    def __init__(
        self,
        what: str,
        timeout_s: float,
        owners: Sequence[object],
        finish: Finish,
        ranks: tuple[int, ...],
        source: int = -1,
        awaits: str = "",
    ) -> None:
        """
        Args:
            finish: makes the result from the ended operation, or from None if it has landed.
                Called again only if a signal handler raised in it.
            ranks: the members' ranks in the job.
            awaits: required unless the flight is submitted at once.
        """
        super().__init__(owners, [])
        self.what = what
        self.awaits = awaits
        self.verdict_s = 0.0
        self.source = source
        self.is_lost = False
        self.on_mismatch: Callable[[], None] | None = None
        self.deadline_s = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._begun = threading.Event() if awaits else None  # submitted, or has an outcome
        self._finish: Finish | None = finish
        self._ranks = ranks
        self._finishing = threading.RLock()
        self._failed_s: float | None = None
        self._ended = False
        self._is_watched = False
        self._error: BaseException | None = None
        self._result: list[torch.Tensor] = []
        self._promise: dict[None, _Promise] = {}  # setdefault() lets one thread make it

    def submit(
        self,
        native: _native.Runtime,
        request: _native.Request,
        inputs: Sequence[int],
        outputs: Sequence[int],
        expected_bytes: Sequence[int] = (),
        title: str = "",
        *,
        background: bool = False,
    ) -> None:
        """Submits the request. If the core refuses it, raises why, and nothing is in flight.

        Args:
            title: its name in the timeline, instead of the request's name.
            background: exempt from timeouts and hang reports. It uses no memory of the caller's,
                and the completer owns it.
        """
        self._submit(
            native,
            [request],
            inputs,
            outputs,
            expected_bytes=expected_bytes,
            awaited=not background,
            title=title,
            patient=background,
        )
        if self._begun is not None:
            self._begun.set()
        if background:
            self._leave()
        if self._is_watched:
            self.watch()

    def fail(self, error: BaseException) -> None:
        """Fails it, soon. REQUIRES: it is not submitted."""
        self._failure = self._failure or error
        if self._begun is not None:
            self._begun.set()
        COMPLETER.call(partial(self.settle, may_sleep=True))

    def land(self, source: int) -> None:
        """Ends it with the message of `source` in its memory. REQUIRES: it is not submitted."""
        self.source = source
        self.handles.append(0)
        self.settle()
        if self._begun is not None:
            self._begun.set()

    @property
    def ended(self) -> bool:
        """Return whether it has ended; asks the core, and returns at once."""
        if not self._ended:
            self.settle()
        return self._ended

    @property
    def is_over(self) -> bool:
        """Return whether it is known to have ended; does not ask the core."""
        return self._ended

    @property
    def error(self) -> BaseException | None:
        """The error it ended with, if any."""
        return self._error

    def wait(self, timeout_s: float | None = None) -> None:
        """Returns when it has ended.

        Args:
            timeout_s: replaces the group's timeout.

        Raises:
            DistBackendError: it has failed, or has not ended in time.
        """
        if not self._ended:
            COMPLETER.hand_over()
            self._await_outcome(timeout_s)
            self._conclude(may_sleep=True)
            self._fulfil()
        self.raise_failure()

    def _await_outcome(self, timeout_s: float | None) -> None:
        begun_s = time.monotonic()
        given_s = self._timeout_s if timeout_s is None else timeout_s
        deadline_s = begun_s + given_s
        if timeout_s is None:
            deadline_s = self.deadline_s + min(self.verdict_s, given_s)
        warns_s = 0.0
        while not (self._ended or self.has_outcome):
            left_s = deadline_s - time.monotonic()
            wait_s = min(WAIT_SLICE_S, max(left_s, 0.0))
            if self.handles:
                if not self._look(self._native, wait_s) and left_s <= 0:
                    raise self._late(given_s)
                continue
            if left_s <= 0:
                raise self._late(given_s)
            if self._begun is None:  # being submitted
                time.sleep(min(wait_s, 0.001))
                continue
            self._begun.wait(wait_s)
            warns_s = warns_s or hang_warning_s()
            waited_s = time.monotonic() - begun_s
            if warns_s and waited_s >= warns_s and not self._begun.is_set():
                warns_s = 2 * waited_s
                warn(f"{self.what} has waited for {waited_s:.1f} s: {self.awaits}")

    def raise_failure(self) -> None:
        """Raises DistBackendError if it has failed."""
        if self._error is not None:
            raise self._error

    def result(self) -> list[torch.Tensor]:
        """Return its tensors, once it has ended. Raises as `wait` does."""
        self.raise_failure()
        return self._result

    def future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """A future that gets its tensors, or its error, when it ends."""
        promise = self._promise.get(None)
        if promise is None:
            signal: torch.futures.Future[None] = torch.futures.Future()
            made = _Promise(signal, signal.then(lambda _: self.result()))
            promise = self._promise.setdefault(None, made)
        self.watch()
        self._fulfil()
        return promise.future

    def watch(self) -> None:
        """Makes the completer's thread end it. Takes no lock."""
        self._is_watched = True
        if self.handles and self._native is not None and not self._ended:
            COMPLETER.add(self, self._native, self.handles[0])

    def settle(self, *, may_sleep: bool = False) -> None:
        """Ends it if it has an outcome.

        Args:
            may_sleep: wait for news about the failure, instead of leaving it in flight until then.
        """
        if not self._ended and (
            self.has_outcome or (self.handles and self._look(self._native, 0.0))
        ):
            self._conclude(may_sleep=may_sleep)
        self._fulfil()

    def expire(self) -> None:
        """Fails its future, because the time is over; it keeps its memory.

        REQUIRES: not the main thread, in which a signal handler may raise.
        """
        if self._finishing.acquire(blocking=False):  # else another thread ends it
            try:
                if not self._ended:
                    self._error = self._late(self._timeout_s)
            finally:
                self._finishing.release()
            self._fulfil(expired=True)

    def _late(self, timeout_s: float) -> distributed.DistBackendError:
        late = TimeoutError(f"Timed out after {timeout_s:g} s")
        return backend_error(self.what, late, self._ranks)

    @property
    def has_outcome(self) -> bool:
        """Return whether nothing uses its memory any more."""
        return (bool(self.handles) and not any(self.handles)) or self._failure is not None

    def _conclude(self, *, may_sleep: bool) -> None:
        """Ends it, which has an outcome; not yet if news about its failure may come."""
        # Freed when this returns, without the lock.
        kept = self.owners, self._finish, self._operations
        error = None
        if (failure := self._failure) is not None:
            error = self._error_of(failure, may_sleep=may_sleep)
            if error is None:
                return
        with self._finishing:
            if self._ended:
                return
            if error is None:
                assert kept[1] is not None
                try:
                    self._result = kept[1](kept[2][0] if kept[2] else None)
                except Exception as refused:
                    if is_of_signal_handler(refused):
                        raise  # the next call makes the result
                    error = backend_error(self.what, refused, self._ranks)
            self._error = error or self._error
            self._ended = True
            self._leave()
            self.owners, self._finish, self._operations = (), None, []
            self._failure = self.on_mismatch = None

    def _error_of(
        self, failure: BaseException, *, may_sleep: bool
    ) -> distributed.DistBackendError | None:
        """The error to raise; None if news of a lost rank may come and this may not sleep."""
        on_mismatch = self.on_mismatch
        if isinstance(failure, MismatchError) and on_mismatch is not None:
            on_mismatch()
        native = self._native if self.handles else None
        self.is_lost = native is not None and native.has_lost_a_rank()
        # An operation that was not submitted was refused by this process, not by the members.
        ranks = () if native is None else self._ranks
        if isinstance(failure, RankLostError):
            # The rank that left may have heard of a loss before this rank.
            if self._failed_s is None:
                self._failed_s = time.monotonic()
            wait_s = _NEWS_S if self.is_lost else _NEWS_OF_LEAVERS_S
            left_s = self._failed_s + wait_s - time.monotonic()
            loss = find_loss(left_s if may_sleep else 0.0, other=native)
            if loss is None and left_s > 0 and not may_sleep and news_can_come(native):
                return None
            failure, ranks = (loss, ()) if loss is not None else (failure, ranks)
        return backend_error(self.what, failure, ranks)

    def _fulfil(self, *, expired: bool = False) -> None:
        """Completes the future, if there is one, of a flight that has ended or expired."""
        promise = self._promise.get(None)
        if promise is None or promise.signal.done() or not (self._ended or expired):
            return
        try:
            promise.signal.set_result(None)
        except RuntimeError as error:
            # Another thread was first.
            if is_of_signal_handler(error) or not promise.signal.done():
                raise


class _Promise(NamedTuple):
    """The future of a flight, and the signal that completes it."""

    signal: torch.futures.Future[None]
    future: torch.futures.Future[list[torch.Tensor]]


def is_of_signal_handler(error: BaseException) -> bool:
    """Return whether a signal handler has raised the error.

    Python calls a handler with the frame that it interrupts, so one of its variables is that frame.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        for value in trace.tb_frame.f_locals.values():
            values = value if isinstance(value, tuple) else (value,)
            if any(each is interrupted for each in values):
                return True
    return False


def backend_error(
    what: str, cause: BaseException, ranks: tuple[int, ...]
) -> distributed.DistBackendError:
    """Return the error that torch's users expect; its `rank` is the job's rank at fault, or -1.

    Args:
        ranks: the group's ranks in the job.
    """
    rank = getattr(cause, "rank", -1)
    message = f"{what}: {cause}"
    has_left = isinstance(cause, ShutdownError) or _CORE_HAS_LEFT in str(cause)
    if has_left and 0 <= rank < len(ranks):
        # The core's advice is for callers of join().
        message = (
            f"{what}: rank {rank} has left the group before this rank. It ran out of batches "
            "earlier, destroyed the group, or failed. Give every rank the same number of batches, "
            "or train in `with model.join():` of DDP"
        )
    elif isinstance(cause, MismatchError) and _CORE_DIFFERS in str(cause):
        message = (
            f"{message}. Ranks that run different code, for example validation on one rank only, "
            "call different operations"
        )
    if 0 <= rank < len(ranks) and ranks[rank] != rank:
        message = f"{message}. Rank {rank} of the group is rank {ranks[rank]} of the job"
        rank = ranks[rank]
    elif isinstance(cause, CollectiveError) and (names := names_of(ranks)):
        message = f"{message}. This happened in a process group {names}"
    error = distributed.DistBackendError(message)
    vars(error).update(rank=rank)
    return error


def warn(text: str) -> None:
    """Writes a warning to standard error in the core's form."""
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    os.write(2, f"hvdtune[{rank}] warning: {text}\n".encode())


class BackwardPass:
    """Operations that a backward pass of autograd has started: the pass ends when they have.

    DistributedDataParallel waits for its futures in C++, where only the text of an error remains.
    So the thread that ends the pass waits before that, in the core, and raises the error.

    Thread rule: the thread of the pass.
    """

    def __init__(self) -> None:
        self._task = -1
        self._flights: list[Flight] = []

    def add(self, flight: Flight) -> None:
        """Adds a flight to the current pass, if there is one."""
        task = torch._C._current_graph_task_id()
        if task == -1:
            return
        if task != self._task:
            self._task, self._flights = task, []
            torch.autograd.Variable._execution_engine.queue_callback(self._end)
        self._flights.append(flight)

    def _end(self) -> None:
        self._task, flights = -1, self._flights
        self._flights = []
        for flight in flights:
            flight.wait()


class Completer:
    """Ends flights without a waiting thread, on a thread of its own.

    Callbacks of futures run there, and may wait for other operations. Before such a wait another
    thread takes the turn; the old one ends with its callback.

    Thread rule: any thread. `_lock` is held while a thread is started. `call` and `add` take no
    lock: see Flight. `_taken` and the head of `_calls` belong to the thread that has the `_turn`.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._queue: _native.CompletionQueue | None = None
        self._flights: dict[int, Flight] = {}  # by id(), the token in the queue
        self._calls: deque[Callable[[], None]] = deque()
        self._wakes_s = 0.0  # when the thread checks the deadlines next
        self._taken: deque[int] = deque()
        self._turn = 0
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self._own = threading.local()  # the turn that a thread was started for

    def begin(self) -> None:
        """Starts the thread unless it runs. A finalizer must not do so: it takes locks."""
        from hvdtune.core import _native

        with self._lock:
            if self._queue is None:
                self._queue = _native.CompletionQueue()
            if not (self._threads or self._is_closed):
                self._start_thread()

    def add(self, flight: Flight, native: _native.Runtime, handle: int) -> None:
        """Ends the flight when this handle of its ends. May be called again."""
        queue = self._queue
        if queue is None or self._is_closed:
            return
        token = id(flight)
        self._flights[token] = flight
        if not native.watch(handle, queue, token):
            queue.put(token)  # a waiter has ended it
        elif flight.deadline_s < self._wakes_s:
            queue.put(_WAKE)

    def call(self, function: Callable[[], None]) -> None:
        """Calls the function on the thread, soon."""
        self._calls.append(function)
        if (queue := self._queue) is not None:
            queue.put(_WAKE)

    def hand_over(self) -> None:
        """Must be called before a wait for a flight: this thread may be the one to complete it."""
        if getattr(self._own, "turn", -1) == self._turn:
            with self._lock:
                if not self._is_closed:
                    self._start_thread()

    def close(self) -> None:
        """Completes nothing from now on.

        Called when the interpreter ends: a thread in a callback of torch would then abort the
        process.
        """
        with self._lock:
            self._is_closed = True
            self._turn += 1
            threads, queue = self._threads, self._queue
        if queue is not None:
            queue.put(_WAKE)
        for thread in threads:
            thread.join(_GRACE_S)

    def _start_thread(self) -> None:
        """REQUIRES: _lock."""
        self._turn += 1
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        given = (self._queue, self._turn)
        thread = threading.Thread(
            target=self._run, args=given, name="hvdtune-completer", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _run(self, queue: _native.CompletionQueue, turn: int) -> None:
        self._own.turn = turn
        while self._turn == turn:
            if self._calls:
                self._calls.popleft()()
            elif self._taken:
                self._complete(self._taken.popleft())
            else:
                wait_s = self._until_next_deadline()
                if self._turn == turn:
                    self._taken.extend(queue.take(wait_s))

    def _complete(self, token: int) -> None:
        flight = self._flights.get(token)
        if flight is None:
            return
        flight.settle(may_sleep=True)
        # The token may be of an earlier flight that had the same id(): then this one still waits.
        if flight.is_over:
            self._flights.pop(token, None)

    def _until_next_deadline(self) -> float:
        now_s = time.monotonic()
        flights = list(self._flights.values())
        self._wakes_s = min(
            (flight.deadline_s for flight in flights if flight.deadline_s > now_s),
            default=now_s + _FOREVER_S,
        )
        for flight in flights:
            if flight.deadline_s <= now_s:
                flight.expire()
        return min(self._wakes_s - now_s, _FOREVER_S)

    def forget_after_fork(self) -> None:
        """Forgets the thread, which is the parent's."""
        if self._queue is not None:  # never destroyed: that would wait for the thread
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._queue))
        self.__init__()  # type: ignore[misc]


COMPLETER: Final = Completer()
# Before any group is made, and so after all of them have been left.
atexit.register(COMPLETER.close)
os.register_at_fork(after_in_child=COMPLETER.forget_after_fork)


class Work(distributed.Work):
    """Torch's interface to an operation in flight."""

    def __init__(self, flight: Flight, backward: BackwardPass) -> None:
        super().__init__()
        self._flight = flight
        self._backward = backward

    @eager
    def wait(self, timeout: timedelta | None = None) -> bool:
        """Waits; raises DistBackendError if it fails. A timeout of 0 means the group's."""
        seconds = timeout.total_seconds() if timeout is not None else 0.0
        with in_profile("wait for ", self._flight.what):
            self._flight.wait(seconds if seconds > 0 else None)
        return True

    @eager
    def synchronize(self) -> None:
        self.wait()

    @eager
    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        self._backward.add(self._flight)
        COMPLETER.hand_over()
        return self._flight.future()

    def result(self) -> list[torch.Tensor]:
        return self._flight.result()

    def _source_rank(self) -> int:
        return self._flight.source

    def is_completed(self) -> bool:
        return self._flight.ended

    def is_success(self) -> bool:
        return self._flight.ended and self._flight.error is None

    def exception(self) -> BaseException | None:
        return self._flight.error

    # Bound here: a module's names may be gone when the last Work is freed.
    def __del__(
        self,
        is_finalizing: Callable[[], bool] = sys.is_finalizing,
        call: Callable[[Callable[[], None]], None] = COMPLETER.call,
    ) -> None:
        """Takes no lock: the collector may run it in a thread that holds any."""
        flight = self.__dict__.get("_flight")
        # When the interpreter ends there is no thread to complete it.
        if flight is not None and not (flight._ended or is_finalizing()):
            call(flight.watch)
