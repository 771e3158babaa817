"""How the gradients of a step travel, without a framework: which alone, which together, and when.

Starting an operation costs microseconds, which is nothing for a gradient of a megabyte and the
whole cost of one of a kilobyte. So a large gradient is an operation of its own that starts while
the backward pass still runs, and the small ones of one dtype are packed into one tensor, a `Group`,
that travels when the pass is over. Every rank must arrange the same gradients in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from hvdtune.core import runtime
from hvdtune.core.handles import wait_all
from hvdtune.errors import CollectiveError, UsageError

P = TypeVar("P", bound=Hashable)

SMALL_BYTES: Final = 16 << 10  # a gradient below this travels in a group
GROUP_BYTES: Final = 16 << 20  # of a group: what is packed at the end overlaps with nothing
FLUSH_BYTES: Final = 1 << 20  # large gradients that become ready wait for each other up to this
WATCHED: Final = 32  # members of a group whose backward passes are counted


def check_names(named: Sequence[tuple[str, object]], expected: int) -> None:
    """Raises UsageError unless there are `expected` names, all different."""
    names = [name for name, _ in named]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise UsageError(f"parameter names must be unique; these are not: {', '.join(twice)}")
    if len(names) < expected:
        raise UsageError(
            f"named_parameters has {len(names)} names for {expected} parameters; pass "
            "model.named_parameters() of the whole model"
        )


@dataclass(frozen=True)
class Gradient(Generic[P]):
    """The gradient of one parameter. `packable`: it is dense, in host memory, of a known dtype."""

    parameter: P
    name: str
    dtype: str
    count: int
    nbytes: int
    packable: bool = True


@dataclass(frozen=True)
class Group(Generic[P]):
    """Small gradients of one dtype, in the order in which they lie in the packed tensor."""

    members: tuple[Gradient[P], ...]

    @property
    def name(self) -> str:
        return f"{self.members[0].name}+{len(self.members) - 1}"

    @property
    def count(self) -> int:
        return sum(member.count for member in self.members)

    def watched(self) -> list[Gradient[P]]:
        """Those whose hooks tell of a backward pass: a sample, because each call costs time."""
        stride = -(-len(self.members) // WATCHED)
        return list(self.members[::stride])


@dataclass(frozen=True)
class Arrangement(Generic[P]):
    """What travels alone and what in groups."""

    alone: tuple[Gradient[P], ...]
    groups: tuple[Group[P], ...]


def arrange(gradients: Iterable[Gradient[P]]) -> Arrangement[P]:
    """Packs small gradients of one dtype together, in the given order."""
    alone: list[Gradient[P]] = []
    groups: list[list[Gradient[P]]] = []
    filling: dict[str, tuple[list[Gradient[P]] | None, int]] = {}
    for gradient in gradients:
        if not gradient.packable or gradient.nbytes >= SMALL_BYTES:
            alone.append(gradient)
            continue
        members, filled = filling.get(gradient.dtype, (None, 0))
        if members is None or filled + gradient.nbytes > GROUP_BYTES:
            members, filled = [], 0
            groups.append(members)
        members.append(gradient)
        filling[gradient.dtype] = (members, filled + gradient.nbytes)
    alone += [members[0] for members in groups if len(members) == 1]
    together = [Group(tuple(members)) for members in groups if len(members) > 1]
    return Arrangement(tuple(alone), tuple(together))


def passes_of(backward_passes_per_step: int) -> int:
    """Raises UsageError unless it is a whole number of at least 1."""
    if not isinstance(backward_passes_per_step, int) or backward_passes_per_step < 1:
        raise UsageError(
            "backward_passes_per_step must be a whole number of at least 1, not "
            f"{backward_passes_per_step!r}"
        )
    return backward_passes_per_step


@dataclass
class PassBook(Generic[P]):
    """Counts backward passes per parameter since the last step.

    A gradient is due after `passes_per_step` backward passes. Owned by the optimizer, used by
    whichever thread runs its backward pass, one at a time.
    """

    passes_per_step: int
    passes: dict[P, int] = field(default_factory=dict)

    def is_due(self, parameter: P) -> bool:
        """Counts a backward pass; True when the gradient is to be sent now.

        Raises:
            UsageError: it was due already and `step` has not been called since.
        """
        count = self.passes.get(parameter, 0) + 1
        if count > self.passes_per_step:
            raise UsageError(
                "a gradient was computed more than backward_passes_per_step "
                f"({self.passes_per_step}) times before optimizer.step(); increase "
                "backward_passes_per_step to accumulate gradients locally"
            )
        self.passes[parameter] = count
        return count == self.passes_per_step

    def any_due(self) -> bool:
        """Whether a gradient has become due since the last step."""
        return any(count >= self.passes_per_step for count in self.passes.values())

    def end_step(self) -> None:
        """Starts counting anew."""
        self.passes = {}


class Outbox:
    """Starts operations in batches: one call into the core for all that became ready together.

    Thread rule: as PassBook. The memory of an operation must live until `wait` returns.
    """

    def __init__(self, flush_bytes: int = FLUSH_BYTES) -> None:
        self._flush_bytes = flush_bytes
        self._collected: list[tuple[Any, int]] = []
        self._bytes = 0
        self._started: list[tuple[Any, list[int]]] = []

    def add(self, request: Any, address: int, nbytes: int) -> None:
        """Adds an operation on the memory at `address`, in place."""
        self._collected.append((request, address))
        self._bytes += nbytes
        if self._bytes >= self._flush_bytes:
            self.flush()

    def flush(self) -> None:
        """Starts what was added.

        Raises:
            CollectiveError: the job has ended, or an operation of one of the names is in flight.
        """
        collected, self._collected, self._bytes = self._collected, [], 0
        if collected:
            native = runtime.native()
            addresses = [address for _, address in collected]
            handles = native.submit([request for request, _ in collected], addresses, addresses)
            self._started.append((native, handles))

    def wait(self) -> None:
        """Starts what was added and returns when everything started is done.

        Raises:
            CollectiveError: the first failure, after all have ended.
        """
        self.flush()
        started, self._started = self._started, []
        failure: CollectiveError | None = None
        for native, handles in started:
            try:
                wait_all(native, handles)
            except CollectiveError as error:
                failure = failure or error
        if failure is not None:
            raise failure
