"""Operations between two members of a group.

Each two of them that communicate have a runtime of their own, in which an alltoall that only one of
them has something for carries the tensor. It is formed with their first operation, by a thread that
ends then: neither waits for the other to call before its own call returns.

The core brings together the sender's n-th operation of a tag with the receiver's. A receipt from
any source does not know whose operation that is, so an `Inbox` takes part in one of every other
member, and gives what comes to the receipts.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import math
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import torch
from torch import distributed

from hvdtune.core.rank.in_flight import settle_all
from hvdtune.distributed import tensors
from hvdtune.distributed.flight import (
    COMPLETER,
    BackwardPass,
    Finish,
    Flight,
    Work,
    is_of_signal_handler,
)
from hvdtune.distributed.job import GroupPlace, GroupRuntime, find_loss, form_beside
from hvdtune.errors import RankLostError, RendezvousError, ShutdownError, UsageError

if TYPE_CHECKING:
    from hvdtune.core import _native

T = TypeVar("T")
_Line = tuple[bool, int]  # whether this member sends, and the tag
Settle = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]

# How many names the operations of a direction and tag have; see _NAMES of process_group.py.
_NAMES: Final = 1024
HAS_LEFT: Final = "has left the group, and neither sends nor receives"
# In which a thread that waits for the other member hears that nobody needs it, and ends.
_GRACE_S: Final = 5.0
# How long news of a lost rank may take where the other member has not come or has left.
_NEWS_S: Final = 1.0


class PairRuntime:
    """This member and another one.

    Thread rule: any thread; `_lock` guards the numbers and the operations that wait for the
    runtime, and is reentrant, for signal handlers that leave the group. Operations of one direction
    and tag have numbers in call order, by which the core finds those that belong together.
    """

    def __init__(self, place: GroupPlace, peer: int, left_key: str) -> None:
        """
        Args:
            left_key: in the group's store once the peer has left the group.
        """
        low, high = sorted((place.rank, peer))
        self._group_store = place.store.clone()
        self._left_key = left_key
        self._place = GroupPlace(
            distributed.PrefixStore(  # type: ignore[attr-defined]
                f"hvdtune/pair/{low}/{high}", self._group_store
            ),
            0 if place.rank == low else 1,
            2,
            place.timeout_s,
            (place.ranks[low], place.ranks[high]),
            self._is_hopeless,
        )
        self._peer = peer
        self._lock = threading.RLock()
        self._runtime: GroupRuntime | None = None
        self._error: BaseException | None = None
        self._is_over = False
        self._early: list[_Early] = []
        self._counts: Counter[_Line] = Counter()
        # The number of the operation of each line that is being started, and its flight.
        self._next: dict[_Line, tuple[int, Flight]] = {}
        self._process = os.getpid()
        self._forming = (
            threading.Lock()
        )  # taken by the thread that forms the runtime, never released
        self._has_started = False
        self._is_settled = threading.Event()  # whether that thread is done

    def send(
        self, tag: int, tensor: torch.Tensor, title: str, timeout_s: float, backward: BackwardPass
    ) -> Work:
        """Starts to send a contiguous tensor; `title` is for messages, as in `to rank 1`."""
        memory = tensors.moved(tensor)

        def begin(number: int) -> Work:
            what = f"send {number} {title}"
            finish: Finish = lambda _: [tensor]  # noqa: E731
            flight = self._flight(what, timeout_s, [tensor], finish)
            work = Work(flight, backward)
            self._start(flight, self._place.rank, tag, number, (memory.address, memory.bytes))
            return work

        return self._in_turn((True, tag), begin)

    def receive(
        self,
        tag: int,
        tensor: torch.Tensor,
        settle: Settle,
        title: str,
        timeout_s: float,
        backward: BackwardPass,
    ) -> Work:
        """Starts to receive into a contiguous tensor, which must have the message's size.

        Args:
            settle: makes of it the result.
        """
        memory = tensors.moved(tensor)

        def finish(operation: _native.Operation | None) -> list[torch.Tensor]:
            assert operation is not None
            require_size(operation.result_bytes(0), memory.bytes)
            return settle([tensor])

        def begin(number: int) -> Work:
            flight = self._flight(f"recv {number} {title}", timeout_s, [tensor], finish, self._peer)
            work = Work(flight, backward)
            into = (memory.address, memory.bytes)
            self._start(flight, 1 - self._place.rank, tag, number, into)
            return work

        return self._in_turn((False, tag), begin)

    def receive_any_size(self, tag: int) -> Flight:
        """Starts to receive into new memory, the result: bytes. It may take any time.

        REQUIRES: this is not the main thread, in which a signal handler may raise.
        """

        def finish(operation: _native.Operation | None) -> list[torch.Tensor]:
            assert operation is not None
            message = torch.empty(operation.result_bytes(0), dtype=torch.uint8)
            operation.copy_result(0, message.data_ptr(), message.numel())
            return [message]

        def begin(number: int) -> Flight:
            what = f"recv {number} from rank {self._peer}, tag {tag}"
            flight = self._flight(what, math.inf, [], finish, self._peer)
            sender = 1 - self._place.rank
            self._start(flight, sender, tag, number, (0, 0), is_patient=True)
            return flight

        return self._in_turn((False, tag), begin)

    def _flight(
        self,
        what: str,
        timeout_s: float,
        owners: Sequence[object],
        finish: Finish,
        source: int = -1,
    ) -> Flight:
        peer = self._place.ranks[1 - self._place.rank]
        awaits = f"rank {peer} has neither sent to this rank nor received from it yet"
        return Flight(what, timeout_s, owners, finish, self._place.ranks, source, awaits)

    def _in_turn(self, line: _Line, begin: Callable[[int], T]) -> T:
        """Returns what `begin` does, called with the next number of this direction and tag.

        A signal handler may raise at any point: an operation has its number exactly if it is kept
        or submitted.
        """
        with self._lock:
            self._count_started(line)
            try:
                return begin(self._counts[line])
            finally:
                self._count_started(line)

    def _count_started(self, line: _Line) -> None:
        """Counts the operation that was being started, if it was.

        REQUIRES: _lock.
        """
        if line in self._next:
            number, flight = self._next[line]
            is_early = any(early.flight is flight for early in self._early)
            if is_early or flight.is_submitted or flight.has_outcome:
                self._counts[line] = number + 1
            del self._next[line]

    def _start(
        self,
        flight: Flight,
        sender: int,
        tag: int,
        number: int,
        memory: tuple[int, int],
        *,
        is_patient: bool = False,
    ) -> None:
        """`memory`: where the message is, or is to be, and its size; (0, 0) for anywhere.

        REQUIRES: _lock.
        """
        address, size = memory
        sends = sender == self._place.rank
        splits = [0, 0]
        splits[1 - sender] = size if sends else 0
        source, target = self._place.ranks[sender], self._place.ranks[1 - sender]
        what = f"message {number % _NAMES} of tag {tag} from rank {source} to rank {target}"
        request = _native_request(f"alltoall.{what}", splits)
        inputs, outputs = ([address], [0]) if sends else ([0], [address])
        expected = [0 if sends else size]

        def begin(native: _native.Runtime) -> None:
            flight.submit(native, request, inputs, outputs, expected, background=is_patient)

        self._next[sends, tag] = (number, flight)
        if self._error is None and self._runtime is None:
            self._form_soon()
            self._early.append(_Early(flight, begin))
        else:
            _begin(_Early(flight, begin), self._runtime, self._error)

    def leave(self) -> None:
        """Ends the runtime; what is in flight fails. Again, or in a child of fork, nothing."""
        atexit.unregister(self.leave)
        if os.getpid() != self._process:
            return
        with self._lock:
            self._is_over = True
            runtime = self._runtime
        # A thread that is in torch's store or the core when the interpreter ends would abort it.
        if self._has_started:
            self._is_settled.wait(_GRACE_S)
        if runtime is not None:
            runtime.leave()
            settle_all(runtime.native)

    def _is_hopeless(self) -> bool:
        """Whether to wait for the other member is in vain: it may be the one that was lost."""
        return self._is_over or find_loss() is not None or self._peer_has_left()

    def _peer_has_left(self) -> bool:
        """To be asked by the thread that forms the runtime."""
        with contextlib.suppress(RuntimeError):
            return bool(self._group_store.check([self._left_key]))
        return False

    def _why_unformed(self, error: Exception) -> Exception:
        rank = self._place.ranks[1 - self._place.rank]
        if not self._peer_has_left():
            unreached = RankLostError(f"rank {rank} has come but cannot be reached: {error}", rank)
            return find_loss(_NEWS_S) or (
                unreached if isinstance(error, RendezvousError) else error
            )
        return find_loss() or ShutdownError(f"rank {rank} {HAS_LEFT}", rank)

    def _form_soon(self) -> None:
        """Starts the thread that forms the runtime. REQUIRES: _lock."""
        if not self._has_started:
            atexit.register(self.leave)
            # In one call: a signal handler could raise in threading's, with the thread started or
            # not. If one raises after this, a second thread ends at once.
            _thread.start_new_thread(self._form, ())
            self._has_started = True

    def _form(self) -> None:
        if not self._forming.acquire(blocking=False):
            return
        runtime: GroupRuntime | None = None
        failure: BaseException | None = None
        try:
            runtime = form_beside(self._place)
        except Exception as error:
            failure = self._why_unformed(error)
        with self._lock:
            self._runtime, self._error = runtime, failure
            is_over = self._is_over
        # Nothing is added from now on, and each is in the list until it has begun.
        for early in self._early:
            _begin(early, runtime, failure)
        with self._lock:
            self._early.clear()
        if is_over and runtime is not None:
            runtime.leave()
        self._is_settled.set()


class _Early(NamedTuple):
    """An operation of a pair that is not formed yet, and the call that submits it."""

    flight: Flight
    begin: Callable[[_native.Runtime], None]


def _begin(early: _Early, runtime: GroupRuntime | None, error: BaseException | None) -> None:
    if runtime is None:
        assert error is not None
        early.flight.fail(error)
        return
    try:
        early.begin(runtime.native)
    except Exception as refused:
        if early.flight.is_submitted or is_of_signal_handler(refused):
            raise
        early.flight.fail(refused)


def _native_request(name: str, splits: Sequence[int]) -> _native.Request:
    from hvdtune.core import _native

    # As bytes: the receiver may not know yet what comes.
    spec = ("uint8", [sum(splits)])
    return _native.Request(op="alltoall", name=name, tensors=[spec], splits=list(splits))


def require_size(came: int, room: int) -> None:
    """Raises UsageError unless a message of `came` bytes fills a tensor of `room` bytes."""
    if came != room:
        raise UsageError(f"the message has {came} bytes, the tensor for it has {room}")


@dataclass(eq=False)
class _Receipt:
    """What waits for a message: from `source`, or from any for None."""

    source: int | None
    tensor: torch.Tensor
    flight: Flight

    def land(self, source: int, message: torch.Tensor) -> None:
        room = tensors.moved(self.tensor)
        try:
            require_size(message.numel(), room.bytes)
            if room.bytes:
                # Of a single element the stride may be any.
                flat = self.tensor.as_strided((self.tensor.numel(),), (1,))
                flat.view(torch.uint8).copy_(message)
        except Exception as error:  # whoever waits has to know
            self.flight.fail(error)
        else:
            self.flight.land(source)


@dataclass
class _Box:
    """The receipts of one tag, in call order, and what has come for none of them yet.

    `posted` counts the messages that are being received from each member; who cannot send any more
    is in `gone`, with the reason, and in `lost` unless it has left of itself.
    """

    receipts: list[_Receipt] = field(default_factory=list)
    messages: list[tuple[int, torch.Tensor]] = field(default_factory=list)
    posted: Counter[int] = field(default_factory=Counter)
    gone: dict[int, BaseException] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)

    def matched(self) -> list[tuple[_Receipt, int, torch.Tensor]]:
        """Takes out the receipts for which there is a message, each with the first one for it."""
        found = []
        for receipt in list(self.receipts):
            for at, (source, _) in enumerate(self.messages):
                if receipt.source in (None, source):
                    self.receipts.remove(receipt)
                    found.append((receipt, *self.messages.pop(at)))
                    break
        return found

    def hopeless(self, peers: Sequence[int]) -> list[tuple[_Receipt, BaseException]]:
        """Takes out the receipts that will get no message, each with why.

        One from any source does not outlive a member that was lost; one that has left is no more
        than silent.
        """
        are_gone = len(self.gone) == len(peers)
        # Of those who have left, the last one is who ended the wait.
        fatal = self.lost or (list(self.gone)[-1:] if are_gone else [])
        found = []
        for receipt in list(self.receipts):
            sources = fatal if receipt.source is None else [receipt.source]
            error = self.gone.get(sources[0]) if sources else None
            if error is not None:
                self.receipts.remove(receipt)
                found.append((receipt, error))
        return found

    def missing(self, peers: Sequence[int]) -> list[int]:
        """The members from whom another message is to be received; counts them as posted."""
        found = []
        for peer in peers:
            if peer not in self.gone:
                wanted = sum(receipt.source in (None, peer) for receipt in self.receipts)
                more = max(0, wanted - self.posted[peer])
                self.posted[peer] += more
                found += [peer] * more
        return found


class Inbox:
    """Messages from any source, and those of this member to itself.

    From the first receipt from any source of a tag on, every message of that tag is received into
    memory of its own, and then goes to the first receipt in call order that may have it. A message
    to oneself is copied when it is sent.

    Messages and receipts are matched on the completer's thread, in which no signal handler raises:
    one between taking a message out and giving it away would lose it.

    Thread rule: any thread. `_lock` guards the boxes and is held while nothing is waited for and
    nothing else is called.
    """

    def __init__(
        self, rank: int, peers: Sequence[int], pair_with: Callable[[int], PairRuntime]
    ) -> None:
        self._rank = rank
        self._peers = peers
        self._pair_with = pair_with
        self._lock = threading.Lock()
        self._from_any: set[int] = set()  # tags
        # In call order, until the completer's thread takes them.
        self._new: deque[tuple[int, _Receipt | torch.Tensor]] = deque()
        self._boxes: dict[int, _Box] = {}

    def has(self, tag: int) -> bool:
        """Whether messages of this tag are received here."""
        return tag in self._from_any

    def receive(self, tag: int, source: int | None, tensor: torch.Tensor, flight: Flight) -> None:
        """The flight lands when the contiguous tensor has the message."""
        if source is None:
            self._from_any.add(tag)
        self._new.append((tag, _Receipt(source, tensor, flight)))
        COMPLETER.call(self._take)

    def send_to_oneself(self, tag: int, tensor: torch.Tensor) -> None:
        """Copies the contiguous tensor, for a receipt of this tag."""
        flat = tensor.as_strided((tensor.numel(),), (1,))
        self._new.append((tag, flat.view(torch.uint8).clone()))
        COMPLETER.call(self._take)

    def _take(self) -> None:
        """On the completer's thread."""
        found = set()
        with self._lock:
            while self._new:
                tag, new = self._new.popleft()
                box = self._boxes.setdefault(tag, _Box())
                found.add(tag)
                if isinstance(new, _Receipt):
                    box.receipts.append(new)
                else:
                    box.messages.append((self._rank, new))
        for tag in found:
            self._go_on(tag, self._boxes[tag])

    def _go_on(self, tag: int, box: _Box) -> None:
        """On the completer's thread."""
        with self._lock:
            landing = box.matched()
            failing = box.hopeless(self._peers)
            posts = box.missing(self._peers)
        for receipt, source, message in landing:
            receipt.land(source, message)
        for receipt, error in failing:
            receipt.flight.fail(error)
        for peer in posts:
            self._post(tag, box, peer)

    def _post(self, tag: int, box: _Box, peer: int) -> None:
        flight = self._pair_with(peer).receive_any_size(tag)

        def note() -> None:
            with self._lock:
                box.posted[peer] -= 1
                if flight.error is None:
                    box.messages.append((peer, flight.result()[0]))
                else:
                    box.gone.setdefault(peer, flight.error)
                    if flight.is_lost:
                        box.lost.append(peer)
            self._go_on(tag, box)

        # Another thread may end the flight, as the one that leaves the group.
        flight.future().add_done_callback(lambda _: COMPLETER.call(note))
