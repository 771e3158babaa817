"""What a rank does with PyTorch between submission and completion."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import hvdtune.torch as hvd
from hvdtune.core.rank import runtime
from hvdtune.errors import CollectiveError, DuplicateNameError, UsageError
from tests.memory import programs
from tests.memory.programs import Call, Program
from tests.memory.values import expected, input_of, splits_of

SEVENS = 8


def in_memory_of_its_own(values: np.ndarray, dtype: str, shared: bool) -> tuple[Any, Any]:
    """A tensor, and a weak reference that ends when its memory is freed."""
    source = torch.from_numpy(values).to(getattr(torch, dtype))
    nbytes = source.numel() * source.element_size()
    memory = runtime.shared_buffer(nbytes) if shared else np.empty(nbytes, np.uint8)
    tensor = torch.frombuffer(memory, dtype=source.dtype).view(source.shape).copy_(source)
    return tensor, None if shared else weakref.ref(memory)


def sevens(elements: int = 1 << 17) -> list[torch.Tensor]:
    """Tensors that lie where memory has been freed."""
    gc.collect()
    return [torch.full((elements,), 7.0) for _ in range(SEVENS)]


def other_data(tensor: torch.Tensor) -> None:
    tensor.data = torch.full_like(tensor, 5)


def other_storage(tensor: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.set_(torch.full_like(tensor, 5))


def smaller(tensor: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.resize_(1)


class Flight:
    """One operation of a rank, from its input to its result."""

    def __init__(self, number: int, call: Call, program: Program, rank: int) -> None:
        self.call = call
        self.name = f"call{number}.{call.collective}"
        self._rank = rank
        self._size = program.size
        self._number = number
        values = input_of(call, number, rank)
        self.tensor: Any
        self.tensor, self.memory = in_memory_of_its_own(values, call.dtype, call.shared)
        self.handle: int | None = None
        self._returned: Any = None
        self.error: Exception | None = None
        self.is_known = True  # False when a signal handler has taken the handle with it
        self.change = ""

    def start(self) -> None:
        """A second call does nothing, unless a signal handler has raised in the first."""
        if self.handle is not None or not self.is_known:
            return
        collective, _, in_place = self.call.collective.partition("_")
        if collective == "grouped":
            self.handle = hvd.grouped_allreduce_async_([self.tensor], op=hvd.Sum, name=self.name)
            return
        options: dict[str, Any] = {"name": self.name}
        if collective in ("allreduce", "reducescatter"):
            options["op"] = hvd.Sum
        elif collective == "broadcast":
            options["root_rank"] = self.call.root
        elif collective == "alltoall":
            options["splits"] = splits_of(self.call.count, self._size)
        suffix = "_async_" if self.call.is_in_place and not in_place else "_async"
        self.handle = getattr(hvd, collective + suffix)(self.tensor, **options)

    def finish(self) -> None:
        if self.handle is None or self._returned is not None or self.error is not None:
            return
        try:
            # Nothing is called in between, after which a signal handler could raise.
            self._returned = hvd.synchronize(self.handle)
        except (CollectiveError, UsageError) as error:
            self.error = error.with_traceback(None)  # which would keep the tensors

    @property
    def result(self) -> Any:
        """The tensor that the operation has returned, None before."""
        several = isinstance(self._returned, list | tuple)
        return self._returned[0] if several else self._returned

    def problem(self) -> str:
        """Says what is wrong with a result that reports success; empty where nothing is."""
        if self.result is None:
            return ""
        if self.change in ("other_data", "other_storage") and self.call.is_in_place:
            return f"{self.name}: success, though the tensor had other memory"
        right = expected(self.call, self._number, self._rank, self._size)
        if self.change == "smaller" and self.call.is_in_place:
            right = right.reshape(-1)[:1]
        found = self.result.to(torch.float64).numpy().reshape(-1)
        if found.shape != right.reshape(-1).shape:
            return f"{self.name}: the result has shape {found.shape}, not {right.shape}"
        wrong = int((found != right.reshape(-1)).sum())
        return f"{self.name}: {wrong} of {found.size} elements are wrong" if wrong else ""


class Handles:
    """Operations by handles."""

    def __init__(self, program: Program, chance: random.Random) -> None:
        self._program = program
        self._chance = chance
        self.flights: list[Flight] = []
        self._kept: list[torch.Tensor] = []
        self._memories: list[Any] = []

    def prepare(self) -> None:
        rank = hvd.rank()
        self.flights = [
            Flight(number, call, self._program, rank)
            for number, call in enumerate(self._program.calls)
        ]
        self._memories = [flight.memory for flight in self.flights if flight.memory is not None]

    def start(self) -> None:
        for flight in self.flights:
            try:
                flight.start()
            except DuplicateNameError:
                flight.is_known = False  # the signal came when the core had it already

    def start_odd(self, odd: bool) -> None:
        """One operation that no rank can carry out, because `odd` ranks have another dtype."""
        tensor = torch.ones(3, dtype=torch.float64 if odd else torch.float32)
        flight = Flight(len(self.flights), Call("allreduce_", "float32", 3), self._program, 0)
        flight.handle = hvd.allreduce_async_(tensor, op=hvd.Sum, name="odd")
        self.flights.append(flight)

    def finish(self) -> None:
        for flight in self.flights:
            flight.finish()

    def drop(self) -> None:
        for flight in self.flights:
            flight.tensor = None
        self._kept += sevens()

    def change(self) -> None:
        for flight in self.flights:
            change: Callable[[Any], None] = self._chance.choice(
                [other_data, other_storage, smaller]
            )
            flight.change = change.__name__
            change(flight.tensor)
        self._kept += sevens()

    def in_child(self) -> list[str]:
        """Returns what a child of fork is wrongly allowed to do."""
        for flight in self.flights:
            flight.tensor.fill_(9)
        calls = {
            "synchronize": lambda: hvd.synchronize(self.flights[0].handle),
            "poll": lambda: hvd.poll(self.flights[-1].handle),
            "allreduce": lambda: hvd.allreduce_(torch.ones(3), name="child"),
            "init": hvd.init,
        }
        return refusals(calls)

    def errors(self) -> list[Exception]:
        return [flight.error for flight in self.flights if flight.error is not None]

    def problems(self) -> list[str]:
        """Returns faults of results that report success and of memory that is not in flight."""
        found = [text for flight in self.flights if (text := flight.problem())]
        for flight in self.flights:
            changed = flight.change in ("other_data", "other_storage") and flight.call.is_in_place
            if changed and not isinstance(flight.error, UsageError | CollectiveError):
                found.append(f"{flight.name}: {flight.error!r} after {flight.change}")
        return found + self.problems_of_memory()

    def problems_of_memory(self) -> list[str]:
        return changed(self._kept)

    def digest(self) -> None:
        """Returns nothing to agree on, for each rank looks at its own results."""

    def use_again(self) -> None:
        """Fills all memory that was lent, which is the caller's again."""
        for flight in self.flights:
            if flight.tensor is not None:
                flight.tensor.fill_(7)
        self._kept += [f.tensor for f in self.flights if f.tensor is not None] + sevens()

    def forget(self) -> list[Any]:
        """Lets go of everything; weak references to the memory that must be free now."""
        memories, self._memories = self._memories, []
        self.flights, self._kept = [], []
        return memories


def refusals(calls: dict[str, Callable[[], Any]]) -> list[str]:
    found = []
    for name, call in calls.items():
        try:
            call()
        except UsageError:
            continue
        except BaseException as error:
            found.append(f"{name} in a child: {error!r}")
        else:
            found.append(f"{name} in a child: no error")
    return found


def changed(tensors: list[torch.Tensor]) -> list[str]:
    total = sum(int((tensor != 7).sum()) for tensor in tensors)
    return [f"{total} elements changed in memory that is not in flight"] if total else []


class Model(torch.nn.Module):
    """Its gradients are all `factor`."""

    def __init__(self, counts: list[int]) -> None:
        super().__init__()
        self.layers = torch.nn.ParameterList([torch.zeros(count) for count in counts])

    def forward(self, factor: float) -> torch.Tensor:
        return sum(layer.sum() for layer in self.layers) * factor


class SparseModel(Model):
    """With a table whose gradient is sparse."""

    def __init__(self, counts: list[int]) -> None:
        super().__init__(counts)
        self.table = torch.nn.Embedding(max(counts) // 64 + 1, 64, sparse=True)
        torch.nn.init.zeros_(self.table.weight)

    def forward(self, factor: float) -> torch.Tensor:
        rows = torch.arange(self.table.num_embeddings)
        return super().forward(factor) + self.table(rows).sum() * factor


class Training:
    """Steps of an optimizer, of which the last is the one that is disturbed.

    Its backward pass waits for the other ranks only in programs that allow it. In the others it
    lacks a gradient, so that the rest is in flight after it.
    """

    def __init__(self, program: Program, chance: random.Random) -> None:
        self._program = program
        self._chance = chance
        self._kept: list[torch.Tensor] = []
        self._error: Exception | None = None
        self._model: Any = None
        self._optimizer: Any = None
        self._starts: list[torch.Tensor] = []
        self._is_done = False
        self._is_synchronized = False
        self._is_changed = False
        self._was_interrupted = False
        may_wait = (programs.RAISE, programs.SHUTDOWN, programs.EXIT, *programs.FROM_OUTSIDE)
        is_whole = not program.held and program.disturbance in may_wait and program.seed % 2 == 1
        self._waits_in_backward = is_whole
        self._spare = torch.nn.Parameter(torch.zeros(1), requires_grad=False)

    def prepare(self) -> None:
        self._error, self._is_done, self._is_synchronized = None, False, False
        if self._model is None:
            self._make()
        self._starts = [p.detach().clone() for p in self._model.parameters()]
        self._zero()

    def _make(self) -> None:
        counts = [call.count for call in self._program.calls] + [100, 5]
        kind = self._program.options
        self._model = SparseModel(counts) if kind == "sparse" else Model(counts)
        options: dict[str, Any] = {
            "groups": {"groups": 2},
            "fp16": {"compression": hvd.Compression.fp16},
            "adasum": {"op": hvd.Adasum},
            "two passes": {"backward_passes_per_step": 2},
        }.get(kind, {})
        self._optimizer = hvd.DistributedOptimizer(
            torch.optim.SGD([*self._model.parameters(), self._spare], lr=1.0),
            named_parameters=self._model.named_parameters(),
            **options,
        )
        if kind != "adasum":  # from then on, gradients travel during the backward pass
            for _ in range(2):
                self._backward()
                self._optimizer.step()
                self._zero()

    def _zero(self) -> None:
        self._optimizer.zero_grad(set_to_none=self._program.options != "kept gradients")

    def _backward(self) -> None:
        for _ in range(2 if self._program.options == "two passes" else 1):
            self._model(float(2 * hvd.rank() + 2)).backward()

    def start(self) -> None:
        """Once a signal handler has raised in it, it leaves the gradients as they are."""
        if not self._was_interrupted:
            self._was_interrupted = True
            self._spare.requires_grad_(not self._waits_in_backward)
            self._backward()
            self._was_interrupted = False
        self._spare.requires_grad_(False)

    def finish(self) -> None:
        if self._is_done or self._optimizer is None or self._error is not None:
            return
        try:
            if self._program.options == "adasum":
                self._optimizer.step()
            else:
                self._step()
        except (CollectiveError, UsageError) as error:
            self._error = error.with_traceback(None)
        self._is_done = True

    def _step(self) -> None:
        """A signal handler may raise anywhere in it: then it is called again."""
        optimizer = self._optimizer
        self._spare.requires_grad_(False)
        has_ended = optimizer._combined is not None and not optimizer._in_flight
        if not (self._is_synchronized or has_ended):
            optimizer.synchronize()
        self._is_synchronized = True
        with torch.no_grad():  # which a part of a step may have moved
            for parameter, start in zip(self._model.parameters(), self._starts, strict=True):
                parameter.copy_(start)
        if optimizer._is_updating:
            # It was interrupted there, which only the script can mend: its parameters are what they
            # were again, and the gradients have been combined.
            optimizer._step_of_wrapped(None)
            return
        with optimizer.skip_synchronize():
            optimizer.step()

    def drop(self) -> None:
        """Drops the model while all its gradients are in flight; Adasum's never are."""
        if self._program.options == "adasum":
            return
        self._optimizer._send()
        self._optimizer._batcher.flush()
        self._model = self._optimizer = None
        self._kept += sevens()

    def change(self) -> None:
        """Gives all gradients but the packed ones, whose values are elsewhere, other memory."""
        if self._program.options in ("adasum", "sparse"):
            return
        for parameter in self._model.parameters():
            if parameter.grad is not None and parameter.numel() > 4096:
                self._is_changed = True
                other_data(parameter.grad)
        self._kept += sevens()

    def in_child(self) -> list[str]:
        for parameter in self._model.parameters():
            if parameter.grad is not None and parameter.grad.layout is torch.strided:
                parameter.grad.fill_(9)
        found = refusals({"step": self._optimizer.step, "allreduce": self._optimizer.step})
        return found + refusals({"synchronize": lambda: hvd.allreduce(torch.ones(1))})

    def errors(self) -> list[Exception]:
        return [] if self._error is None else [self._error]

    def problems(self) -> list[str]:
        found = self.problems_of_memory()
        if self._is_changed and self._error is None and self._is_done:
            found.append("success, though gradients were given other memory")
        if self._model is None or self._error is not None or not self._is_done:
            return found
        passes = 2 if self._program.options == "two passes" else 1
        mean = passes * (self._program.size + 1.0)
        exact = self._program.options != "adasum"
        if self._program.disturbance == programs.RAISE and self._program.held:
            return found  # of a backward pass that was not whole: the ranks' digests must agree
        for number, (now, before) in enumerate(
            zip(self._model.parameters(), self._starts, strict=True)
        ):
            moved = before - now.detach()
            near = torch.full_like(moved, mean)
            right = torch.equal(moved, near) if exact else torch.allclose(moved, near, rtol=1e-4)
            if not right and not (self._program.options == "adasum" and self._program.size > 2):
                values = moved.unique()[:5].tolist()
                found.append(f"parameter {number} moved by {values}, not by {mean}")
        return found

    def problems_of_memory(self) -> list[str]:
        return changed(self._kept)

    def digest(self) -> list[float] | None:
        """Returns the values that all ranks must agree on."""
        if self._model is None or self._error is not None or not self._is_done:
            return None
        return [float(p.detach().double().sum()) for p in self._model.parameters()]

    def use_again(self) -> None:
        if self._model is not None:
            for parameter in self._model.parameters():
                for tensor in (parameter.detach(), parameter.grad):
                    if tensor is not None and tensor.layout is torch.strided:
                        tensor.detach().fill_(7)
                        self._kept.append(tensor)
        self._kept += sevens()

    def forget(self) -> list[Any]:
        parameters = list(self._model.parameters()) if self._model is not None else []
        memories = [weakref.ref(parameter) for parameter in parameters]
        self._model = self._optimizer = None
        self._kept, self._starts = [], []
        return memories


class Blocking:
    """Functions that wait by themselves."""

    def __init__(self, program: Program, chance: random.Random) -> None:
        self._program = program
        self._kept: list[torch.Tensor] = []
        self._error: Exception | None = None
        self._found: list[str] = []
        self._next = 0

    def prepare(self) -> None:
        self._next, self._error = 0, None

    def start(self) -> None:
        pass

    def finish(self) -> None:
        """Makes the remaining calls; none is repeated, for the other ranks have made it."""
        calls = [self._broadcast, self._object, self._allreduce]
        if self._program.disturbance != programs.RAISE:  # after which it does no backward pass
            calls.append(self._batch_norm)
        while self._next < len(calls) and self._error is None:
            number = self._next
            self._next += 1
            try:
                calls[number]()
            except CollectiveError as error:
                self._error = error.with_traceback(None)

    def _broadcast(self) -> None:
        counts = [call.count for call in self._program.calls]
        tensors = [torch.full((count,), float(hvd.rank() + 1)) for count in counts]
        hvd.broadcast_parameters(tensors, root_rank=1)
        self._expect(all(bool((tensor == 2.0).all()) for tensor in tensors), "broadcast_parameters")

    def _object(self) -> None:
        found = hvd.allgather_object({"rank": hvd.rank()}, name="object")
        right = [{"rank": rank} for rank in range(self._program.size)]
        self._expect(found == right, "allgather_object")

    def _batch_norm(self) -> None:
        layer = hvd.SyncBatchNorm(3)
        given = torch.full((4, 3), float(hvd.rank()), requires_grad=True)
        layer(given).sum().backward()
        mean = (self._program.size - 1) / 2
        self._expect(torch.allclose(layer.running_mean, torch.full((3,), 0.1 * mean)), "batch norm")

    def _allreduce(self) -> None:
        found = hvd.allreduce(torch.ones(50_000), op=hvd.Sum, name="blocking")
        self._expect(bool((found == self._program.size).all()), "allreduce")

    def _expect(self, right: bool, what: str) -> None:
        if not right:
            self._found.append(f"{what}: wrong values")

    def errors(self) -> list[Exception]:
        return [] if self._error is None else [self._error]

    def problems(self) -> list[str]:
        return self._found + self.problems_of_memory()

    def problems_of_memory(self) -> list[str]:
        return changed(self._kept)

    def digest(self) -> None:
        """Returns nothing to agree on."""

    def use_again(self) -> None:
        self._kept += sevens()

    def forget(self) -> list[Any]:
        self._kept = []
        return []


KINDS = {"handles": Handles, "optimizer": Training, "blocking": Blocking}
