# mypy: disable-error-code="override, assignment"
# torch calls these methods by position; its own class has them in the forms of its C++ callers.
"""The group of processes that torch's functions of `torch.distributed` call.

Each method starts an operation of the core on the tensors where they are and returns a Work for it.
Operations of a group are numbered in call order, which torch asks to be the same on all ranks;
their names follow from that, so that ranks that call different ones are told so.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import torch
from torch import distributed

from hvdtune.core.rank.collectives import ReduceOp, Reduction
from hvdtune.core.rank.in_flight import settle_all
from hvdtune.core.rank.process import OF_THE_PARENT
from hvdtune.distributed import gathered, tensors
from hvdtune.distributed.devices import OtherDevices, device_of
from hvdtune.distributed.flight import (
    COMPLETER,
    BackwardPass,
    Flight,
    Work,
    backend_error,
    eager,
    in_profile,
    is_of_signal_handler,
)
from hvdtune.distributed.job import GroupPlace, GroupRuntime, find_loss, form, left_key
from hvdtune.distributed.names import COUNT, LAG, OperationNames
from hvdtune.distributed.point_to_point import Inbox, PairRuntime
from hvdtune.distributed.roll_call import call_roll
from hvdtune.distributed.tensors import Memory
from hvdtune.distributed.titles import Titles
from hvdtune.errors import CollectiveError, RankLostError, RendezvousError, UsageError
from hvdtune.plural import counted

if TYPE_CHECKING:
    from hvdtune.core import _native

F = TypeVar("F", bound=Callable[..., Any])
Tensors = Sequence[torch.Tensor]
Finish = Callable[["_native.Operation"], list[torch.Tensor]]
Require = Callable[["_native.Operation"], None]

# Kinds whose ranks agree on the number of elements, or are told that they do not.
_OF_ONE_SIZE: Final = ("allreduce", "reducescatter", "broadcast")
# How long news of a rank that was lost may take.
_NEWS_S: Final = 1.0
# How long the core may take to say who is at fault, once it has waited for the group's timeout.
_VERDICT_S: Final = 2.0
_AS_IT_IS: Final = Reduction(ReduceOp.SUM)
# What the core calls an operation that some ranks refuse: as it begins a name there.
_REFUSED: Final = "refused"
_IS_TOLD: Final = "_is_told"  # of an error: the others have it, or the operation was submitted


def create(backend: str, options: Any) -> HvdtuneProcessGroup:
    """The group of torch's `_DistributedBackendOptions`, when all of its ranks have come.

    Raises as hvdtune.distributed.job.form does, and DistBackendError where this process's first
    group has lost a rank meanwhile.
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
    """A barrier that tells who has not come, as torch's function of this name for gloo.

    Args:
        group: of this backend; the default group for None.
        timeout: how long rank 0 of the group waits for the others; the group's timeout for None.
        wait_all_ranks: name all that have not come, instead of the first.

    Raises:
        DistBackendError: names who has not come, on every member that has; `rank` has the first.
        UsageError: the group is of another backend.
    """
    found: Any = distributed.group.WORLD if group is None else group
    if not isinstance(found, HvdtuneProcessGroup):
        raise UsageError("monitored_barrier of hvdtune takes a group of the backend hvdtune")
    found.monitored_barrier(timeout, wait_all_ranks)


def routed(function: F) -> F:
    """The method, which torch.compile does not look into; for tensors on a device that another
    backend was asked for, that of this backend."""

    @functools.wraps(function)
    def call(group: HvdtuneProcessGroup, *given: Any, **named: Any) -> Any:
        if group.others.names and (other := group.others.group_of(device_of(given))) is not None:
            return getattr(other, function.__name__)(*given, **named)
        return function(group, *given, **named)

    return eager(cast(F, call))


def collective(function: F) -> F:
    """As `routed`. If the method refuses its arguments, the other ranks get an error.

    Without it they would take this rank's next operation for this one. What a signal handler raises
    is no refusal: either the operation was submitted, or the call is as if it had not been made.
    """

    @functools.wraps(function)
    def call(group: HvdtuneProcessGroup, *given: Any, **named: Any) -> Any:
        try:
            return function(group, *given, **named)
        except distributed.DistBackendError:  # which has its number
            raise
        except Exception as error:
            if not (getattr(error, _IS_TOLD, False) or is_of_signal_handler(error)):
                group.refuse()  # in a child of fork, raises the same
                vars(error)[_IS_TOLD] = True
            raise

    return routed(cast(F, call))


class HvdtuneProcessGroup(distributed.ProcessGroup):
    """Implements torch's ProcessGroup: methods are named, and called, as torch's are.

    Thread rule: any thread. `_turn` is held from taking an operation's number to its submission,
    and is reentrant, for signal handlers that leave the group.

    Every method raises UsageError for tensors that it cannot take, and DistBackendError where the
    job has ended. Every Work raises DistBackendError, which names the rank at fault in `rank`.
    """

    def __init__(self, backend: str, title: str, place: GroupPlace, job: GroupRuntime) -> None:
        from hvdtune.core import _native

        super().__init__(place.rank, place.size)  # type: ignore[call-arg]
        self._request = _native.Request
        self._backend = backend
        self._title = title
        self._description = ""
        self._place = place
        self._job = job
        self._timeout_s = place.timeout_s
        # The core gives up only operations of the first group: others may wait for what is in it.
        self._verdict_s = _VERDICT_S if job.is_of_process else 0.0
        self._turn = threading.RLock()
        self._names = OperationNames()
        self._rolls = itertools.count()
        # By the number in the name, and the latest by their own. The tensors of an ended operation
        # live no longer than its Work.
        self._flights: list[weakref.ref[Flight] | None] = [None] * COUNT
        self._latest: list[weakref.ref[Flight] | None] = [None] * LAG
        # The number, the key for `_names` and the flight of the operation that is being submitted.
        self._next: tuple[int, Hashable, Flight] | None = None
        # The last request of each name and what it is for; of the operation that has the name.
        self._requests: list[tuple[object, _native.Request] | None] = [None] * COUNT
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

    def getBackendName(self) -> str:
        return self._backend

    def name(self) -> str:
        """The backend's name."""
        return self._backend

    def getGroupName(self) -> str:
        return self._title

    def setGroupName(self, name: str) -> None:
        self._title = name

    def getGroupDesc(self) -> str:
        return self._description

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def getRank(self) -> int:
        return self._place.rank

    def getSize(self) -> int:
        return self._place.size

    def rank(self) -> int:
        """This process's number in the group."""
        return self._place.rank

    def size(self) -> int:
        """How many processes the group has."""
        return self._place.size

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets how long an operation that begins from now on may take."""
        self._timeout_s = timeout.total_seconds()

    _set_default_timeout = set_timeout

    def _get_backend(self, device: torch.device) -> Any:
        """Of torch, which asks it what the group can do beside its operations."""
        other: Any = self.others.group_of(device.type)
        return self if other is None else other._get_backend(device)

    @property
    def _device_types(self) -> list[torch.device]:
        """Of torch, which asks it where tensors may be."""
        return [torch.device("cpu"), *map(torch.device, self.others.names)]

    supports_splitting = False
    supports_coalescing = False

    def shutdown(self) -> None:
        """Leaves the group; what is in flight fails, on this rank at least."""
        self._note_departure()
        self.others.shutdown()
        if self._titles is not None:
            self._titles.close()
        self._job.leave()
        settle_all(self._job.native)

    def abort(self) -> None:
        """As `shutdown`."""
        self.shutdown()

    def _note_departure(self) -> None:
        atexit.unregister(self._note_departure)
        if os.getpid() != self._process:  # a child of fork, which was no member
            return
        self._has_left = True
        for pair in list(self._pairs.values()):
            pair.leave()
        with contextlib.suppress(RuntimeError):  # the store may have gone with its owner
            self._place.store.set(left_key(self._job.count, self._place.rank), "")

    @collective
    def allreduce(self, given: Tensors, opts: Any = None) -> Work:
        opts = opts or distributed.AllreduceOptions()
        return self._reduce("allreduce", given, given, opts.reduceOp, opts)

    @collective
    def allreduce_coalesced(self, given: Tensors, opts: Any = None) -> Work:
        opts = opts or distributed.AllreduceCoalescedOptions()
        return self._reduce("allreduce", given, given, opts.reduceOp, opts)

    @collective
    def reduce(self, given: Tensors, opts: Any) -> Work:
        is_root = opts.rootRank == self._place.rank
        outputs = given if is_root else [torch.empty_like(tensor) for tensor in given]
        return self._reduce("allreduce", given, outputs, opts.reduceOp, opts)

    @collective
    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any = None) -> Work:
        opts = opts or distributed.ReduceScatterOptions()
        for output, parts in zip(outputs, inputs, strict=True):
            if any(part.numel() != output.numel() for part in parts):
                raise UsageError("reduce_scatter takes tensors of one size from every rank")
        flat = [_joined(parts) for parts in inputs]
        return self._reduce("reducescatter", flat, outputs, opts.reduceOp, opts)

    @collective
    def reduce_scatter_single(
        self, output: torch.Tensor, given: torch.Tensor, opts: Any = None
    ) -> Work:
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    @collective
    def reduce_scatter_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Work:
        opts = opts or distributed.ReduceScatterOptions()
        for output, given in zip(outputs, inputs, strict=True):
            self._check_shares(output, given, "reduce_scatter")
        return self._reduce("reducescatter", inputs, outputs, opts.reduceOp, opts)

    @collective
    def broadcast(self, given: Tensors, opts: Any = None) -> Work:
        opts = opts or distributed.BroadcastOptions()
        outputs = [tensors.as_output(tensor) for tensor in given]
        is_root = opts.rootRank == self._place.rank
        inputs = [tensors.as_input(tensor) for tensor in given] if is_root else outputs

        def finish(_: _native.Operation) -> list[torch.Tensor]:
            if not is_root:
                tensors.copy_back(outputs, given)
            return list(given)

        reads, writes = _all_moved(inputs), _all_moved(inputs if is_root else outputs)
        return self._start("broadcast", reads, writes, finish, opts, root=opts.rootRank)

    @collective
    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None) -> Work:
        flat = [_room_for(parts) for parts in outputs]

        def finish(_: _native.Operation) -> list[torch.Tensor]:
            for whole, parts in zip(flat, outputs, strict=True):
                _divide(whole, parts)
            return [part for parts in outputs for part in parts]

        return self._gather(flat, inputs, finish, opts)

    @collective
    def allgather_coalesced(
        self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any = None
    ) -> Work:
        # torch has a list of tensors for each rank here, and of ranks for each tensor there.
        return self.allgather(list(zip(*outputs, strict=True)), inputs, opts)

    @collective
    def all_gather_single(
        self, output: torch.Tensor, given: torch.Tensor, opts: Any = None
    ) -> Work:
        return self.all_gather_single_coalesced([output], [given], opts)

    @collective
    def all_gather_single_coalesced(
        self, outputs: Tensors, inputs: Tensors, opts: Any = None
    ) -> Work:
        for output, given in zip(outputs, inputs, strict=True):
            self._check_shares(given, output, "all_gather")
        flat = [tensors.as_output(output) for output in outputs]

        def finish(_: _native.Operation) -> list[torch.Tensor]:
            tensors.copy_back(flat, outputs)
            return list(outputs)

        return self._gather(flat, inputs, finish, opts)

    @collective
    def gather(self, outputs: Sequence[Tensors], inputs: Tensors, opts: Any) -> Work:
        (given,) = inputs
        is_root = opts.rootRank == self._place.rank
        splits = [0] * self._place.size
        splits[opts.rootRank] = given.numel()
        parts = outputs[0] if is_root else []
        received = [part.numel() for part in parts] or [0] * self._place.size
        return self._exchange(given, splits, parts, received, opts)

    @collective
    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors], opts: Any) -> Work:
        (output,) = outputs
        is_root = opts.rootRank == self._place.rank
        parts = inputs[0] if is_root else []
        if is_root and len(parts) != self._place.size:
            raise UsageError(
                f"scatter takes a tensor for each of {self._place.size} ranks, and was given "
                f"{len(parts)}"
            )
        if any(part.numel() != output.numel() for part in parts):
            raise UsageError("scatter takes tensors of the size of the one that receives")
        given = _joined(parts) if parts else output.new_empty(0)
        splits = [part.numel() for part in parts] or [0] * self._place.size
        received = [0] * self._place.size
        received[opts.rootRank] = output.numel()
        return self._exchange(given, splits, [output], received, opts)

    @collective
    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any = None) -> Work:
        splits = [tensor.numel() for tensor in inputs]
        received = [tensor.numel() for tensor in outputs]
        return self._exchange(_joined(inputs), splits, outputs, received, opts)

    @collective
    def all_to_all_single(
        self,
        output: torch.Tensor,
        given: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        opts: Any = None,
    ) -> Work:
        sent = self._splits_of(given, input_splits)
        received = self._splits_of(output, output_splits)
        return self._exchange(given, sent, [output], received, opts)

    @collective
    def barrier(self, opts: Any = None) -> Work:
        return self._start("barrier", [], [], lambda _: [], opts)

    def monitored_barrier(
        self, timeout: timedelta | None = None, wait_all_ranks: bool = False
    ) -> None:
        """As `hvdtune.distributed.monitored_barrier`."""
        self._require_own()
        seconds = timeout.total_seconds() if timeout is not None else self._timeout_s
        name = f"{self._job.count}/{next(self._rolls)}"
        call_roll(self._place, name, seconds, self._loss, wait_all=wait_all_ranks)

    def _loss(self) -> RankLostError | None:
        return self._job.loss() or find_loss()

    @routed
    def send(self, given: Tensors, to_rank: int, tag: int) -> Work:
        (tensor,) = given
        self._require_member(to_rank)
        title = self._title_of_message("to", to_rank, tag)
        staged = tensors.as_input(tensor)
        if to_rank == self._place.rank:
            flight = Flight(f"send {title}", self._timeout_s, (), lambda _: list(given), ())
            work = Work(flight, self._backward)
            self._inbox.send_to_oneself(tag, staged)
            flight.land(to_rank)
            return work
        pair = self._pair_with(to_rank)
        return pair.send(tag, staged, title, self._timeout_s, self._backward)

    @routed
    def recv(self, given: Tensors, from_rank: int, tag: int) -> Work:
        self._require_member(from_rank)
        if from_rank == self._place.rank or self._inbox.has(tag):
            return self._receive(given, from_rank, tag)
        (tensor,) = given
        title = self._title_of_message("from", from_rank, tag)
        staged = tensors.as_output(tensor)

        def finish(result: Tensors) -> list[torch.Tensor]:
            tensors.copy_back(result, given)
            return list(given)

        pair = self._pair_with(from_rank)
        return pair.receive(tag, staged, finish, title, self._timeout_s, self._backward)

    @routed
    def recv_anysource(self, given: Tensors, tag: int) -> Work:
        self._require_own()
        return self._receive(given, None, tag)

    def _receive(self, given: Tensors, from_rank: int | None, tag: int) -> Work:
        (tensor,) = given
        staged = tensors.as_output(tensor)

        def finish(_: object) -> list[torch.Tensor]:
            tensors.copy_back([staged], given)
            return list(given)

        awaits = "no message for it has come"
        if from_rank == self._place.rank:
            awaits = "this rank has sent itself no message for it"
        title = self._title_of_message("from", from_rank, tag)
        flight = Flight(f"recv {title}", self._timeout_s, [staged], finish, (), awaits=awaits)
        work = Work(flight, self._backward)
        self._inbox.receive(tag, from_rank, staged, flight)
        return work

    def _require_own(self) -> None:
        """Raises UsageError in a child of fork, which is no member."""
        if os.getpid() != self._process:
            raise UsageError(OF_THE_PARENT)

    def _require_member(self, peer: int) -> None:
        self._require_own()
        if not 0 <= peer < self._place.size:
            raise UsageError(f"there is no rank {peer} in a group of {self._place.size} ranks")

    def _title_of_message(self, way: str, peer: int | None, tag: int) -> str:
        who = "any rank" if peer is None else f"rank {peer}"
        return f"{way} {who}, tag {tag}, of process group {self._title}"

    def _pair_with(self, peer: int) -> PairRuntime:
        pair = self._pairs.get(peer)
        if pair is None:
            key = left_key(self._job.count, peer)
            pair = self._pairs.setdefault(peer, PairRuntime(self._place, peer, key))
            if self._has_left:  # as the completer's thread may find
                pair.leave()
        return pair

    # As torch called them before 2.13.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def _check_shares(self, share: torch.Tensor, whole: torch.Tensor, what: str) -> None:
        if share.numel() * self._place.size != whole.numel() or share.dtype != whole.dtype:
            raise UsageError(
                f"{what} of {self._place.size} ranks needs tensors of one dtype, the one with "
                f"{self._place.size} times the elements of the other: they are {share.dtype} "
                f"{list(share.shape)} and {whole.dtype} {list(whole.shape)}"
            )

    def _splits_of(self, tensor: torch.Tensor, rows: Sequence[int]) -> list[int]:
        """How many elements each rank has of the tensor, of which it has so many rows."""
        size = self._place.size
        length = tensor.shape[0] if tensor.dim() else 1
        if not rows:
            if length % size:
                raise UsageError(f"{length} rows cannot be divided evenly among {size} ranks")
            rows = [length // size] * size
        if len(rows) != size or sum(rows) != length:
            raise UsageError(
                f"the split sizes {list(rows)} do not add up to the {length} rows of the tensor, "
                f"one for each of {size} ranks"
            )
        width = tensor.numel() // length if length else 0
        return [count * width for count in rows]

    def _reduce(self, kind: str, given: Tensors, into: Tensors, op: Any, opts: Any) -> Work:
        way, factor = tensors.kind_and_factor(op)
        if gathered.is_bitwise(way):
            return self._fold(kind, given, into, way, opts)
        if kind == "allreduce" and _are_sparse(given):
            return self._sum_sparse(given, into, way, opts)
        how = tensors.reduction_of(way, factor)
        inputs = [t if tensors.is_ready(t) else tensors.as_input(t) for t in given]
        outputs = inputs
        if into is not given:
            outputs = [t if tensors.is_ready(t) else tensors.as_output(t) for t in into]

        def finish(_: _native.Operation) -> list[torch.Tensor]:
            tensors.require_same_memory(outputs, writes)
            tensors.copy_back(outputs, into)
            return list(into)

        reads = [tensors.reduced(tensor, way) for tensor in inputs]
        writes = reads if into is given else [tensors.reduced(tensor, way) for tensor in outputs]
        return self._start(kind, reads, writes, finish, opts, reduction=how)

    def _fold(self, kind: str, given: Tensors, into: Tensors, way: Any, opts: Any) -> Work:
        """A bitwise reduction; of a reducescatter a rank folds only its own part."""
        for tensor in given:
            gathered.require_bits(tensor, way)
        size = self._place.size
        rooms = [tensor.new_empty(size * tensor.numel()) for tensor in given]

        def finish(_: _native.Operation) -> list[torch.Tensor]:
            for room, target in zip(rooms, into, strict=True):
                rows = room.view(size, -1)
                if kind == "reducescatter":
                    rows = rows[:, self._place.rank * target.numel() :][:, : target.numel()]
                target.detach().copy_(gathered.folded(rows, way).view(target.shape))
            return list(into)

        return self._gather(rooms, given, finish, opts)

    def _sum_sparse(self, given: Tensors, into: Tensors, way: Any, opts: Any) -> Work:
        sums = [gathered.SparseSum(tensor, way) for tensor in given]
        reads = _all_moved([part for each in sums for part in each.parts])

        def finish(operation: _native.Operation) -> list[torch.Tensor]:
            for number, (each, target) in enumerate(zip(sums, into, strict=True)):
                first = number * len(each.parts)
                with torch.no_grad():  # of a detached one, only its own indices would change
                    target.copy_(each.sum_of(operation, first, self._place.size))
            return list(into)

        return self._start("allgather", reads, [], finish, opts)

    def _gather(self, flat: Tensors, inputs: Tensors, finish: Finish, opts: Any) -> Work:
        reads = _all_moved([t if tensors.is_ready(t) else tensors.as_input(t) for t in inputs])
        writes = _all_moved(flat)

        def require_sizes(operation: _native.Operation) -> None:
            for index, memory in enumerate(writes):
                came = operation.result_bytes(index)
                if came != memory.bytes:
                    raise UsageError(
                        f"the ranks send {counted(came, 'byte')} in all, but the tensors for them "
                        f"have {memory.bytes}"
                    )

        return self._start("allgather", reads, writes, finish, opts, require=require_sizes)

    def _exchange(
        self,
        given: torch.Tensor,
        splits: Sequence[int],
        into: Tensors,
        received: Sequence[int],
        opts: Any,
    ) -> Work:
        """Sends each rank its share of the elements; what comes fills `into`, one after another.

        Args:
            splits: how many elements each rank is sent.
            received: how many each rank is to send.
        """
        source = tensors.moved(tensors.as_input(given))
        scale = tensors.moved_per_element(given.dtype)
        whole = tensors.as_output(into[0]) if len(into) == 1 else _room_for(into, like=given)

        def finish(_: _native.Operation) -> list[torch.Tensor]:
            _divide(whole, into)
            return list(into)

        def require_shares(operation: _native.Operation) -> None:
            for rank, (came, room) in enumerate(zip(operation.numbers, received, strict=True)):
                if came != room * scale:
                    raise UsageError(
                        f"rank {rank} of the group sends {counted(came // scale, 'element')}, but "
                        f"there is room for {room}"
                    )

        return self._start(
            "alltoall",
            [source],
            [tensors.moved(whole)],
            finish,
            opts,
            splits=[count * scale for count in splits],
            require=require_shares,
        )

    def _start(
        self,
        kind: str,
        reads: Sequence[Memory],
        writes: Sequence[Memory],
        finish: Finish,
        opts: Any,
        *,
        reduction: Reduction = _AS_IT_IS,
        root: int = 0,
        splits: Sequence[int] = (),
        require: Require | None = None,
    ) -> Work:
        """Starts an operation of the core.

        Args:
            require: of one in which negotiation tells the size of the result: raises UsageError
                unless it is that of `writes`.
        """
        expected = [] if require is None else [memory.bytes for memory in writes]

        def checked(operation: _native.Operation) -> list[torch.Tensor]:
            assert require is not None
            require(operation)
            return finish(operation)

        size = reads[0].elements if kind in _OF_ONE_SIZE and reads else 0
        owners = [memory.owner for memory in (*reads, *writes)]
        end = finish if require is None else checked

        def begin(number: int, slot: int) -> Work:
            request = self._request_of(slot, kind, reads, reduction, root, splits)
            what = f"{kind} {number} of process group {self._title}"
            flight = Flight(what, self._timeout_of(opts), owners, end, self._place.ranks)
            flight.verdict_s = self._verdict_s
            return self._submit(
                flight,
                (number, slot, (kind, size)),
                request,
                [memory.address for memory in reads],
                [memory.address for memory in writes] or [0] * len(reads),
                expected,
                self._title_of(kind, reads),
            )

        return self._in_turn(begin)

    def _in_turn(self, begin: Callable[[int, int], Work]) -> Work:
        """Returns what `begin` does, called with the next number and the one in its name."""
        self._require_own()
        while True:
            with self._turn:
                self._count_submitted()
                before = _unended(self._latest[self._names.count % LAG])
                if before is None:
                    slot = self._names.next()
                    before = _unended(self._flights[slot])
                    if before is None:
                        return begin(self._names.count, slot)
            _await_end(before)

    def _count_submitted(self) -> None:
        """Gives the operation that was being submitted its number, if that has happened.

        REQUIRES: _turn.
        """
        if self._next is not None:
            number, what, flight = self._next
            if flight.is_submitted and number == self._names.count:
                self._names.add(what)
            self._next = None

    def _submit(
        self,
        flight: Flight,
        place: tuple[int, int, Hashable],
        request: _native.Request,
        inputs: Sequence[int],
        outputs: Sequence[int],
        expected: Sequence[int] = (),
        title: str = "",
    ) -> Work:
        """Submits the next operation. A signal handler may raise at any point of this.

        The operation has taken its number exactly if the core has it. The Work is made first: if it
        is dropped, the completer ends the flight.

        REQUIRES: _turn.

        Args:
            place: its number, the number in its name, and its key for `_names`.
        """
        number, slot, what = place
        flight.on_mismatch = partial(self._names.note_mismatch, number)
        work = Work(flight, self._backward)
        self._next = (number, what, flight)
        self._flights[slot] = self._latest[number % LAG] = weakref.ref(flight)
        try:
            with in_profile("", flight.what):
                flight.submit(self._job.native, request, inputs, outputs, expected, title)
        except CollectiveError as error:
            raise backend_error(flight.what, error, self._place.ranks) from None
        except Exception as error:
            vars(error)[_IS_TOLD] = flight.is_submitted
            raise
        finally:
            self._count_submitted()
        return work

    def _request_of(
        self,
        slot: int,
        kind: str,
        reads: Sequence[Memory],
        reduction: Reduction,
        root: int,
        splits: Sequence[int],
    ) -> _native.Request:
        """The request of this name, which is mostly the one that it was for before."""
        specs = [(memory.dtype, memory.elements) for memory in reads]
        form = (kind, specs, reduction, root, splits)
        known = self._requests[slot]
        if known is not None and known[0] == form:
            return known[1]
        request = self._request(
            op=kind,
            name=f"{kind}.torch.{slot}",
            tensors=[(dtype, [elements]) for dtype, elements in specs],
            reduce_op=reduction.op.name.lower(),
            root=root,
            prescale=reduction.prescale_factor,
            splits=list(splits),
        )
        self._requests[slot] = (form, request)
        return request

    def refuse(self) -> None:
        """Gives up the next operation: the others get an error that names this rank's call.

        If all ranks do, it succeeds on all of them.
        """

        def begin(number: int, slot: int) -> Work:
            request = self._request(op="barrier", name=f"{_REFUSED}.torch.{slot}", tensors=[])
            what = f"operation {number} of process group {self._title}"
            flight = Flight(what, self._timeout_s, (), lambda _: [], self._place.ranks)
            return self._submit(flight, (number, slot, (_REFUSED, 0)), request, [], [])

        # The job has ended, and the others have that error.
        with contextlib.suppress(distributed.DistBackendError):
            self._in_turn(begin)

    def _title_of(self, kind: str, reads: Sequence[Memory]) -> str:
        """What the timeline calls it, "" where it has no other name."""
        if self._titles is None or not reads:
            return ""
        return self._titles.of(kind, reads[0].dtype, reads[0].elements)

    def _timeout_of(self, opts: Any) -> float:
        given: timedelta | None = getattr(opts, "timeout", None)
        seconds = given.total_seconds() if given is not None else 0.0
        return seconds if seconds > 0 else self._timeout_s


def _unended(reference: weakref.ref[Flight] | None) -> Flight | None:
    """The flight if it is not known to have ended. Does not ask the core: that runs callbacks."""
    flight = reference() if reference is not None else None
    return flight if flight is not None and flight.is_submitted and not flight.is_over else None


def _await_end(flight: Flight) -> None:
    """Whatever became of it: whoever has its Work hears that."""
    try:
        flight.wait()
    except distributed.DistBackendError:
        if not flight.ended:
            raise


def _are_sparse(given: Tensors) -> bool:
    # all() of a generator takes four times as long, in every operation.
    for tensor in given:  # noqa: SIM110
        if not tensor.is_sparse:
            return False
    return True


def _all_moved(given: Tensors) -> list[Memory]:
    return [tensors.moved(tensor) for tensor in given]


def _joined(parts: Tensors) -> torch.Tensor:
    """The elements of all, one after another; of a single tensor its own memory."""
    flat = [tensors.as_input(part).reshape(-1) for part in parts]
    return flat[0] if len(flat) == 1 else torch.cat(flat)


def _room_for(parts: Tensors, like: torch.Tensor | None = None) -> torch.Tensor:
    """Memory for the elements of all."""
    for part in parts:
        tensors.require_cpu(part)
    count = sum(part.numel() for part in parts)
    kind = parts[0] if parts else like
    assert kind is not None
    return torch.empty(count, dtype=kind.dtype)


def _divide(whole: torch.Tensor, parts: Tensors) -> None:
    """Gives each part its elements."""
    if len(parts) == 1:
        return tensors.copy_back([whole], parts)
    at = 0
    for part in parts:
        part.detach().copy_(whole[at : at + part.numel()].view(part.shape))
        at += part.numel()
