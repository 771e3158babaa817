"""The collectives of a group in their order: numbers, names, requests, submission."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING, Final

from torch import distributed

from hvdtune.distributed.collectives import Collective
from hvdtune.distributed.flight import BackwardPass, Flight, Work, backend_error, in_profile
from hvdtune.distributed.job import GroupRuntime
from hvdtune.distributed.names import COUNT, LAG, OperationNames
from hvdtune.distributed.titles import Titles
from hvdtune.errors import CollectiveError

if TYPE_CHECKING:
    from hvdtune.core import _native

# Kinds for which the ranks agree on the number of elements, or get an error.
_OF_ONE_SIZE: Final = ("allreduce", "reducescatter", "broadcast")
# How long the core may take to find the rank at fault after the group's timeout.
_VERDICT_S: Final = 2.0
_REFUSED: Final = "refused"  # prefix of the core's name of an operation that some ranks refuse
# Attribute of an error that the other ranks have, too, or whose operation the core has.
IS_REPORTED: Final = "_is_reported"


class OperationSequence:
    """The collectives of one group on this rank.

    Thread rule: any thread. `_turn` is held from taking an operation's number to its submission,
    and is reentrant, for signal handlers that leave the group. It guards every attribute.
    """

    def __init__(
        self,
        job: GroupRuntime,
        ranks: tuple[int, ...],
        backward: BackwardPass,
        titles: Titles | None,
    ) -> None:
        from hvdtune.core import _native

        self._request = _native.Request
        self._job = job
        self._ranks = ranks
        self._backward = backward
        self._titles = titles
        # The core gives up only operations of the first group: others may wait for it.
        self._verdict_s = _VERDICT_S if job.is_of_process else 0.0
        self._turn = threading.RLock()
        self._names = OperationNames()
        # By the number in the name, and the latest by their own number. The tensors of an ended
        # operation live no longer than its Work.
        self._flights: list[weakref.ref[Flight] | None] = [None] * COUNT
        self._latest: list[weakref.ref[Flight] | None] = [None] * LAG
        # The number, the key for `_names` and the flight of the operation that is being submitted.
        self._next: tuple[int, Hashable, Flight] | None = None
        # The last request of each name, and the operation it was made for.
        self._requests: list[tuple[object, _native.Request] | None] = [None] * COUNT

    def start(self, call: Collective, timeout_s: float, group: str) -> Work:
        """Submits the operation, when one with its name is no longer in flight.

        Raises DistBackendError if the job has ended.

        Args:
            group: its title for messages.
        """
        while True:
            with self._turn:
                self._count_submitted()
                before = _unended(self._latest[self._names.count % LAG])
                if before is None:
                    slot = self._names.next()
                    before = _unended(self._flights[slot])
                    if before is None:
                        return self._submit(call, slot, timeout_s, group)
            try:
                before.wait()
            except distributed.DistBackendError:  # which the owner of its Work gets
                if not before.ended:
                    raise

    def refuse(self, timeout_s: float, group: str) -> None:
        """Gives up the next operation: the other ranks get an error that names this rank's call.

        If all ranks do, it succeeds on all of them.
        """
        # If the job has ended, the others have that error.
        with contextlib.suppress(distributed.DistBackendError):
            self.start(Collective(_REFUSED, [], [], lambda _: [], None), timeout_s, group)

    def _count_submitted(self) -> None:
        """Counts the operation that was being submitted, if the core has it.

        REQUIRES: _turn.
        """
        if self._next is not None:
            number, what, flight = self._next
            if flight.is_submitted and number == self._names.count:
                self._names.add(what)
            self._next = None

    def _submit(self, call: Collective, slot: int, timeout_s: float, group: str) -> Work:
        """Submits the next operation, with this number in its name.

        A signal handler may raise at any point: the operation has its number exactly if the core
        has it. The Work is made first: if it is dropped, the completer ends the flight.

        REQUIRES: _turn.
        """
        number, kind = self._names.count, call.kind
        reads, writes = call.reads, call.writes
        request = self._request_of(slot, call)
        flight = Flight(
            f"{kind} {number} of process group {group}",
            timeout_s,
            [memory.owner for memory in (*reads, *writes)],
            call.finish,
            self._ranks,
        )
        flight.verdict_s = self._verdict_s
        flight.on_mismatch = partial(self._names.note_mismatch, number)
        title = ""
        if self._titles is not None and reads:
            title = self._titles.of(kind, reads[0].dtype, reads[0].elements)
        work = Work(flight, self._backward)
        size = reads[0].elements if kind in _OF_ONE_SIZE and reads else 0
        self._next = (number, (kind, size), flight)
        self._flights[slot] = self._latest[number % LAG] = weakref.ref(flight)
        inputs = [memory.address for memory in reads]
        outputs = [memory.address for memory in writes] or [0] * len(reads)
        try:
            with in_profile("", flight.what):
                flight.submit(self._job.native, request, inputs, outputs, call.expected, title)
        except CollectiveError as error:
            raise backend_error(flight.what, error, self._ranks) from None
        except Exception as error:
            vars(error)[IS_REPORTED] = flight.is_submitted
            raise
        finally:
            self._count_submitted()
        return work

    def _request_of(self, slot: int, call: Collective) -> _native.Request:
        """Return the request with this name, usually that of the last operation with it."""
        specs = [(memory.dtype, memory.elements) for memory in call.reads]
        form = (call.kind, specs, call.reduction, call.root, call.splits)
        known = self._requests[slot]
        if known is not None and known[0] == form:
            return known[1]
        request = self._request(
            op="barrier" if call.kind == _REFUSED else call.kind,
            name=f"{call.kind}.torch.{slot}",
            tensors=[(dtype, [elements]) for dtype, elements in specs],
            reduce_op=call.reduction.op.name.lower(),
            root=call.root,
            prescale=call.reduction.prescale_factor,
            splits=list(call.splits),
        )
        self._requests[slot] = (form, request)
        return request


def _unended(reference: weakref.ref[Flight] | None) -> Flight | None:
    """Return the flight unless it is known to have ended. Asking the core would run callbacks."""
    flight = reference() if reference is not None else None
    return flight if flight is not None and flight.is_submitted and not flight.is_over else None
