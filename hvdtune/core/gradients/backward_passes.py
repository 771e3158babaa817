"""Counts the backward passes after which gradients are due, and agrees on when all are."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from hvdtune.core.rank.collectives import ReduceOp, Reduction, allreduce_request
from hvdtune.core.rank.in_flight import Batch, abandon
from hvdtune.core.rank.process import PROCESS
from hvdtune.core.rank.process_sets import ProcessSet
from hvdtune.errors import HvdtuneError

P = TypeVar("P", bound=Hashable)


@dataclass
class BackwardPassCounter(Generic[P]):
    """Counts backward passes per parameter since the last step.

    A gradient is due after `passes_per_step` backward passes.

    Thread rule: one thread at a time; the optimizer that owns it has a lock for its hooks.
    """

    passes_per_step: int
    passes: dict[P, int] = field(default_factory=dict)

    def add(self, parameter: P) -> int:
        """Counts a backward pass of one parameter; returns the passes since the last step."""
        count = self.passes[parameter] = self.passes.get(parameter, 0) + 1
        return count

    def add_all(self, parameters: Sequence[P]) -> P | None:
        """Counts a backward pass of each parameter; returns one that has had too many, or None."""
        once = dict.fromkeys(parameters, 1)
        if len(once) == len(parameters) and self.passes.keys().isdisjoint(once):
            self.passes.update(once)
            return None
        counts = [(self.add(parameter), parameter) for parameter in parameters]
        return next((p for count, p in counts if count > self.passes_per_step), None)

    def is_due(self, parameter: P) -> bool:
        """Return whether the gradient has been computed in all passes of this step."""
        return self.passes.get(parameter, 0) >= self.passes_per_step

    def any_due(self) -> bool:
        """Return whether this is true of a parameter."""
        if self.passes_per_step == 1:
            return bool(self.passes)
        return any(map(self.is_due, self.passes))

    def all_due(self) -> bool:
        """Return whether this is true of every parameter that has a gradient in this step."""
        return self.passes_per_step == 1 or all(map(self.is_due, self.passes))

    def end_step(self) -> None:
        """Starts to count again."""
        self.passes = {}


class PassAgreement:
    """Asks once per step whether the backward passes of every rank have computed all gradients.

    A rank that waits in its pass for a gradient that another rank has left out would hang if that
    rank calls a collective next. So each rank gives its part before that collective, and a rank
    waits in its pass only if all ranks have all gradients. A rank that combines gradients gives its
    part at the latest then, so no part outlives its step.

    A signal handler may raise between any two instructions of its methods: then each can be called
    again.

    Thread rule: as BackwardPassCounter, but any thread may call `decide`. `_lock` guards all
    attributes, and is reentrant, for signal handlers that call collectives.
    """

    def __init__(self, process_set: ProcessSet) -> None:
        self._lock = threading.RLock()
        self._process_set = process_set
        self._request: Any = None  # made once, as every step asks the same
        self._question: tuple[Batch, array[int]] | None = None
        self._postponed = (0, "")  # in which generation, and the name

    def __del__(self) -> None:
        # Without the lock: no other thread can have it.
        self._drop()

    def postpone(self, name: str) -> None:
        """Note that a gradient is missing. A later pass of the step may still compute it."""
        with self._lock:
            self._postponed = PROCESS.generation, name
            PROCESS.undecided.add(self)

    def decide(self) -> None:
        """Give this rank's part after `postpone`: a gradient is missing.

        Raises:
            CollectiveError: see hvdtune.core.rank.collectives.
        """
        with self._lock:
            generation, name = self._postponed
            try:
                if self in PROCESS.undecided and generation == PROCESS.generation:
                    self.ask(name, is_complete=False)
            except HvdtuneError:
                PROCESS.undecided.discard(self)  # or every later collective would raise it
                raise
            PROCESS.undecided.discard(self)

    def ask(self, name: str, *, is_complete: bool) -> None:
        """Give this rank's part; again in the same step, do nothing.

        Args:
            name: names the question on all ranks.

        Raises:
            CollectiveError: see hvdtune.core.rank.collectives.
        """
        with self._lock:
            if self._question is None:
                missing = array("i", [not is_complete])
                self._question = self._made(name, missing), missing
            self._question[0].submit(PROCESS.native())
            PROCESS.undecided.discard(self)

    def _made(self, name: str, missing: array[int]) -> Batch:
        if self._request is None:
            total = Reduction(ReduceOp.SUM)
            self._request = allreduce_request(name, [("int32", [1])], total, self._process_set)
        address, _ = missing.buffer_info()
        question = Batch()
        question.add(self._request, [address], [address], [missing])
        return question

    def answer(self) -> bool:
        """Wait for the parts of all ranks; return whether all were complete.

        Without a question, as after `drop`, return True.

        Raises:
            CollectiveError: see hvdtune.core.rank.collectives.
        """
        found = self._question
        if found is None:
            return True
        question, missing = found
        question.finish()
        return missing[0] == 0

    def drop(self) -> None:
        """Begin the next step."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        PROCESS.undecided.discard(self)
        question, self._question = self._question, None
        if question is not None:
            abandon([question[0]])
