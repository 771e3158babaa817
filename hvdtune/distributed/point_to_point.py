"""Operations between two members of a group.

Each two members that communicate have a runtime of their own, in which an alltoall with data from
one of them carries the tensor. It is formed with their first operation, by a short-lived thread:
neither member waits for the other to call before its own call returns.

The core matches the sender's n-th operation of a tag with the receiver's. A receipt from any source
does not know the sender, so an `Inbox` takes part in an operation of every other member, and hands
the messages to the receipts.
"""

from __future__ import annotations

import _thread
import atexit
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
from hvdtune.distributed.flight import COMPLETER, Finish, Flight, is_of_signal_handler, warn
from hvdtune.distributed.job import GroupRuntime, find_loss, form_beside, hang_warning_s
from hvdtune.distributed.store_board import GroupPlace, has
from hvdtune.errors import RankLostError, RendezvousError, ShutdownError, UsageError
from hvdtune.plural import counted

if TYPE_CHECKING:
    from hvdtune.core import _native

T = TypeVar("T")
_Line = tuple[bool, int]  # whether this member sends, and the tag
_Begin = Callable[["_native.Runtime"], None]

# Number of names for the operations of a direction and tag, as COUNT in names.py.
_NAMES: Final = 1024
HAS_LEFT: Final = "has left the group, and neither sends nor receives"
# How long the thread that waits for the other member may take to stop.
_GRACE_S: Final = 5.0
# How long news of a lost rank may take if the other member has not come or has left.
_NEWS_S: Final = 1.0


class PairRuntime:
    """This member and another one.

    Thread rule: any thread. `_lock` guards the counts, `_next`, `_early`, `_runtime`, `_error` and
    `_is_over`, and is reentrant, for signal handlers that leave the group. Operations of one
    direction and tag are numbered in call order; the core matches them by number.
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
        self._peer_of_job = place.ranks[peer]
        self._lock = threading.RLock()
        self._runtime: GroupRuntime | None = None
        self._error: BaseException | None = None
        self._is_over = False
        self._early: list[tuple[Flight, _Begin]] = []  # until the runtime is formed
        self._counts: Counter[_Line] = Counter()
        # The number and the flight of the operation of each line that is being started.
        self._next: dict[_Line, tuple[int, Flight]] = {}
        self._process = os.getpid()
        # Taken by the thread that forms the runtime, and never released.
        self._forming = threading.Lock()
        self._has_started = False
        self._is_settled = threading.Event()  # set when that thread is done

    def start(
        self,
        line: _Line,
        tensor: torch.Tensor | None,
        finish: Finish,
        title: str,
        timeout_s: float,
        wrap: Callable[[Flight], T],
    ) -> T:
        """Starts to send or receive a contiguous tensor; returns what `wrap` returns.

        A signal handler may raise at any point: an operation has its number exactly if it is in
        `_early` or submitted.

        Args:
            tensor: must have the message's size. None receives a message of any size in the
                background, into memory of the operation.
            title: for messages, as in `to rank 1`.
            wrap: called before the submission.
        """
        sends, tag = line
        address, size = (tensor.data_ptr(), tensor.nbytes) if tensor is not None else (0, 0)
        sender = self._place.rank if sends else 1 - self._place.rank
        splits = [0, 0]
        splits[1 - sender] = size if sends else 0
        source, target = self._place.ranks[sender], self._place.ranks[1 - sender]
        expected = [0 if sends else size]
        inputs, outputs = ([address], [0]) if sends else ([0], [address])

        def begun(number: int) -> T:
            flight = Flight(
                f"{'send' if sends else 'recv'} {number} {title}",
                timeout_s,
                [tensor],
                finish,
                self._place.ranks,
                -1 if sends else self._peer,
                f"rank {self._peer_of_job} has neither sent to nor received from this rank yet",
            )
            wrapped = wrap(flight)
            what = f"message {number % _NAMES} of tag {tag} from rank {source} to rank {target}"
            request = _native_request(f"alltoall.{what}", splits)

            def begin(native: _native.Runtime) -> None:
                flight.submit(native, request, inputs, outputs, expected, background=tensor is None)

            self._next[line] = (number, flight)
            if self._error is None and self._runtime is None:
                self._form_soon()
                self._early.append((flight, begin))
            else:
                _begin(flight, begin, self._runtime, self._error)
            return wrapped

        with self._lock:
            self._count_started(line)
            try:
                return begun(self._counts[line])
            finally:
                self._count_started(line)

    def _count_started(self, line: _Line) -> None:
        """Counts the operation that was being started, if it was.

        REQUIRES: _lock.
        """
        if line in self._next:
            number, flight = self._next[line]
            is_early = any(early is flight for early, _ in self._early)
            if is_early or flight.is_submitted or flight.has_outcome:
                self._counts[line] = number + 1
            del self._next[line]

    def receive_any_size(self, tag: int) -> Flight:
        """Starts to receive into new memory; the result is bytes. It may take any time.

        REQUIRES: not the main thread, in which a signal handler may raise.
        """

        def finish(operation: _native.Operation | None) -> list[torch.Tensor]:
            assert operation is not None
            message = torch.empty(operation.result_bytes(0), dtype=torch.uint8)
            operation.copy_result(0, message.data_ptr(), message.numel())
            return [message]

        title = f"from rank {self._peer}, tag {tag}"
        return self.start((False, tag), None, finish, title, math.inf, lambda flight: flight)

    def leave(self) -> None:
        """Ends the runtime; flights fail. Again, or in a child of fork, does nothing."""
        atexit.unregister(self.leave)
        if os.getpid() != self._process:
            return
        with self._lock:
            self._is_over = True
            runtime = self._runtime
        # A thread in torch's store or the core when the interpreter ends would abort it.
        if self._has_started:
            self._is_settled.wait(_GRACE_S)
        if runtime is not None:
            runtime.leave()
            settle_all(runtime.native)

    def _is_hopeless(self) -> bool:
        """Return whether the other member can no longer come; it may be the lost one."""
        return self._is_over or find_loss() is not None or self._peer_has_left()

    def _peer_has_left(self) -> bool:
        """Called by the thread that forms the runtime."""
        return has(self._group_store, self._left_key)

    def _why_unformed(self, error: Exception) -> Exception:
        rank = self._peer_of_job
        if self._peer_has_left():
            return find_loss() or ShutdownError(f"rank {rank} {HAS_LEFT}", rank)
        if isinstance(error, RendezvousError):
            error = RankLostError(f"rank {rank} is running but cannot be reached: {error}", rank)
        return find_loss(_NEWS_S) or error

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
        # Nothing is added from now on, and each flight is in the list until it has begun.
        for flight, begin in self._early:
            _begin(flight, begin, runtime, failure)
        with self._lock:
            self._early.clear()
        if is_over and runtime is not None:
            runtime.leave()
        self._is_settled.set()


def _begin(
    flight: Flight, begin: _Begin, runtime: GroupRuntime | None, error: BaseException | None
) -> None:
    """Submits the flight's operation, or fails the flight."""
    if runtime is None:
        assert error is not None
        flight.fail(error)
        return
    try:
        begin(runtime.native)
    except Exception as refused:
        if flight.is_submitted or is_of_signal_handler(refused):
            raise
        flight.fail(refused)


def _native_request(name: str, splits: Sequence[int]) -> _native.Request:
    from hvdtune.core import _native

    # As bytes: the receiver may not know the message's dtype yet.
    spec = ("uint8", [sum(splits)])
    return _native.Request(op="alltoall", name=name, tensors=[spec], splits=list(splits))


def require_size(came: int, room: int) -> None:
    """Raises UsageError unless a message of `came` bytes fills a tensor of `room` bytes."""
    if came != room:
        raise UsageError(f"the message has {came} bytes, the tensor for it has {room}")


class _Message(NamedTuple):
    """A message as bytes; its dtype is None unless this member has sent it to itself."""

    source: int
    content: torch.Tensor
    dtype: torch.dtype | None = None


@dataclass(eq=False)
class _Receipt:
    """A receipt that waits for a message, from `source` or, if that is None, from any member."""

    source: int | None
    tensor: torch.Tensor
    flight: Flight

    def land(self, message: _Message) -> None:
        try:
            if message.dtype not in (None, self.tensor.dtype):
                raise UsageError(
                    f"the message has dtype {message.dtype}, the tensor for it has "
                    f"{self.tensor.dtype}"
                )
            require_size(message.content.numel(), self.tensor.nbytes)
            if self.tensor.nbytes:
                _bytes_of(self.tensor).copy_(message.content)
        except Exception as error:  # which the waiter gets
            self.flight.fail(error)
        else:
            self.flight.land(message.source)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor as bytes. A single element may have any stride."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


@dataclass
class _Box:
    """The receipts of one tag in call order, and the messages that have no receipt yet.

    Attributes:
        posted: the number of messages that are being received from each member.
        gone: the members that cannot send any more, with the reason.
        lost: those of them that were lost, not left.
    """

    receipts: list[_Receipt] = field(default_factory=list)
    messages: list[_Message] = field(default_factory=list)
    posted: Counter[int] = field(default_factory=Counter)
    gone: dict[int, BaseException] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)

    def matched(self) -> list[tuple[_Receipt, _Message]]:
        """Takes out the receipts that have a message, each with its first one."""
        found = []
        for receipt in list(self.receipts):
            for at, message in enumerate(self.messages):
                if receipt.source in (None, message.source):
                    self.receipts.remove(receipt)
                    found.append((receipt, self.messages.pop(at)))
                    break
        return found

    def hopeless(self, peers: Sequence[int]) -> list[tuple[_Receipt, BaseException]]:
        """Takes out the receipts that will get no message, each with the reason.

        A receipt from any source fails when a member is lost, or when all members have left.
        """
        are_gone = len(self.gone) == len(peers)
        # If all have left, the last one has ended the wait.
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
        """Return the members to receive another message from, and count them as posted."""
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

    After the first receipt from any source with a tag, every message with that tag is received into
    memory of its own, and then goes to the first matching receipt in call order. A message to
    oneself is copied when it is sent.

    Messages and receipts are matched on the completer's thread, in which no signal handler raises:
    between taking a message out and handing it over, that would lose the message.

    Thread rule: any thread. `_lock` guards the boxes and is held while nothing else is called. Only
    the completer's thread removes from `_new`.
    """

    def __init__(
        self, rank: int, peers: Sequence[int], pair_with: Callable[[int], PairRuntime]
    ) -> None:
        self._rank = rank
        self._peers = peers
        self._pair_with = pair_with
        self._lock = threading.Lock()
        self._from_any: set[int] = set()  # tags
        self._new: deque[tuple[int, _Receipt | _Message]] = deque()  # in call order
        self._boxes: dict[int, _Box] = {}

    def has(self, tag: int) -> bool:
        """Return whether messages with this tag are received here."""
        return tag in self._from_any

    def receive(self, tag: int, source: int | None, tensor: torch.Tensor, flight: Flight) -> None:
        """Lands the flight when the contiguous tensor has the message."""
        if source is None:
            self._from_any.add(tag)
        self._new.append((tag, _Receipt(source, tensor, flight)))
        COMPLETER.call(self._take)

    def send_to_oneself(self, tag: int, tensor: torch.Tensor) -> None:
        """Copies the contiguous tensor, for a receipt with this tag."""
        self._new.append((tag, _Message(self._rank, _bytes_of(tensor).clone(), tensor.dtype)))
        COMPLETER.call(self._take)

    def close(self) -> None:
        """Warns about messages to oneself that were not received.

        Takes no lock: a signal handler may leave the group, too.
        """
        held = [
            (tag, each) for tag, box in list(self._boxes.items()) for each in list(box.messages)
        ]
        held += [(tag, each) for tag, each in list(self._new) if isinstance(each, _Message)]
        counts = Counter(tag for tag, message in held if message.source == self._rank)
        for tag, count in counts.items() if hang_warning_s() else ():
            warn(
                f"rank {self._rank} has sent itself {counted(count, 'message')} with tag {tag} "
                f"without a receiver: call recv(tensor, src={self._rank}, tag={tag}) for each"
            )

    def _take(self) -> None:
        """Puts new receipts and messages into their boxes. Runs on the completer's thread."""
        found = set()
        with self._lock:
            while self._new:
                tag, new = self._new.popleft()
                box = self._boxes.setdefault(tag, _Box())
                found.add(tag)
                if isinstance(new, _Receipt):
                    box.receipts.append(new)
                else:
                    box.messages.append(new)
        for tag in found:
            self._match(tag, self._boxes[tag])

    def _match(self, tag: int, box: _Box) -> None:
        """Hands messages to receipts. Runs on the completer's thread."""
        with self._lock:
            landing = box.matched()
            failing = box.hopeless(self._peers)
            posts = box.missing(self._peers)
        for receipt, message in landing:
            receipt.land(message)
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
                    box.messages.append(_Message(peer, flight.result()[0]))
                else:
                    box.gone.setdefault(peer, flight.error)
                    if flight.is_lost:
                        box.lost.append(peer)
            self._match(tag, box)

        # Another thread may end the flight, such as the one that leaves the group.
        flight.future().add_done_callback(lambda _: COMPLETER.call(note))
