# mypy: disable-error-code="override, assignment"
# torch calls these methods by position; its own class has them in the forms of its C++ callers.
"""The process group that torch's functions of `torch.distributed` call.

Each method starts an operation of the core on the tensors where they are and returns a Work for it.
Operations of a group are numbered in call order, which torch requires to be the same on all ranks.
Their names follow from that, so ranks that call different operations get an error.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar, cast

import torch
from torch import distributed

from hvdtune.core.rank.in_flight import settle_all
from hvdtune.core.rank.process import OF_THE_PARENT
from hvdtune.distributed import collectives, tensors
from hvdtune.distributed.collectives import Collective
from hvdtune.distributed.devices import OtherDevices, device_of
from hvdtune.distributed.flight import (
    COMPLETER,
    BackwardPass,
    Finish,
    Flight,
    Work,
    backend_error,
    eager,
    is_of_signal_handler,
)
from hvdtune.distributed.job import GroupRuntime, find_loss, form, left_key
from hvdtune.distributed.point_to_point import Inbox, PairRuntime, require_size
from hvdtune.distributed.roll_call import call_roll
from hvdtune.distributed.sequence import IS_REPORTED, OperationSequence
from hvdtune.distributed.store_board import GroupPlace
from hvdtune.distributed.titles import Titles
from hvdtune.errors import RankLostError, RendezvousError, UsageError
from hvdtune.plural import counted

F = TypeVar("F", bound=Callable[..., Any])
Tensors = Sequence[torch.Tensor]

# How long news of a lost rank may take.
_NEWS_S: Final = 1.0


def create(backend: str, options: Any) -> HvdtuneProcessGroup:
    """Return the group for torch's `_DistributedBackendOptions`, when all of its ranks have come.

    Raises as hvdtune.distributed.job.form does, and DistBackendError if this process's first group
    has lost a rank meanwhile.
    """
    timeout_s = options.timeout.total_seconds()
    size = options.group_size
    ranks = tuple(options.global_ranks_in_group) or tuple(range(size))
    place = GroupPlace(options.store, options.group_rank, size, timeout_s, ranks)
    title = str(options.group_id)
    try:
        job = form(place)
    except (distributed.DistStoreError, RendezvousError):
        loss = find_loss(_NEWS_S)
        if loss is None:
            raise
        raise backend_error(f"process group {title} was not formed", loss, ()) from None
    return HvdtuneProcessGroup(backend, title, place, job)


def monitored_barrier(
    group: distributed.ProcessGroup | None = None,
    timeout: timedelta | None = None,
    wait_all_ranks: bool = False,
) -> None:
    """A barrier that names the missing ranks, as torch's function of this name for gloo.

    Args:
        group: of this backend; None for the default group.
        timeout: how long rank 0 of the group waits for the others; None for the group's timeout.
        wait_all_ranks: name all missing ranks, instead of the first.

    Raises:
        DistBackendError: names the missing ranks, on every other member; `rank` is the first.
        UsageError: the group has another backend.
    """
    found: Any = distributed.group.WORLD if group is None else group
    if not isinstance(found, HvdtuneProcessGroup):
        raise UsageError("hvdtune's monitored_barrier needs a group of the backend hvdtune")
    found.monitored_barrier(timeout, wait_all_ranks)


def routed(function: F) -> F:
    """Excludes the method from torch.compile. For tensors on a device that has another backend, it
    calls that backend's method."""

    @functools.wraps(function)
    def call(group: HvdtuneProcessGroup, *given: Any, **named: Any) -> Any:
        if group.others.names and (other := group.others.group_of(device_of(given))) is not None:
            return getattr(other, function.__name__)(*given, **named)
        return function(group, *given, **named)

    return eager(cast(F, call))


def collective(made: Callable[..., Collective]) -> Any:
    """Return the method that submits the operation of this function of `collectives`.

    If it refuses its arguments, the other ranks get an error. Without it they would take this
    rank's next operation for this one. An exception of a signal handler is no refusal: either the
    operation was submitted, or the call is as if it had not been made.
    """

    @functools.wraps(made)
    def call(group: HvdtuneProcessGroup, *given: Any, **named: Any) -> Work:
        try:
            return group.start(made(group.place, *given, **named))
        except distributed.DistBackendError:  # which has its number
            raise
        except Exception as error:
            if not (getattr(error, IS_REPORTED, False) or is_of_signal_handler(error)):
                group.refuse()  # in a child of fork, raises the same
                vars(error)[IS_REPORTED] = True
            raise

    return routed(call)


class HvdtuneProcessGroup(distributed.ProcessGroup):
    """Implements torch's ProcessGroup, with torch's names and parameters.

    Every method raises UsageError for tensors that it cannot take, and DistBackendError if the job
    has ended. Every Work raises DistBackendError, with the rank at fault in `rank`.

    Thread rule: any thread, with Python's lock.
    """

    def __init__(self, backend: str, title: str, place: GroupPlace, job: GroupRuntime) -> None:
        super().__init__(place.rank, place.size)  # type: ignore[call-arg]
        self.place = place
        self._backend = backend
        self._title = title
        self._description = ""
        self._job = job
        self._timeout_s = place.timeout_s
        self._rolls = itertools.count()
        self._backward = BackwardPass()
        self.others = OtherDevices(backend, self, place.store, place.timeout_s)
        self._pairs: dict[int, PairRuntime] = {}
        self._has_left = False
        others = [rank for rank in range(place.size) if rank != place.rank]
        self._inbox = Inbox(place.rank, others, self._pair_with)
        self._process = os.getpid()
        COMPLETER.begin()
        atexit.register(self._note_departure)
        self._titles: Titles | None = None  # only the first group is recorded
        if job.is_of_process:
            self._titles = Titles(self, job.native.is_recording)
            job.on_step.append(self._titles.look)
        self._sequence = OperationSequence(job, place.ranks, self._backward, self._titles)

    def getBackendName(self) -> str:
        return self._backend

    name = getBackendName

    def getGroupName(self) -> str:
        return self._title

    def setGroupName(self, name: str) -> None:
        self._title = name

    def getGroupDesc(self) -> str:
        return self._description

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def getRank(self) -> int:
        return self.place.rank

    rank = getRank

    def getSize(self) -> int:
        return self.place.size

    size = getSize

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the timeout of operations that begin from now on."""
        self._timeout_s = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def _get_backend(self, device: torch.device) -> Any:
        """Return the backend for a device; called by torch."""
        other: Any = self.others.group_of(device.type)
        return self if other is None else other._get_backend(device)

    @property
    def _device_types(self) -> list[torch.device]:
        """The devices that tensors may be on; called by torch."""
        return [torch.device("cpu"), *map(torch.device, self.others.names)]

    supports_splitting = False
    supports_coalescing = False

    def shutdown(self) -> None:
        """Leaves the group; operations in flight fail, at least on this rank."""
        self._note_departure()
        self.others.shutdown()
        if self._titles is not None:
            self._titles.close()
        self._job.leave()
        settle_all(self._job.native)

    abort = shutdown

    def _note_departure(self) -> None:
        atexit.unregister(self._note_departure)
        if os.getpid() != self._process:  # a child of fork, which was no member
            return
        self._has_left = True
        self._inbox.close()
        for pair in list(self._pairs.values()):
            pair.leave()
        with contextlib.suppress(RuntimeError):  # the store may be gone with its owner
            self.place.store.set(left_key(self._job.count, self.place.rank), "")

    allreduce = collective(collectives.allreduce)
    allreduce_coalesced = collective(collectives.allreduce_coalesced)
    reduce = collective(collectives.reduce)
    reduce_scatter = collective(collectives.reduce_scatter)
    reduce_scatter_single = collective(collectives.reduce_scatter_single)
    reduce_scatter_single_coalesced = collective(collectives.reduce_scatter_single_coalesced)
    broadcast = collective(collectives.broadcast)
    allgather = collective(collectives.allgather)
    allgather_coalesced = collective(collectives.allgather_coalesced)
    all_gather_single = collective(collectives.all_gather_single)
    all_gather_single_coalesced = collective(collectives.all_gather_single_coalesced)
    gather = collective(collectives.gather)
    scatter = collective(collectives.scatter)
    alltoall = collective(collectives.alltoall)
    all_to_all_single = collective(collectives.all_to_all_single)
    barrier = collective(collectives.barrier)
    # As torch called them before 2.13.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def start(self, call: Collective) -> Work:
        """Submits a collective."""
        self._require_own()
        given: timedelta | None = getattr(call.opts, "timeout", None)
        seconds = given.total_seconds() if given is not None else 0.0
        return self._sequence.start(call, seconds if seconds > 0 else self._timeout_s, self._title)

    def refuse(self) -> None:
        """Gives up the next collective; see OperationSequence.refuse."""
        self._require_own()
        self._sequence.refuse(self._timeout_s, self._title)

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """See `hvdtune.distributed.monitored_barrier`."""
        self._require_own()
        seconds = timeout.total_seconds() if timeout is not None else self._timeout_s
        name = f"{self._job.count}/{next(self._rolls)}"
        call_roll(self.place, name, seconds, self._loss, wait_all=wait_all_ranks)

    def _loss(self) -> RankLostError | None:
        return self._job.loss() or find_loss()

    @routed
    def send(self, given: Tensors, to_rank: int, tag: int) -> Work:
        (tensor,) = given
        self._require_member(to_rank)
        title = self._title_of_message("to", to_rank, tag)
        staged = tensors.as_input(tensor)
        if to_rank == self.place.rank:
            flight = Flight(f"send {title}", self._timeout_s, (), lambda _: list(given), ())
            work = self._work(flight)
            self._inbox.send_to_oneself(tag, staged)
            flight.land(to_rank)
            return work
        finish: Finish = lambda _: [staged]  # noqa: E731
        pair = self._pair_with(to_rank)
        return pair.start((True, tag), staged, finish, title, self._timeout_s, self._work)

    @routed
    def recv(self, given: Tensors, from_rank: int, tag: int) -> Work:
        self._require_member(from_rank)
        return self._receive(given, from_rank, tag)

    @routed
    def recv_anysource(self, given: Tensors, tag: int) -> Work:
        self._require_own()
        return self._receive(given, None, tag)

    def _receive(self, given: Tensors, source: int | None, tag: int) -> Work:
        (tensor,) = given
        staged = tensors.as_output(tensor)

        def finish(operation: Any) -> list[torch.Tensor]:
            if operation is not None:  # else the inbox has the message
                require_size(operation.result_bytes(0), staged.nbytes)
            tensors.copy_back([staged], given)
            return list(given)

        title = self._title_of_message("from", source, tag)
        is_own = source == self.place.rank
        if source is not None and not is_own and not self._inbox.has(tag):
            pair = self._pair_with(source)
            return pair.start((False, tag), staged, finish, title, self._timeout_s, self._work)
        awaits = f"no message with tag {tag} has arrived"
        if is_own:
            awaits = f"this rank has not sent itself a message with tag {tag}"
        flight = Flight(f"recv {title}", self._timeout_s, [staged], finish, (), awaits=awaits)
        work = self._work(flight)
        self._inbox.receive(tag, source, staged, flight)
        return work

    def _work(self, flight: Flight) -> Work:
        return Work(flight, self._backward)

    def _require_own(self) -> None:
        """Raises UsageError in a child of fork, which is not a member."""
        if os.getpid() != self._process:
            raise UsageError(OF_THE_PARENT)

    def _require_member(self, peer: int) -> None:
        self._require_own()
        if not 0 <= peer < self.place.size:
            raise UsageError(
                f"Rank {peer} does not exist in this group of {counted(self.place.size, 'rank')}"
            )

    def _title_of_message(self, way: str, peer: int | None, tag: int) -> str:
        who = "any rank" if peer is None else f"rank {peer}"
        return f"{way} {who}, tag {tag}, of process group {self._title}"

    def _pair_with(self, peer: int) -> PairRuntime:
        pair = self._pairs.get(peer)
        if pair is None:
            key = left_key(self._job.count, peer)
            pair = self._pairs.setdefault(peer, PairRuntime(self.place, peer, key))
            if self._has_left:  # as the completer's thread may find
                pair.leave()
        return pair
