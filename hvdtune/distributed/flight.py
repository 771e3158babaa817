"""Operations of a process group in flight, and the one thread that completes them unasked.

A caller that waits for an operation does so in the core. Where nobody waits, as when a future was
asked for or the Work was dropped, the core tells a queue that the operation has ended, and one
thread of the process takes it from there.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import torch
from torch import distributed

from hvdtune.core.rank.handles import WAIT_SLICE_S
from hvdtune.distributed.job import find_loss, hang_warning_s, told_ranks
from hvdtune.errors import CollectiveError, MismatchError, RankLostError, ShutdownError

if TYPE_CHECKING:
    from hvdtune.core import _native

F = TypeVar("F", bound=Callable[..., Any])
Finish = Callable[[Any], list[torch.Tensor]]  # of a _native.Operation, or None

# How long news of a rank that was lost may take to come by the first group of the process.
_NEWS_S: Final = 1.0
_NEWS_OF_LEAVERS_S: Final = 0.5
_FOREVER_S: Final = 3600.0
_is_profiled: Final[Callable[[], bool]] = torch.autograd._profiler_enabled  # type: ignore[attr-defined]
_NO_RANGE: Final = contextlib.nullcontext()
# How long callbacks that are under way when the interpreter ends may take.
_GRACE_S: Final = 5.0
_WAKE: Final = 0  # a token that no flight has


def eager(function: F) -> F:
    """The function, which torch.compile neither traces nor looks into."""
    disabled: Any = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return cast(F, disabled)


def in_profile(prefix: str, what: str) -> contextlib.AbstractContextManager[object]:
    """A range of torch.profiler, where one is on, of the operation that a flight is called by."""
    if not _is_profiled():
        return _NO_RANGE
    return torch.profiler.record_function(f"hvdtune:{prefix}{what.partition(' ')[0]}")


class Flight:
    """One operation: from its submission until it has ended it owns the memory that it uses.

    Thread rule: any thread; `_lock` guards how it ends, and is held while nothing is waited for but
    news of why it has failed.

    Attributes:
        what: for messages: the operation and its number, as in `allreduce 12 of group 0`.
        awaits: for messages: what it waits for before the core knows it.
        verdict_s: how long, once the group's timeout is over, who waits does so for the core to say
            which rank is at fault.
        source: the rank that sends, of a receipt; -1 elsewhere, and where it is not known yet.
        is_lost: whether it failed because another member was lost, rather than has left.
        on_mismatch: what to call when it has failed because the ranks disagreed about it.
    """

    __slots__ = (
        "__weakref__",
        "_begun",
        "_ended",
        "_error",
        "_finish",
        "_future",
        "_handles",
        "_is_watched",
        "_lock",
        "_native",
        "_operations",
        "_owners",
        "_ranks",
        "_result",
        "_signal",
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
    ) -> None:
        """
        Args:
            finish: makes the result of the ended operation, None of one that has landed; called
                once.
            ranks: of the job, by their numbers in the runtime.
        """
        self.what = what
        self.awaits = ""
        self.verdict_s = 0.0
        self.source = source
        self.is_lost = False
        self.on_mismatch: Callable[[], None] | None = None
        self.deadline_s = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._native: _native.Runtime | None = None
        self._begun: threading.Event | None = None  # for who waits for that
        self._handles: list[int] = []
        self._operations: list[_native.Operation] = []
        self._owners = owners
        self._finish: Finish | None = finish
        self._ranks = ranks
        self._lock = threading.Lock()
        self._ended = False
        self._is_watched = False
        self._error: BaseException | None = None
        self._result: list[torch.Tensor] = []
        self._signal: torch.futures.Future[None] | None = None
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None

    def submit(
        self,
        native: _native.Runtime,
        request: _native.Request,
        inputs: Sequence[int],
        outputs: Sequence[int],
        expected_bytes: Sequence[int] = (),
        title: str = "",
        *,
        is_patient: bool = False,
    ) -> None:
        """Submits the request. Raises what the core refuses, and then it has not begun.

        Args:
            title: what it is called in the timeline, in place of the request's name.
            is_patient: nobody waits for it: it may take any time, and no hang page speaks of it.
        """
        native.submit(
            [request],
            inputs,
            outputs,
            self._handles,
            expected_bytes=expected_bytes,
            awaited=not is_patient,
            title=title,
            patient=is_patient,
        )
        with self._lock:
            self._native = native
            self._note_begin()
            is_watched = self._is_watched
        if is_watched:
            COMPLETER.add(self, native, self._handles[0])

    def fail(self, error: BaseException) -> None:
        """Ends it, which has not begun."""
        with self._lock:
            if not self._ended:
                self._end(error)
            self._note_begin()
        self._tell()

    def land(self, source: int) -> None:
        """Ends it, which the core never knew: its memory has what `source` has sent."""
        with self._lock:
            if not self._ended:
                self.source = source
                self._result = self._made(None)
                self._forget()
            self._note_begin()
        self._tell()

    @property
    def ended(self) -> bool:
        """Whether it has ended; looks."""
        if not self._ended:
            self.settle()
        return self._ended

    @property
    def error(self) -> BaseException | None:
        """Why it failed, None where it did not or has not ended."""
        return self._error

    def wait(self, timeout_s: float | None = None) -> None:
        """Returns when it has ended.

        Args:
            timeout_s: in place of the group's.

        Raises:
            DistBackendError: it has failed, or has not ended in time.
        """
        if not self._ended:
            COMPLETER.hand_over()
        given_s = self._timeout_s if timeout_s is None else timeout_s
        begun_s = time.monotonic()
        deadline_s = begun_s + given_s
        if timeout_s is None:
            deadline_s = self.deadline_s + min(self.verdict_s, given_s)
        told_s = hang_warning_s()
        while not self._ended:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0 and not self.ended:
                raise self._late(given_s)
            failure: CollectiveError | None = None
            wait_s = min(WAIT_SLICE_S, max(left_s, 0.0))
            if self._native is None:
                self._await_begin(wait_s)
                waited_s = time.monotonic() - begun_s
                if told_s and waited_s >= told_s and self._native is None and not self._ended:
                    told_s = 2 * waited_s
                    warn(f"{self.what} has waited for {waited_s:.1f} s: {self.awaits}")
                continue
            try:
                if not self._native.finish(self._handles, wait_s, self._operations):
                    continue
            except CollectiveError as error:
                failure = error
            with self._lock:
                # Another thread may have ended it, or be about to say so.
                if not self._ended and (failure is not None or self._operations):
                    self._end(failure)
            self._tell()
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raises DistBackendError where it has failed."""
        if self._error is not None:
            raise self._error

    def result(self) -> list[torch.Tensor]:
        """Its tensors. Raises as `wait` does, of what has ended."""
        self.raise_failure()
        return self._result

    def future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Holds the tensors when it has ended, or why it failed."""
        with self._lock:
            if self._future is None:
                self._signal = torch.futures.Future()
                self._future = self._signal.then(lambda _: self.result())
            future = self._future
        self.watch()
        if self._ended:
            self._tell()
        return future

    def watch(self) -> None:
        """Has it completed by the thread that does so, unless it has ended."""
        with self._lock:
            if self._ended or self._is_watched:
                return
            self._is_watched = True
            native = self._native
        if native is not None:  # else when it begins
            COMPLETER.add(self, native, self._handles[0])

    def settle(self) -> None:
        """Completes it if the core has ended it; returns at once."""
        with self._lock:
            # Where the handles have ended, the thread that waited for them says how.
            if not self._ended and self._native is not None and any(self._handles):
                failure = self._native.settle(self._handles, self._operations)
                if not any(self._handles):
                    self._end(failure)
        self._tell()

    def expire(self) -> None:
        """Fails its future, because the time is over; the memory stays with it."""
        with self._lock:
            if not self._ended:
                self._error = self._late(self._timeout_s)
        self._fulfil()

    def _late(self, timeout_s: float) -> distributed.DistBackendError:
        late = TimeoutError(f"Timed out after {timeout_s:g} s")
        return backend_error(self.what, late, self._ranks)

    def _end(self, failure: BaseException | None) -> None:
        """REQUIRES: _lock."""
        if failure is None:
            try:
                self._result = self._made(self._operations[0])
            except Exception as error:
                failure = error
        if failure is not None:
            if isinstance(failure, MismatchError) and self.on_mismatch is not None:
                self.on_mismatch()
            self.is_lost = self._native is not None and self._native.has_lost_a_rank()
            # What never began was refused by this job, not by the core of those who take part.
            ranks = () if self._native is None else self._ranks
            if isinstance(failure, RankLostError):
                # Who is gone may be one that ended because it has heard of a loss before this rank.
                wait_s = _NEWS_S if self.is_lost else _NEWS_OF_LEAVERS_S
                loss = find_loss(wait_s, beside=self._native)
                failure, ranks = (loss, ()) if loss is not None else (failure, ranks)
            self._error = backend_error(self.what, failure, ranks)
        self._forget()

    def _made(self, operation: _native.Operation | None) -> list[torch.Tensor]:
        assert self._finish is not None
        return self._finish(operation)

    def _forget(self) -> None:
        """It has ended, and uses no memory. REQUIRES: _lock."""
        self._ended = True
        self._owners, self._finish, self._operations = (), None, []
        self.on_mismatch = None

    def _note_begin(self) -> None:
        """REQUIRES: _lock."""
        if self._begun is not None:
            self._begun.set()

    def _await_begin(self, wait_s: float) -> None:
        with self._lock:
            if self._native is not None or self._ended:
                return
            begun = self._begun = self._begun or threading.Event()
        begun.wait(wait_s)

    def _tell(self) -> None:
        # Who makes the future looks whether it has ended when that is done.
        if self._ended and self._signal is not None:
            self._fulfil()

    def _fulfil(self) -> None:
        with self._lock:
            signal, self._signal = self._signal, None
        if signal is not None:
            signal.set_result(None)


def backend_error(
    what: str, cause: BaseException, ranks: tuple[int, ...]
) -> distributed.DistBackendError:
    """The error that torch's users expect; its `rank` is the one of the job that is at fault.

    Args:
        ranks: of the job, by the numbers that the core knows.
    """
    rank = getattr(cause, "rank", -1)
    message = f"{what}: {cause}"
    if isinstance(cause, ShutdownError) and 0 <= rank < len(ranks):
        # The core's advice is for those who join().
        message = (
            f"{what}: rank {rank} has left the group: it has destroyed it, or ended, perhaps by an "
            "error of its own"
        )
    if 0 <= rank < len(ranks) and ranks[rank] != rank:
        message = f"{message}; rank {rank} there is rank {ranks[rank]} of the job"
        rank = ranks[rank]
    elif isinstance(cause, CollectiveError) and (names := told_ranks(ranks)):
        message = f"{message}; this is of a process group {names}"
    error = distributed.DistBackendError(message)
    vars(error).update(rank=rank)
    return error


def warn(text: str) -> None:
    """Says it on standard error as the core does."""
    rank = distributed.get_rank() if distributed.is_initialized() else 0
    os.write(2, f"hvdtune[{rank}] warning: {text}\n".encode())


class BackwardPass:
    """What a backward pass of autograd has started: the pass ends when all of it has.

    DistributedDataParallel waits for its futures in C++, where all that is left of an error is its
    text. So the thread that ends the pass waits before that, in the core, and raises the error.

    Thread rule: the thread of the pass.
    """

    def __init__(self) -> None:
        self._task = -1
        self._flights: list[Flight] = []

    def add(self, flight: Flight) -> None:
        """Adds what was started in the pass that is under way, if one is."""
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


class Work(distributed.Work):
    """What torch gives its users for an operation in flight."""

    def __init__(self, flight: Flight, backward: BackwardPass) -> None:
        super().__init__()
        self._flight = flight
        self._backward = backward

    @eager
    def wait(self, timeout: timedelta | None = None) -> bool:
        """As torch's: True, or DistBackendError. The group's timeout stands in for 0."""
        seconds = timeout.total_seconds() if timeout is not None else 0.0
        with in_profile("wait for ", self._flight.what):
            self._flight.wait(seconds if seconds > 0 else None)
        return True

    @eager
    def synchronize(self) -> None:
        """As `wait`."""
        self.wait()

    @eager
    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """As torch's: holds the tensors of the operation."""
        self._backward.add(self._flight)
        COMPLETER.hand_over()
        return self._flight.future()

    def result(self) -> list[torch.Tensor]:
        """As torch's: the tensors of the operation, which has ended."""
        return self._flight.result()

    def _source_rank(self) -> int:
        return self._flight.source

    def is_completed(self) -> bool:
        """As torch's."""
        return self._flight.ended

    def is_success(self) -> bool:
        """As torch's."""
        return self._flight.ended and self._flight.error is None

    def exception(self) -> BaseException | None:
        """As torch's."""
        return self._flight.error

    # Bound here: a module's names may have gone by the time that the last of these does.
    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_finalizing():  # when there would be no thread to complete it
            self._flight.watch()


class Completer:
    """Completes flights that nobody waits for, on a thread that begins with the first of them.

    Callbacks of futures run there, and may wait for operations of their own: the thread hands its
    work over to another one before it does, and ends with the callback.

    Thread rule: any thread; `_lock` guards all state but `_taken`, which is the thread's that has
    the `_turn`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: _native.CompletionQueue | None = None
        self._flights: dict[int, Flight] = {}
        self._next = _WAKE + 1
        self._wakes_s = 0.0  # when the thread looks at the deadlines next
        self._taken: deque[int] = deque()
        self._turn = 0
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self._own = threading.local()  # the turn that a thread was started for

    def add(self, flight: Flight, native: _native.Runtime, handle: int) -> None:
        """Completes the flight when the core has ended this handle of its."""
        with self._lock:
            if self._is_closed:
                return
            if self._queue is None:
                self._begin()
            queue = self._queue
            token, self._next = self._next, self._next + 1
            self._flights[token] = flight
            is_sooner = flight.deadline_s < self._wakes_s
        assert queue is not None
        if not native.watch(handle, queue, token):
            queue.put(token)  # somebody who waited has ended it
        elif is_sooner:
            queue.put(_WAKE)

    def hand_over(self) -> None:
        """To be called before a wait for a flight: this thread may be the one to complete it."""
        if getattr(self._own, "turn", -1) == self._turn:
            with self._lock:
                if not self._is_closed:
                    self._start_thread()

    def close(self) -> None:
        """Completes nothing from now on.

        To be called when the interpreter ends: a thread that is in a callback of torch then would
        abort the process.
        """
        with self._lock:
            self._is_closed = True
            self._turn += 1
            threads, queue = self._threads, self._queue
        if queue is not None:
            queue.put(_WAKE)
        for thread in threads:
            thread.join(_GRACE_S)

    def _begin(self) -> None:
        """REQUIRES: _lock."""
        from hvdtune.core import _native

        self._queue = _native.CompletionQueue()
        self._start_thread()

    def _start_thread(self) -> None:
        """REQUIRES: _lock."""
        self._turn += 1
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        self._threads.append(
            threading.Thread(
                target=self._run,
                args=(self._queue, self._turn),
                name="hvdtune-completer",
                daemon=True,
            )
        )
        self._threads[-1].start()

    def _run(self, queue: _native.CompletionQueue, turn: int) -> None:
        self._own.turn = turn
        while self._turn == turn:
            if self._taken:
                self._complete(self._taken.popleft())
                continue
            wait_s = self._until_next_deadline()
            if self._turn == turn:
                self._taken.extend(queue.take(wait_s))

    def _complete(self, token: int) -> None:
        with self._lock:
            flight = self._flights.pop(token, None)
        if flight is not None:
            flight.settle()

    def _until_next_deadline(self) -> float:
        now_s = time.monotonic()
        with self._lock:
            late = [flight for flight in self._flights.values() if flight.deadline_s <= now_s]
            coming = [f.deadline_s for f in self._flights.values() if f.deadline_s > now_s]
            self._wakes_s = min(coming, default=now_s + _FOREVER_S)
            wait_s = min(self._wakes_s - now_s, _FOREVER_S)
        for flight in late:
            flight.expire()
        return wait_s

    def forget_after_fork(self) -> None:
        """The thread is the parent's."""
        self.__init__()  # type: ignore[misc]


COMPLETER: Final = Completer()
# Before any group is made, and so after all of them have been left.
atexit.register(COMPLETER.close)
os.register_at_fork(after_in_child=COMPLETER.forget_after_fork)
