"""Process sets: collectives among some of the ranks.

`global_process_set` holds all ranks and always exists. Others are made by `add_process_set`, or
given to `init(process_sets=...)`, by all ranks in the same order, and may overlap; every function
that communicates takes `process_set=`.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from hvdtune.core.rank import handles
from hvdtune.core.rank.process import PROCESS
from hvdtune.errors import UnsupportedError, UsageError


class ProcessSet:
    """Some ranks of the job. `add_process_set` or `init` registers it, until then it is a plan.

    Args:
        ranks_or_comm: numbers of ranks, in any order, each once; or a communicator of mpi4py, which
            `init` then turns into ranks, and which may be another one on each rank, as those that
            Split makes.

    Attributes:
        mpi_comm: the communicator, None for a set of ranks; of `global_process_set` the one that
            `init` was given.
    """

    mpi_comm: Any = None

    def __init__(self, ranks_or_comm: Iterable[int] | Any) -> None:
        self._ranks: list[int] | None = None
        if is_communicator(ranks_or_comm):
            self.mpi_comm = _checked(ranks_or_comm)
        else:
            self._ranks = _sorted_ranks(ranks_or_comm)
        self._number: int | None = None
        self._generation = -1  # of the runtime that gave the number

    @property
    def ranks(self) -> list[int] | None:
        """The ranks in it, ascending; None before `init` for the global process set and for that of
        a communicator."""
        return None if self._ranks is None else list(self._ranks)

    @property
    def process_set_id(self) -> int | None:
        """The number that it has while it is registered, else None."""
        return self._number if self._generation == PROCESS.generation else None

    def size(self) -> int:
        """Return the number of its ranks.

        Raises:
            UsageError: it is not registered.
        """
        return len(self._members())

    def rank(self) -> int:
        """This process's position in it.

        Raises:
            UsageError: this process is not included, or the set is not registered.
        """
        members, rank = self._members(), PROCESS.told("rank")
        if rank not in members:
            raise UsageError(f"rank {rank} does not belong to {self}")
        return members.index(rank)

    def included(self) -> bool:
        """Return whether this process is a member. Raises UsageError if it is not registered."""
        return PROCESS.told("rank") in self._members()

    def _members(self) -> Sequence[int]:
        id_of(self)
        return self._ranks or []

    def _register(self, number: int | None, ranks: Sequence[int] | None = None) -> None:
        self._number, self._generation = number, PROCESS.generation
        if ranks is not None:
            self._ranks = list(ranks)

    @classmethod
    def _registered(cls, number: int, ranks: Sequence[int]) -> ProcessSet:
        found = cls(ranks)
        found._register(number)
        return found

    def __repr__(self) -> str:
        return (
            f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, "
            f"mpi_comm={self.mpi_comm})"
        )


def is_communicator(value: object) -> bool:
    """Return whether it is a communicator of mpi4py."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    return mpi is not None and isinstance(value, mpi.Comm)


def _checked(comm: Any) -> Any:
    mpi: Any = sys.modules["mpi4py.MPI"]
    if comm == mpi.COMM_NULL:
        raise UsageError(
            "hvd.ProcessSet(MPI.COMM_NULL): this process is not in that communicator. Use a list "
            "of ranks, the same on all ranks."
        )
    if not isinstance(comm, mpi.Intracomm):
        raise UsageError(
            f"hvd.ProcessSet takes an intracommunicator of mpi4py, not {type(comm).__name__}"
        )
    return comm


def _sorted_ranks(given: object) -> list[int]:
    advice = "hvd.ProcessSet takes rank numbers or a communicator of mpi4py: hvd.ProcessSet([0, 1])"
    if not isinstance(given, Iterable):
        raise UsageError(advice)
    try:
        ranks = sorted(operator.index(rank) for rank in given)
    except TypeError:
        raise UsageError(advice) from None
    if not ranks:
        raise UsageError("a process set needs at least one rank")
    if len(set(ranks)) < len(ranks):
        raise UsageError(f"a process set cannot contain a rank twice: {ranks}")
    return ranks


class _World(ProcessSet):
    def __init__(self) -> None:
        pass

    @property
    def ranks(self) -> list[int] | None:
        return list(self._members()) if PROCESS.runtime is not None else None

    @property
    def process_set_id(self) -> int | None:
        return 0

    def _members(self) -> Sequence[int]:
        return range(PROCESS.told("size"))


global_process_set: Final[ProcessSet] = _World()


def id_of(process_set: ProcessSet) -> int:
    """Returns its number. Raises UsageError when it is not registered or is no process set."""
    if not isinstance(process_set, ProcessSet):
        raise UsageError(f"process_set= takes an hvd.ProcessSet, not {process_set!r}")
    number = process_set.process_set_id
    if number is None:
        raise UsageError(
            f"{process_set} is not registered; call hvd.add_process_set() on all ranks"
        )
    return number


def with_id(number: int) -> ProcessSet:
    """Return the registered process set with this number. Raises UsageError if it is unknown."""
    if number == 0:
        return global_process_set
    ranks = ids_and_ranks().get(number)
    if ranks is None:
        raise UsageError(f"process set {number} does not exist")
    return ProcessSet._registered(number, ranks)


def add_process_set(process_set: ProcessSet | Sequence[int]) -> ProcessSet:
    """Registers a process set. All ranks of the job call it, in the same order.

    Returns:
        The process set given, or one of the ranks given.

    Raises:
        UsageError: it is registered already, there is one of these ranks, or no such rank.
        UnsupportedError: it has a communicator.
        MismatchError: other ranks ask for another process set.
    """
    wanted = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
    ranks = wanted.ranks or []
    if wanted.process_set_id is not None:
        raise UsageError(f"{wanted} is registered already")
    if wanted.mpi_comm is not None:
        raise UnsupportedError(
            f"hvd.add_process_set({wanted}): pass the process set to "
            "hvd.init(process_sets=[...]), or create it from rank numbers, the same on all ranks"
        )
    for number, members in PROCESS.native().process_sets().items():
        if list(members) == ranks:
            raise UsageError(f"a process set of the ranks {ranks} is registered already: {number}")
    wanted._register(_change("add_process_set", ranks)[0])
    return wanted


def remove_process_set(process_set: ProcessSet) -> bool:
    """Removes a process set. All ranks of the job call it, in the same order.

    Returns:
        False if it is not registered, or is the global process set, which cannot be removed.

    Raises:
        MismatchError: other ranks remove another process set.
    """
    if process_set is global_process_set or process_set.process_set_id is None:
        return False
    _change("remove_process_set", [id_of(process_set)])
    process_set._register(None)
    return True


def ids_and_ranks() -> dict[int, list[int]]:
    """The ranks of every registered process set by its number, all ranks under 0 among them.

    Raises:
        UsageError: `init` has not been called.
    """
    return {number: list(ranks) for number, ranks in PROCESS.native().process_sets().items()}


def _change(operation: str, numbers: Sequence[int]) -> list[int]:
    from hvdtune.core import _native

    name = handles.named(operation, None, 0)
    request = _native.Request(op=operation, name=name, tensors=[], splits=list(numbers))
    handle = handles.start(request, [], [], [], lambda done: list(done.numbers))
    return list(handles.complete(handle))
