"""This process's place in a job: init, shutdown, ranks and sizes.

The core itself has no process-wide state; Horovod's functions do, and this module is where the one
runtime of a process lives.
"""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from hvdtune import __version__
from hvdtune.core.config.environment import LOG_LEVELS, Config
from hvdtune.core.config.knobs import Setting, Value, validate
from hvdtune.core.mpi import startup
from hvdtune.core.rank import spans
from hvdtune.core.rank.affinity import threads_on
from hvdtune.core.rank.stacks import StackSource, open_stack_source
from hvdtune.errors import CollectiveError, UsageError

if TYPE_CHECKING:
    from hvdtune.core import _native
    from hvdtune.core.rank.process_sets import ProcessSet

_lock = threading.Lock()
_runtime: _native.Runtime | None = None  # guarded by _lock for writing
_place: dict[str, Any] = {}
_stacks: StackSource | None = None  # the runtime's, while it lives
_jobs_joined = 0  # of those that the launcher has formed; they are told apart by number
_generation = 0  # counts calls of init
_greetings: list[Callable[[], None]] = []  # see call_after_init
_farewells: list[Callable[[], None]] = []  # see call_after_shutdown
_forked = False  # from a process that was in a job


def init(
    comm: object = None,
    process_sets: Sequence[ProcessSet] | str | None = None,
    config: Config | None = None,
) -> None:
    """Joins the job that the environment (or `config`) describes; without one, a job of one rank.

    Returns when every rank has called it. Calling it again before `shutdown` does nothing; after
    it, all ranks form a job anew, with what the environment says then.

    Args:
        comm: under mpirun, who takes part: an mpi4py communicator, or a list of ranks of those that
            mpirun started (only the listed ones call); all of them by default.
        process_sets: registered at once, the same on all ranks; "dynamic" is what Horovod needs for
            adding sets later, which is always possible here.

    Raises:
        RendezvousError: not every rank came within the start timeout.
        UsageError: the environment is not one that `hvdtune run` or `mpirun` makes, `comm` is not
            one that this process is in, or a process set cannot be.
    """
    if isinstance(process_sets, str) and process_sets != "dynamic":
        raise UsageError(f"process_sets={process_sets!r} is no list of hvd.ProcessSet")
    if _form(config, comm):
        for greeting in _greetings:
            greeting()
    if process_sets and not isinstance(process_sets, str):
        from hvdtune.core.rank.process_sets import add_process_set

        for process_set in process_sets:
            if process_set.process_set_id is None:
                add_process_set(process_set)


def _form(config: Config | None, comm: object) -> bool:
    """False where there is a job already."""
    global _runtime, _place, _stacks, _generation, _jobs_joined
    with _lock:
        if _runtime is not None:
            return False
        config = config or Config.from_environ()
        if _forked:
            raise UsageError(_OF_THE_PARENT)
        by_mpi = startup.is_wanted(config, comm)
        if by_mpi:
            with startup.join(config, comm) as place:
                runtime, _stacks = _start(place.config, {"launched": False, "mpi": place.data})
                place.await_formed()
        else:
            config = dataclasses.replace(config, generation=config.generation + _jobs_joined)
            runtime, _stacks = _start(config, {})
            _jobs_joined += 1
        _place = runtime.topology() | {
            "mpi": by_mpi,
            "zero_copy": _can_share(config),
            "recorded": bool(config.timeline or config.horovod_timeline),
            "horovod_timeline": config.horovod_timeline,
            "horovod_cycles": config.horovod_cycles,
        }
        _generation += 1
        _runtime = runtime
        spans.begin(runtime)
    atexit.register(shutdown)
    return True


def _can_share(config: Config) -> bool:
    ours = config.transport != "tcp" and config.cpu_operations != "mpi"
    return config.zero_copy and ours


def _start(config: Config, more: dict[str, Any]) -> tuple[_native.Runtime, StackSource | None]:
    from hvdtune.core import _native

    stacks = open_stack_source() if config.size > 1 else None
    try:
        with threads_on(config.thread_core):
            return _native.Runtime(_options(config, stacks) | more), stacks
    except BaseException:
        if stacks is not None:
            stacks.close()
        raise


def _options(config: Config, stacks: StackSource | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "rank": config.rank,
        "size": config.size,
        "host": config.host,
        "bind_address": config.address,
        "shared_memory": config.transport != "tcp",
        "setting": dict(config.setting),
        "heartbeat_timeout_s": config.heartbeat_timeout_s,
        "start_timeout_s": config.start_timeout_s,
        "hang_warning_s": config.hang_warning_s,
        "hang_abort_s": config.hang_abort_s,
        "failpoint": config.failpoint,
        "log_level": LOG_LEVELS.index(config.log_level),
        "timeline_path": config.timeline_path,
        "timeline_max_bytes": config.timeline_max_bytes,
        "timeline_stops": config.timeline_when_full == "stop",
        "timeline_first_step": config.timeline_steps.first,
        "timeline_end_step": config.timeline_steps.end,
        "timeline_every_step": config.timeline_steps.every,
        "version": __version__,
    }
    if stacks is not None:
        options["stack_signal"] = stacks.signal
        options["stack_fd"] = stacks.fd
    if config.rendezvous_port:
        options["store_address"] = config.rendezvous_address
        options["store_port"] = config.rendezvous_port
        options["key"] = config.key
        options["generation"] = config.generation
    return options


def shutdown() -> None:
    """Leaves the job; operations still pending fail on every rank. Does nothing before `init`."""
    global _runtime, _place, _stacks
    with _lock:
        runtime, _runtime, _place = _runtime, None, {}
        stacks, _stacks = _stacks, None
    spans.end()
    if runtime is not None:
        runtime.shutdown()
        startup.note_end(failed=runtime.has_lost_a_rank())
    if stacks is not None:
        stacks.close()
    atexit.unregister(shutdown)
    while _farewells:
        _farewells.pop()()


_OF_THE_PARENT: Final = (
    "this process was forked from a rank of a job and has no part in it: hvdtune's functions can "
    "be called in the parent only; start a process of its own (spawn) to use them"
)


def _forget_after_fork() -> None:
    """In the child: the parent's connections and threads are not its own."""
    global _lock, _runtime, _place, _stacks, _forked
    _lock = threading.Lock()  # may have been held by a thread that is not here
    if _runtime is None:
        return
    # Never destroyed: that would say farewell on the parent's connections.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_runtime))
    _runtime, _place, _stacks, _forked = None, {}, None, True
    _farewells.clear()
    atexit.unregister(shutdown)


os.register_at_fork(after_in_child=_forget_after_fork)


def call_after_init(greeting: Callable[[], None]) -> None:
    """Has it called by every `init` that makes this process part of a job."""
    _greetings.append(greeting)


def call_after_shutdown(farewell: Callable[[], None]) -> None:
    """Has it called once, by the next `shutdown`, when this process has left the job."""
    if farewell not in _farewells:
        _farewells.append(farewell)


def is_recorded() -> bool:
    """Whether this job's timeline was asked for from outside, as `hvdtune run` does."""
    native()
    return bool(_place["recorded"])


def horovod_timeline() -> tuple[str, bool]:
    """The trace that HOROVOD_TIMELINE asks the ranks for, "" for none, and whether with cycles."""
    native()
    return str(_place["horovod_timeline"]), bool(_place["horovod_cycles"])


def is_initialized() -> bool:
    """Whether `init` has been called and `shutdown` has not."""
    return _runtime is not None


def generation() -> int:
    """How often `init` has made a runtime in this process."""
    return _generation


def native() -> _native.Runtime:
    """The runtime of this process.

    Raises:
        UsageError: `init` has not been called.
    """
    runtime = _runtime
    if runtime is None:
        if _forked:
            raise UsageError(_OF_THE_PARENT)
        raise UsageError("Horovod has not been initialized; use hvd.init().")
    return runtime


def _of_place(name: str) -> int:
    native()
    return int(_place[name])


def rank() -> int:
    """This process's number, 0 to size() - 1."""
    return _of_place("rank")


def size() -> int:
    """How many ranks the job has."""
    return _of_place("size")


def local_rank() -> int:
    """This process's number among the ranks of its host."""
    return _of_place("local_rank")


def local_size() -> int:
    """How many ranks this host has."""
    return _of_place("local_size")


def cross_rank() -> int:
    """The number of this host among those that have a rank with this local_rank."""
    return _of_place("cross_rank")


def cross_size() -> int:
    """How many hosts have a rank with this local_rank."""
    return _of_place("cross_size")


def is_homogeneous() -> bool:
    """Whether every host has the same number of ranks."""
    native()
    return len({len(host) for host in _place["hosts"]}) == 1


def formed_by_mpi() -> bool:
    """Whether this job was formed by MPI, not by hvdtune's launcher."""
    native()
    return bool(_place["mpi"])


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
    """As `shared_buffer`, or None where that gains nothing, is switched off, or finds no memory.

    It gains nothing for the only rank of a host, over TCP, or where MPI carries out the
    collectives; HVDTUNE_ZERO_COPY=0 switches it off.

    Raises:
        UsageError: `init` has not been called.
    """
    if local_size() == 1 or not _place["zero_copy"]:
        return None
    try:
        return shared_buffer(size_bytes)
    except CollectiveError:
        return None


def mark_step() -> None:
    """Says that a training step has ended on this rank.

    DistributedOptimizer does it in `step()`; call it yourself in a loop without one, so that the
    tuner and the timeline know where steps begin.
    """
    native().mark_step()


def setting() -> dict[str, Value]:
    """The knobs in force on this rank."""
    return dict(native().setting())


def propose(values: Setting) -> int:
    """Asks all ranks to adopt a setting; knobs not named keep their value. Rank 0 only.

    Returns:
        The setting's version; `native().version()` reaches it when it is in force.

    Raises:
        UsageError: not rank 0, an unknown knob, or a value out of range.
    """
    return int(native().propose({**setting(), **validate(values)}))
