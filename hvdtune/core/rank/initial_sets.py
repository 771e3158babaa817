"""The process sets that `init` is given: all ranks register them, or there is no job."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hvdtune.core.rank import handles
from hvdtune.core.rank.process import PROCESS
from hvdtune.core.rank.process_sets import ProcessSet, add_process_set
from hvdtune.errors import MismatchError, UsageError
from hvdtune.plural import counted

_WHAT: Final = "hvd.init(process_sets=...)"


def listed(process_sets: Sequence[ProcessSet] | str | None) -> list[ProcessSet]:
    """Return the sets to register. Raises UsageError unless it is a list of process sets."""
    if process_sets is None or process_sets == "dynamic":
        return []
    kinds = None if isinstance(process_sets, str) else [*process_sets]
    if kinds is None or not all(isinstance(each, ProcessSet) for each in kinds):
        raise UsageError(f"process_sets={process_sets!r} is not a list of hvd.ProcessSet")
    return kinds


def check(process_sets: Sequence[ProcessSet], size: int) -> None:
    """Raises UsageError for sets that a job of `size` ranks cannot have."""
    seen: list[list[int]] = [list(range(size))]
    for process_set in process_sets:
        if process_set.mpi_comm is not None:
            continue  # its ranks are known when there is a job
        ranks = process_set.ranks or []
        for rank in ranks:
            if not 0 <= rank < size:
                job = f"a job of {counted(size, 'rank')}"
                raise UsageError(f"{_WHAT}: rank {rank} of {ranks} does not exist in {job}")
        if ranks in seen:
            is_global = ranks == seen[0]
            why = "are all ranks: use hvd.global_process_set" if is_global else "appear twice"
            raise UsageError(f"{_WHAT}: the ranks {ranks} {why}")
        seen.append(ranks)


def register(process_sets: Sequence[ProcessSet]) -> None:
    """Registers the sets, when all ranks were given the same.

    Communicators may differ: then all ranks register the sets of all of them.

    Raises:
        UsageError: this rank was given a set that cannot be.
        MismatchError: other ranks were given other sets.
    """
    by_rank = _gathered(_GivenSets.of(process_sets))
    check(process_sets, len(by_rank))
    own_rank = PROCESS.told("rank")
    own = by_rank[own_rank]
    for rank, other in enumerate(by_rank):
        if other.lists() != own.lists():
            raise MismatchError(
                f"{_WHAT} differs between ranks: {own.lists()} on rank {own_rank}, "
                f"{other.lists()} on rank {rank}. Pass the same sets in the same order on every "
                "rank",
                rank,
            )
    groups = _groups(by_rank)
    numbers = {tuple(range(len(by_rank))): 0}
    for position, process_set in enumerate(process_sets):
        if process_set.mpi_comm is None:
            add_process_set(process_set)
            numbers[tuple(process_set.ranks or [])] = process_set.process_set_id or 0
            continue
        for members in sorted({group[position] for group in groups}):
            # Communicators of all ranks, or of the same ones, are common where a script splits by
            # host.
            if members not in numbers:
                numbers[members] = add_process_set(members).process_set_id or 0
        members = groups[PROCESS.told("rank")][position]
        process_set._register(numbers[members], members)


@dataclass(frozen=True)
class _GivenSets:
    """The sets that one rank was given.

    Attributes:
        place: its rank in MPI.COMM_WORLD, -1 without communicators.
        sets: of each set whether it is a communicator, and its ranks, which are those in
            MPI.COMM_WORLD then.
    """

    place: int
    sets: list[tuple[bool, list[int]]]

    @classmethod
    def of(cls, process_sets: Sequence[ProcessSet]) -> _GivenSets:
        comms = [each.mpi_comm for each in process_sets if each.mpi_comm is not None]
        if not comms:
            return cls(-1, [(False, each.ranks or []) for each in process_sets])
        # Calls that do not communicate: a communicator may have processes outside of the job.
        world: Any = sys.modules["mpi4py.MPI"].COMM_WORLD
        group = world.Get_group()
        sets = [
            (False, each.ranks or [])
            if each.mpi_comm is None
            else (True, list(each.mpi_comm.Get_group().Translate_ranks(None, group)))
            for each in process_sets
        ]
        return cls(world.Get_rank(), sets)

    def lists(self) -> list[Any]:
        """Return what must be the same on all ranks: for a communicator, that it is one."""
        return ["a communicator" if is_comm else ranks for is_comm, ranks in self.sets]


def _groups(by_rank: Sequence[_GivenSets]) -> list[list[tuple[int, ...]]]:
    """Return the ranks of every set of each rank, those of communicators as ranks of the job.

    Raises:
        UsageError: a communicator has a process outside of the job.
        MismatchError: ranks of one communicator were given different ones at one position.
    """
    place = {given.place: rank for rank, given in enumerate(by_rank)}
    groups: list[list[tuple[int, ...]]] = [[] for _ in by_rank]
    for rank, given in enumerate(by_rank):
        for is_comm, ranks in given.sets:
            if is_comm and len(place) < len(by_rank):
                raise UsageError(
                    f"{_WHAT}: MPI did not start the {len(by_rank)} ranks of this job, so a "
                    "communicator cannot contain several of them. Start them with mpirun, or "
                    "create process sets from rank numbers."
                )
            outside = [each for each in ranks if is_comm and each not in place]
            if outside:
                raise UsageError(
                    f"{_WHAT}: the communicator of rank {rank} has processes outside of this job, "
                    f"MPI's ranks {outside}. Use a communicator of ranks of the job."
                )
            job_s = sorted(place[each] for each in ranks) if is_comm else ranks
            groups[rank].append(tuple(job_s))
    for rank, sets in enumerate(groups):
        for position, members in enumerate(sets):
            for other in members if by_rank[rank].sets[position][0] else ():
                if groups[other][position] != members:
                    raise MismatchError(
                        f"{_WHAT} differs between ranks: the communicator of rank {rank} has the "
                        f"ranks {[*members]}, that of rank {other} {[*groups[other][position]]}. "
                        "Ranks of one communicator must pass it at the same position",
                        other,
                    )
    return groups


def _gathered(own: _GivenSets) -> list[_GivenSets]:
    line = json.dumps([own.place, own.sets]).encode()
    texts = handles.gather_lines("init.process_sets", line)
    return [_GivenSets(place, sets) for place, sets in map(json.loads, texts)]
