"""What a rank does with torch.distributed between submission and completion."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed as dist

import hvdtune.distributed  # noqa: F401
from hvdtune.core.rank.process import PROCESS
from hvdtune.distributed import job
from hvdtune.distributed.flight import Flight as CoreFlight
from hvdtune.errors import HvdtuneError, MismatchError, RankLostError, ShutdownError, UsageError
from tests.memory import torch_work
from tests.memory.programs import Call, Program
from tests.memory.rank import STORE_VARIABLE
from tests.memory.torch_work import sevens
from tests.memory.values import expected, input_of, splits_of

QUIET_S = 20.0
# Messages of a kind have tags of their own: a receipt from any source takes over its tag.
TAGS = {"message": 0, "any source": 1000, "to oneself": 2000}


def join() -> None:
    """Makes this rank's job the first group, unless it is."""
    if dist.is_initialized():
        return
    rank, size = PROCESS.told("rank"), PROCESS.told("size")
    path = os.path.join(os.environ[STORE_VARIABLE], PROCESS.told("job"))
    store = dist.PrefixStore(str(PROCESS.generation), dist.FileStore(path, size))
    job._FOR_STORE[:] = [PROCESS.native()]
    dist.init_process_group("hvdtune", store=store, rank=rank, world_size=size)


def leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def in_flight() -> list[CoreFlight]:
    return [flight for flight in PROCESS.in_flight if isinstance(flight, CoreFlight)]


def settle(memories: list[Any]) -> None:
    """Returns when the completer has ended what nobody waits for."""
    end_s = time.monotonic() + QUIET_S
    while time.monotonic() < end_s:
        gc.collect()
        if not in_flight() and not any(memory() is not None for memory in memories):
            return
        time.sleep(0.001)


def started(line: tuple[int, bool, int] | None) -> int:
    """How many operations have a number: collectives, or messages to or from a rank."""
    group: Any = dist.group.WORLD
    if line is None:
        with group._sequence._turn:
            group._sequence._count_submitted()
            return int(group._sequence._names.count)
    peer, sends, tag = line
    pair = group._pair_with(peer)
    with pair._lock:
        pair._count_started((sends, tag))
        return int(pair._counts[sends, tag])


def as_core_error(error: dist.DistBackendError) -> HvdtuneError:
    text, rank = str(error), getattr(error, "rank", -1)
    if "was replaced while" in text:
        return UsageError(text)
    if "announced" in text:
        return MismatchError(text)
    return ShutdownError(text, rank) if "left the group" in text else RankLostError(text, rank)


class Operation:
    """One call of torch.distributed, which a signal handler may interrupt."""

    def __init__(self, begin: Callable[[], Any], line: tuple[int, bool, int] | None = None) -> None:
        self._begin = begin
        self._line = line
        self._before: int | None = None
        self.work: Any = None
        self.is_known = True  # False when a signal handler has taken the Work with it

    def start(self) -> None:
        if self.work is not None or not self.is_known:
            return
        if self._before is None:
            self._before = started(self._line)
        if started(self._line) != self._before:
            self.is_known = False
            return
        failure = None
        try:
            self.work = self._begin()
        except dist.DistBackendError as error:
            failure = as_core_error(error)
        if failure is not None:
            raise failure  # without the frames of the other, which keep the tensors


class Flight(torch_work.Flight):
    """One call of a program, from its input to its result."""

    def __init__(self, number: int, call: Call, program: Program, rank: int) -> None:
        super().__init__(number, call, program, rank)
        self.operations: list[Operation] = []
        self._output: Any = None
        self._is_done = False

    def prepare(self) -> None:
        collective, given, size = self.call.collective, self.tensor, self._size
        if collective == "allreduce_":
            self._add(lambda: dist.all_reduce(self.tensor, async_op=True))
        elif collective == "broadcast_":
            self._add(lambda: dist.broadcast(self.tensor, self.call.root, async_op=True))
        elif collective == "allgather":
            out = self._output = given.new_empty(size * given.numel())
            self._add(lambda: dist.all_gather_single(out, self.tensor, async_op=True))
        elif collective == "alltoall":
            splits = splits_of(self.call.count, size)
            mine = [splits[self._rank]] * size
            out = self._output = given.new_empty(sum(mine))
            self._add(lambda: dist.all_to_all_single(out, self.tensor, mine, splits, async_op=True))
        else:
            self._prepare_message(collective)

    def _prepare_message(self, collective: str) -> None:
        out = self._output = torch.empty_like(self.tensor)
        tag = TAGS[collective] + self._number
        to, source = (self._rank + 1) % self._size, (self._rank - 1) % self._size
        if collective == "to oneself":
            to = source = self._rank
        given = None if collective == "any source" else source
        lines = ((to, True, tag), (source, False, tag)) if collective == "message" else (None, None)
        self._add(lambda: dist.isend(self.tensor, to, tag=tag), lines[0])
        self._add(lambda: dist.irecv(out, given, tag=tag), lines[1])

    def _add(self, begin: Callable[[], Any], line: tuple[int, bool, int] | None = None) -> None:
        self.operations.append(Operation(begin, line))

    def start(self) -> None:
        for operation in self.operations:
            operation.start()

    def finish(self) -> None:
        if self._is_done or self.error is not None:
            return
        try:
            for operation in self.operations:
                if operation.work is not None:
                    operation.work.wait()
        except dist.DistBackendError as error:
            self.error = as_core_error(error)
        works = [operation.work for operation in self.operations]
        self._is_done = self.error is None and bool(works) and None not in works

    @property
    def result(self) -> Any:
        """The tensor with the result, None before."""
        if not self._is_done:
            return None
        return self.tensor if self._output is None else self._output

    def right(self) -> Any:
        if self.call.collective in ("message", "any source"):
            return input_of(self.call, self._number, (self._rank - 1) % self._size)
        if self.call.collective == "to oneself":
            return input_of(self.call, self._number, self._rank)
        return expected(self.call, self._number, self._rank, self._size)

    @property
    def is_of_other_values(self) -> bool:
        """Whether it is the root of a broadcast, which nothing is written to."""
        is_root = self.call.collective == "broadcast_" and self.call.root == self._rank
        return is_root and self.change in ("other_data", "other_storage")

    def forget_works(self) -> list[Any]:
        """The Works, which nobody else refers to any more."""
        works = [operation.work for operation in self.operations]
        self.operations = []
        return works


class Holder:
    """An object that refers to itself, as a trainer or an exception with a traceback may."""

    def __init__(self, work: Any) -> None:
        self.me = self
        self.work = work
        self.future = work.get_future()
        self.after = self.future.then(lambda _: gc.collect())


class Works(torch_work.Handles):
    """Operations by their Works."""

    def prepare(self) -> None:
        join()
        rank = dist.get_rank()
        self.flights: list[Any] = [
            Flight(number, call, self._program, rank)
            for number, call in enumerate(self._program.calls)
        ]
        for flight in self.flights:
            flight.prepare()
        self._memories = [flight.memory for flight in self.flights]

    def start(self) -> None:
        for flight in self.flights:
            flight.start()

    def start_odd(self, odd: bool) -> None:
        flight = Flight(len(self.flights), Call("allreduce_", "float32", 3), self._program, 0)
        flight.tensor = torch.ones(3, dtype=torch.float64 if odd else torch.float32)
        flight.prepare()
        flight.start()
        self.flights.append(flight)

    def drop(self) -> None:
        """Drops the tensors, and half of the Works."""
        for flight in self.flights:
            flight.tensor = flight._output = None
            if self._chance.random() < 0.5:
                flight.forget_works()
        self._kept += sevens()

    def collect(self) -> None:
        """Leaves the Works to the collector, which runs all the time from now on."""
        before = gc.get_threshold()
        gc.set_threshold(1)
        try:
            for flight in self.flights:
                for work in flight.forget_works():
                    Holder(work)
            gc.collect()
            for _ in range(20):
                Holder(dist.all_reduce(torch.ones(3), async_op=True))
                gc.collect()
        finally:
            gc.set_threshold(*before)

    def stay_in_step(self) -> None:
        """What the other ranks do for `collect`."""
        for _ in range(20):
            dist.all_reduce(torch.ones(3))

    def in_child(self) -> list[str]:
        for flight in self.flights:
            flight.tensor.fill_(9)
        calls = {
            "all_reduce": lambda: dist.all_reduce(torch.ones(3)),
            "send": lambda: dist.send(torch.ones(3), (dist.get_rank() + 1) % dist.get_world_size()),
            "recv": lambda: dist.recv(torch.ones(3)),
            "barrier": dist.barrier,
        }
        works = [op.work for flight in self.flights for op in flight.operations]
        for number, work in enumerate(work for work in works if work._flight.is_submitted):
            if not work._flight.is_over:
                calls[f"wait {number}"] = work.wait
        return torch_work.refusals(calls)

    def problems(self) -> list[str]:
        """Returns faults of results that report success and of memory that is not in flight."""
        found = []
        for flight in self.flights:
            if (result := flight.result) is None:
                continue
            right, found_now = flight.right().reshape(-1), result.double().numpy().reshape(-1)
            if flight.is_of_other_values:
                continue
            if flight.change == "smaller":
                right, found_now = right[:1], found_now[:1]
            wrong = int((found_now != right).sum()) if found_now.shape == right.shape else -1
            if wrong:
                found.append(f"{flight.name}: {wrong} of {right.size} elements are wrong")
        return found + self.problems_of_memory()

    def use_again(self) -> None:
        for flight in self.flights:
            flight.forget_works()
        super().use_again()

    def forget(self) -> list[Any]:
        memories = super().forget()
        settle(memories)
        return memories


KINDS = {"works": Works}
