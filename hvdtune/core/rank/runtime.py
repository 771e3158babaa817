"""This process's place in a job: init, shutdown, ranks and sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hvdtune.core.rank import initial_sets
from hvdtune.core.rank.process import PROCESS
from hvdtune.core.rank.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    is_communicator,
)
from hvdtune.core.rank.spans import watch, watch_garbage
from hvdtune.errors import CollectiveError

if TYPE_CHECKING:
    from hvdtune.core import _native
    from hvdtune.core.config.environment import Config
    from hvdtune.core.config.knobs import Setting, Value


def init(
    comm: object = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
    config: Config | None = None,
) -> None:
    """Joins the job that the environment (or `config`) describes; without one, a job of one rank.

    Returns when every rank has called it. Calling it again before `shutdown` does nothing; after
    it, all ranks form a new job, from the environment at that time.

    Args:
        comm: under mpirun, who takes part: an mpi4py communicator, or a list of ranks of those that
            mpirun started (only the listed ones call); all of them by default.
        process_sets: registered at once, the same on all ranks, except those of communicators;
            "dynamic" is what Horovod needs for adding sets later, which is always possible here.

    Raises:
        RendezvousError: not every rank came within the start timeout.
        UsageError: the environment is not one that `hvdtune run` or `mpirun` makes, `comm` is not
            one that this process is in, or a process set cannot be.
        MismatchError: other ranks were given other process sets.

    After an error this process is in no job, as before; where only some ranks have raised it, the
    others wait, up to the start timeout, for them to call `init` again.
    """
    given = initial_sets.listed(process_sets)
    if not PROCESS.form(config, comm, lambda size: initial_sets.check(given, size)):
        for process_set in given:
            if process_set.process_set_id is None:
                add_process_set(process_set)
        return
    global_process_set.mpi_comm = comm if is_communicator(comm) else None
    if given:
        try:
            initial_sets.register(given)
        except BaseException:
            PROCESS.leave()
            raise
    for callback in PROCESS.on_init:
        callback()


def shutdown() -> None:
    """Leaves the job; operations still pending fail on every rank. Does nothing before `init`."""
    PROCESS.leave()


def on_init(callback: Callable[[], None]) -> None:
    """Calls it at the end of every `init` that makes this process part of a job."""
    PROCESS.on_init.append(callback)


def on_shutdown(callback: Callable[[], None]) -> None:
    """Calls it once, in the next `shutdown`, when this process has left the job."""
    if callback not in PROCESS.on_shutdown:
        PROCESS.on_shutdown.append(callback)


def is_recorded() -> bool:
    """Return whether this job's timeline was asked for from outside, as `hvdtune run` does."""
    return bool(PROCESS.told("recorded"))


def horovod_timeline() -> tuple[str, bool]:
    """The trace that HOROVOD_TIMELINE asks the ranks for, "" for none, and whether with cycles."""
    return str(PROCESS.told("horovod_timeline")), bool(PROCESS.told("horovod_cycles"))


def is_initialized() -> bool:
    """Return whether `init` has been called and `shutdown` has not."""
    return PROCESS.runtime is not None


def generation() -> int:
    """Return how many times `init` created a runtime in this process."""
    return PROCESS.generation


def job_name() -> str:
    """16 hexadecimal digits, the same on all ranks of this job and of no other job."""
    return str(PROCESS.told("job"))


def native() -> _native.Runtime:
    """The runtime of this process.

    Raises:
        UsageError: `init` has not been called.
    """
    return PROCESS.native()


def rank() -> int:
    """This process's number, 0 to size() - 1."""
    return int(PROCESS.told("rank"))


def size() -> int:
    """Return the number of ranks of the job."""
    return int(PROCESS.told("size"))


def local_rank() -> int:
    """This process's number among the ranks of its host."""
    return int(PROCESS.told("local_rank"))


def local_size() -> int:
    """Return the number of ranks on this host."""
    return int(PROCESS.told("local_size"))


def cross_rank() -> int:
    """The number of this host among those that have a rank with this local_rank."""
    return int(PROCESS.told("cross_rank"))


def cross_size() -> int:
    """Return the number of hosts that have a rank with this local_rank."""
    return int(PROCESS.told("cross_size"))


def is_homogeneous() -> bool:
    """Return whether every host has the same number of ranks."""
    return len({len(host) for host in PROCESS.told("hosts")}) == 1


def formed_by_mpi() -> bool:
    """Return whether this job was formed by MPI, not by hvdtune's launcher."""
    return bool(PROCESS.told("mpi"))


def shared_buffer(size_bytes: int) -> _native.SharedBuffer:
    """Memory that the other ranks of this host can reach, for tensors that are reduced often.

    Collectives read and write tensors in it where they are, without copying them first. The buffer
    speaks Python's buffer protocol: `torch.frombuffer(shared_buffer(n), dtype=torch.float32)` or
    `numpy.frombuffer(...)` make an array of it that keeps it alive, after `shutdown`, too. Its
    content is undefined at first; it is page aligned and every page of it is resident.

    Args:
        size_bytes: at least 1.

    Raises:
        UsageError: `init` has not been called.
        CollectiveError: there is no memory.
    """
    return native().allocate_shared(size_bytes)


def zero_copy_buffer(size_bytes: int) -> _native.SharedBuffer | None:
    """Return what `shared_buffer` does, or None if that gains nothing, is off, or finds no memory.

    It gains nothing for the only rank of a host, over TCP, or where MPI carries out the
    collectives; HVDTUNE_ZERO_COPY=0 switches it off.

    Raises:
        UsageError: `init` has not been called.
    """
    if local_size() == 1 or not PROCESS.told("zero_copy"):
        return None
    try:
        return shared_buffer(size_bytes)
    except CollectiveError:
        return None


def mark_step() -> None:
    """Marks the end of a training step on this rank.

    DistributedOptimizer does it in `step()`. Call it in a loop without one, to give the tuner and
    the timeline the boundaries of steps.
    """
    native().mark_step()
    PROCESS.marks_steps = True


def setting() -> dict[str, Value]:
    """The knobs in force on this rank."""
    return dict(native().setting())


def propose(values: Setting) -> int:
    """Asks all ranks to adopt a setting; knobs not named keep their value. Rank 0 only.

    Returns:
        The setting's version, counted from 2**30 on, apart from the launcher's; it is that of
        `native().version()` when it is in force.

    Raises:
        UsageError: not rank 0, an unknown knob, or a value out of range.
    """
    from hvdtune.core.config.knobs import validate

    return int(native().propose({**setting(), **validate(values)}))


watch(watch_garbage)
