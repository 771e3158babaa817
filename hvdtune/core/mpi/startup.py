"""Start-up of jobs that MPI has started.

MPI provides ranks and hosts, and carries the job's key once. After that the ranks have their own
connections, as under `hvdtune run`: MPI has nothing that a thread could sleep on.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeVar

from hvdtune.core.config.environment import Config, cache_folder
from hvdtune.core.config.groups import MpiLauncher
from hvdtune.core.job import rendezvous, route
from hvdtune.core.job.rendezvous import Board, Offer, Opening
from hvdtune.core.mpi import mpi_library
from hvdtune.errors import UsageError
from hvdtune.own_files import require_trusted
from hvdtune.plural import counted

T = TypeVar("T")
THREAD_LEVELS: Final = ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
MULTIPLE: Final = 3

_library: Any = None  # _native.MpiLibrary, once this process has one: an MPI is never unloaded
_jobs = 0  # greater than the generation of each job that this process has been in
_may_finalize = True


def is_wanted(config: Config, comm: object) -> bool:
    """Return whether MPI is to form the job.

    Raises UsageError when that was asked for and cannot be.
    """
    if config.rendezvous.port:
        if comm is not None and not _is_everybody(comm, config.place.size):
            raise UsageError(
                "hvd.init(comm=...) needs a job started by mpirun; this one was started by "
                "`hvdtune run`: use process sets for some of its ranks"
            )
        if config.mpi.controller == "mpi" or config.mpi.cpu_operations == "mpi":
            raise UsageError(
                "HVDTUNE_CONTROLLER or HVDTUNE_CPU_OPERATIONS requires MPI, but this job "
                "was started by `hvdtune run`: start it with mpirun"
            )
        return False
    if config.mpi.controller == "hvdtune" and comm is None:
        return False
    if comm is not None or config.mpi.controller == "mpi":
        return True
    if config.mpi.launcher is None:
        if config.mpi.cpu_operations == "mpi":
            raise UsageError("HVDTUNE_CPU_OPERATIONS=mpi needs a job started by mpirun")
        return False
    if _choice(config.mpi.launcher) is not None or config.mpi.cpu_operations == "mpi":
        return True
    # Without a plugin the ranks meet by mpirun's variables. A single process needs no plugin.
    return config.rendezvous.meeting is None and config.mpi.launcher.size != 1


def join(config: Config, comm: object, start: Callable[[Config, Any], T]) -> tuple[Config, T]:
    """Join the job that MPI forms; all ranks of `comm` call it. See `rendezvous.meet`.

    Args:
        comm: None for all that mpirun started, an mpi4py communicator, or ranks of the world.
        start: called with the configuration, and with the communicator that is to carry out
            collectives; None if hvdtune does.

    Raises:
        UsageError: no plugin, no such communicator, too few threads for MPI to carry data, or a
            launcher that reports more processes than MPI.
        RendezvousError: not every rank came within the start timeout.
    """
    global _jobs
    library = _open(config)
    if config.mpi.launcher is not None and comm is None:
        _require_company(config.mpi.launcher, library.world_place()[1])
    if config.mpi.cpu_operations == "mpi" and (level := library.threads()) != MULTIPLE:
        raise UsageError(
            "HVDTUNE_CPU_OPERATIONS=mpi calls MPI from a separate thread and needs "
            f"MPI_THREAD_MULTIPLE; MPI was initialised with MPI_THREAD_{THREAD_LEVELS[level]}"
        )
    timeout_s = config.timeouts.start_s
    communicator = _communicator(library, comm, timeout_s)
    own = json.dumps([communicator.node(), config.place.host, _jobs])
    gathered = communicator.gather(own, timeout_s)
    nodes, names, jobs = zip(*map(json.loads, gathered), strict=True)
    hosts = host_names(nodes, names)
    rank = communicator.rank
    generation = max(jobs)
    _jobs = generation + 1
    address = config.rendezvous.own_address or _address(rank, nodes, names)
    place = dataclasses.replace(config.place, rank=rank, size=communicator.size, host=hosts[rank])
    where = dataclasses.replace(config.rendezvous, own_address=address, generation=generation)
    config = dataclasses.replace(config, place=place, rendezvous=where)
    data = communicator if config.mpi.cpu_operations == "mpi" else None
    board = _MpiBoard(communicator, address, timeout_s)
    return rendezvous.meet(config, board, lambda met: start(met, data), generation)


class _MpiBoard(Board):
    """A broadcast from rank 0."""

    def __init__(self, communicator: Any, address: str, timeout_s: float) -> None:
        self._communicator = communicator
        self._address, self._timeout_s = address, timeout_s

    def opening(self) -> Opening:
        return Opening(self._address or route.LOOPBACK)

    def posted(self, offer: Offer) -> contextlib.AbstractContextManager[object]:
        self._broadcast(offer.to_json(), self._timeout_s)
        return contextlib.nullcontext()

    def withdraw(self, why: str) -> None:
        self._broadcast(rendezvous.withdrawal(why), self._timeout_s)

    def await_offer(self, timeout_s: float) -> Offer:
        return Offer.from_json(self._broadcast("", timeout_s))

    def _broadcast(self, text: str, timeout_s: float) -> bytes:
        received: bytes = self._communicator.broadcast(text.encode(), 0, timeout_s)
        return received


def host_names(nodes: Sequence[int], names: Sequence[str]) -> list[str]:
    """The host of each rank: ranks of one node share memory, whatever it is called.

    `nodes` has the lowest rank on each rank's node, `names` what the ranks call their hosts. Names
    that differ within a node are the user's (HVDTUNE_HOST) and are kept.
    """
    hosts = []
    for node, name in zip(nodes, names, strict=True):
        elsewhere = any(n == name and o < node for o, n in zip(nodes, names, strict=True))
        hosts.append(f"{name}/{node}" if elsewhere else name)
    return hosts


def _address(rank: int, nodes: Sequence[int], names: Sequence[str]) -> str:
    """The address of this host on the way to another one of the job; "" when there is no other."""
    others = [name for node, name in zip(nodes, names, strict=True) if node != nodes[rank]]
    if not others:
        return ""
    return route.address_for_peers(others[0])


def _communicator(library: Any, comm: object, timeout_s: float) -> Any:
    if comm is None:
        return library.duplicate(0, timeout_s)
    if isinstance(comm, Sequence) and not isinstance(comm, str):
        return library.of_world(_checked(comm, *library.world_place()))
    mpi4py = sys.modules.get("mpi4py.MPI")
    if mpi4py is not None and isinstance(comm, mpi4py.Comm) and comm == mpi4py.COMM_NULL:
        raise UsageError("hvd.init(comm=MPI.COMM_NULL): this process is not in that communicator")
    if mpi4py is None or not isinstance(comm, mpi4py.Intracomm):
        raise UsageError(
            "hvd.init(comm=...) takes an mpi4py communicator or a list of ranks, not "
            f"{type(comm).__name__}"
        )
    return library.duplicate(mpi4py._addressof(comm), timeout_s)


def _checked(ranks: Sequence[Any], own_rank: int, size: int) -> list[int]:
    listed = [int(rank) for rank in ranks]
    if len(set(listed)) != len(listed):
        raise UsageError(f"hvd.init(comm={listed}): a rank is listed twice")
    for rank in listed:
        if not 0 <= rank < size:
            raise UsageError(
                f"hvd.init(comm={listed}): mpirun started {counted(size, 'process')}, so rank "
                f"{rank} does not exist"
            )
    if own_rank not in listed:
        raise UsageError(
            f"hvd.init(comm={listed}): this process is rank {own_rank} and is not listed; only "
            "listed ranks may call it"
        )
    return listed


def _is_everybody(comm: object, size: int) -> bool:
    return isinstance(comm, Sequence) and list(comm) == list(range(size))


def _choice(launcher: MpiLauncher | None) -> mpi_library.Choice | None:
    return mpi_library.choose_plugin(launcher.flavour if launcher else "")


def _open(config: Config) -> Any:
    """The MPI of this process, initialised.

    Raises HvdtuneError for a plugin that another user could have put there.
    """
    global _library
    if _library is None:
        from hvdtune.core import _native

        choice = _choice(config.mpi.launcher)
        if choice is None:
            _refuse(config.mpi.launcher)
        if choice.plugin.is_relative_to(cache_folder()):
            require_trusted(choice.plugin)
        if choice.library is not None:
            mpi_library.preload(choice.library)
        _library = _native.MpiLibrary(str(choice.plugin))
    if _library.finalized():
        raise UsageError("hvd.init() after MPI_Finalize: MPI cannot start twice in a process.")
    if not _library.initialized():
        _library.initialize()
        atexit.register(_finalize)
    return _library


def _require_company(launcher: MpiLauncher, size: int) -> None:
    """Raises UsageError if MPI has one process, and the launcher reports more."""
    if size > 1 or (launcher.rank == 0 and launcher.size <= 1):
        return
    of = f" of {launcher.size}" if launcher.size else ""
    without = "set HVDTUNE_CONTROLLER=hvdtune to ignore MPI, or " if launcher.size else "set "
    raise UsageError(
        f"The launcher started this process as rank {launcher.rank}{of}, but "
        f"{mpi_library.loaded_library() or 'MPI'} reports 1 process. Start the ranks with the "
        f"mpirun of this MPI, or {without}HVDTUNE_STARTED_BY=none to run it alone."
    )


def _refuse(launcher: MpiLauncher | None) -> NoReturn:
    loaded = mpi_library.loaded_library()
    which = f" for {loaded}" if loaded else ""
    if launcher and not launcher.size:
        raise UsageError(
            "PMIX_RANK is set, but the number of ranks is not, and hvdtune has no MPI plugin"
            f"{which} to ask MPI. Run `hvdtune build mpi` once, or set HVDTUNE_STARTED_BY=none to "
            "run this process alone."
        )
    started = "mpirun started this process" if launcher else "hvd.init() needs MPI"
    raise UsageError(
        f"{started}, but hvdtune has no MPI plugin{which}. Run `hvdtune build mpi` once"
        + ("." if not launcher else ", or set HVDTUNE_CONTROLLER=hvdtune to ignore MPI.")
    )


def note_end(*, failed: bool) -> None:
    """Remembers how the job ended: MPI_Finalize waits for all ranks, so not for lost ones."""
    global _may_finalize
    _may_finalize = not failed


def _finalize() -> None:
    if _may_finalize and not _library.finalized():
        _library.finalize()


def thread_level() -> int | None:
    """The thread level of this process's MPI, an index of THREAD_LEVELS; None without one."""
    if _library is None or not _library.initialized() or _library.finalized():
        return None
    return int(_library.threads())
