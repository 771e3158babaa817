"""The global state of a process: one object with one fork hook.

The C++ core has no process-wide state, but Horovod's functions are called on no object. So the job
of a process, its operations in flight and its watchers are attributes of `PROCESS`.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import dataclasses
import hashlib
import itertools
import os
import secrets
import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from hvdtune import __version__
from hvdtune.core.rank.affinity import threads_on, where_it_runs
from hvdtune.core.rank.stacks import StackSource, open_stack_source
from hvdtune.errors import UsageError
from hvdtune.streams import open_missing_streams

if TYPE_CHECKING:
    from hvdtune.core import _native
    from hvdtune.core.config.dialect import LauncherPlace
    from hvdtune.core.config.environment import Config
    from hvdtune.core.config.groups import GpuConfig
    from hvdtune.core.config.meeting_point import MeetingPoint
    from hvdtune.core.job.rendezvous import Board
    from hvdtune.core.job.worker import ElasticWorker

Undo = Callable[[], None]
Started = tuple["_native.Runtime", "StackSource | None"]

# The generation of a job besides the one of the process. Its ranks get rank 0's address when rank 0
# listens, so they do not retry, as those of a higher generation do.
BESIDE: Final = 0
_NAME_BYTES: Final = 8

OF_THE_PARENT: Final = (
    "this process was forked from a rank of a job and is not a rank. Call hvdtune's functions "
    "in the parent only, and pass values such as hvd.rank() to the child"
)


class Process:
    """The job of this process, its operations in flight, and the callbacks around them.

    Thread rule: any thread. `forming` is held while a job is formed or left, which may wait for
    other ranks; `lock` guards the operations and is never held during a wait.

    Attributes:
        runtime: of the job, None outside of one.
        place: of this rank, {} outside of a job.
        generation: how many jobs this process has been in.
        on_init: called by every `init` that makes this process part of a job.
        on_shutdown: called once, by the next `shutdown`, when this process has left the job.
        pending: the operations that have a handle and were not synchronized; any thread, without
            the lock, which a finalizer could not take.
        in_flight: every InFlight whose memory the core may read or write; as `pending`.
        abandoned: those of them that no thread will wait for; as `pending`.
        undecided: every PassAgreement that has to be decided before the next collective of the
            script; as `pending`.
        blocked: the threads that have waited for a while; changed by each thread for itself.
        submitter: submits what waits for its values, on one thread, so in the order of calls.
        unnamed: numbers the operations without a name, by generation and process set.
        joins: how often all ranks have met in `join`, by generation and process set.
        worker: this process as one of an elastic job, from the first `init` on; None elsewhere.
        has_gpu_tensors: whether a framework's binding that is loaded gives tensors on GPUs to the
            core.
        marks_steps: whether the script has marked a step of this job, itself or by an optimizer of
            hvdtune; then nothing else marks steps.
        script_knobs: those that the script has declared in this job, by name.
        before_join: slow preparations of a new rank of an elastic job, done before others wait.
        watchers: start to watch the script at `init`; each returns a function that stops it.
    """

    def __init__(self) -> None:
        self.forming = threading.Lock()
        self.lock = threading.Lock()
        self.runtime: _native.Runtime | None = None
        self.place: dict[str, Any] = {}
        self.generation = 0
        self.before_join: list[Callable[[], object]] = []
        self.on_init: list[Callable[[], None]] = []
        self.on_shutdown: list[Callable[[], None]] = []
        self.pending: dict[int, Any] = {}
        self.in_flight: set[Any] = set()
        self.abandoned: set[Any] = set()
        self.undecided: set[Any] = set()
        self.blocked: set[int] = set()
        self.submitter: ThreadPoolExecutor | None = None
        self.handles = itertools.count(1)
        self.unnamed: defaultdict[tuple[int, int], itertools.count[int]] = defaultdict(
            itertools.count
        )
        self.joins: Counter[tuple[int, int]] = Counter()
        self.worker: ElasticWorker | None = None
        self.has_gpu_tensors = False
        self.marks_steps = False
        self.script_knobs: dict[str, Any] = {}
        self.watchers: list[Callable[[], Undo]] = []
        self._undo: list[Undo] = []
        self._stacks: StackSource | None = None
        self._launched = 0  # number of jobs that the launcher has formed
        self._was_forked = False  # from a process that was in a job

    def native(self) -> _native.Runtime:
        """The runtime of this process.

        Raises:
            UsageError: `init` has not been called.
        """
        runtime = self.runtime
        if runtime is None:
            self.require_own()
            raise UsageError("Horovod has not been initialized; use hvd.init().")
        return runtime

    def require_own(self) -> None:
        """Raises UsageError in a child of fork of a rank."""
        if self.runtime is None and self._was_forked:
            raise UsageError(OF_THE_PARENT)

    def told(self, name: str) -> Any:
        """Looks up a fact about this rank's place. Raises UsageError as `native` does."""
        self.native()
        return self.place[name]

    def has_gpu_operations(self) -> bool:
        """Return whether the core carries tensors on a GPU.

        REQUIRES: there is such a tensor. So the script has chosen its GPUs, and looking for them
        does not come too early.
        """
        chosen = self.place.get("gpu_operations", "host")
        if chosen == "auto":
            chosen = self.place["gpu_operations"] = _own_gpus(self.place)
        return bool(chosen == "nccl")

    def form(
        self,
        config: Config | None,
        comm: object,
        check: Callable[[int], None],
        board: Board | None = None,
    ) -> bool:
        """Joins a job; False where this process is in one. See `hvdtune.core.rank.runtime.init`.

        Args:
            check: raises an error to refuse a job of this size before it is formed, if the size is
                known.
            board: the way in which the ranks meet, instead of the environment's.
        """
        with self.forming:
            if self.runtime is not None:
                return False
            open_missing_streams()  # before there are sockets
            config = config or _config_of_environment()
            if self._was_forked:
                raise UsageError(OF_THE_PARENT)
            config = _with_gpu_operations(config, self.has_gpu_tensors)
            _warn_of_ignored(config)
            # Loaded when a job is formed, for the sake of those who only import a framework.
            from hvdtune.core.mpi import startup

            by_mpi = startup.is_wanted(config, comm)
            if by_mpi:
                config, (runtime, self._stacks) = startup.join(config, comm, _start_by_mpi)
            elif board is None and config.rendezvous.worker >= 0:
                config, (runtime, self._stacks) = self._join_elastic(config, check)
            else:
                by_board = board is not None or config.rendezvous.port
                point = None if by_board else config.rendezvous.meeting
                check(config.place.size if point is None else point.place.size or 1)
                config = _after(self._launched, config)
                config, (runtime, self._stacks) = _meet(config, board, point)
                self._launched += 1
            recording = config.recording
            self.place = runtime.topology() | {
                "job": _job_name(config),
                "mpi": by_mpi,
                "gpu_operations": config.gpu.operations,
                "gpu_libraries": (config.gpu.cuda_library, config.gpu.nccl_library),
                "zero_copy": _can_share(config),
                "recorded": bool(recording.timeline or recording.horovod_timeline),
                "horovod_timeline": recording.horovod_timeline,
                "horovod_cycles": recording.horovod_cycles,
            }
            if self.worker is not None and config.rendezvous.worker >= 0:
                _set_place(self.place)
            if config.rendezvous.meeting is not None and self.generation == 0:
                _compare_local_rank(config.rendezvous.meeting.place, self.place["local_rank"])
            self.generation += 1
            self.marks_steps = False
            self.script_knobs = {}
            self.runtime = runtime
            self._undo.extend(watcher() for watcher in self.watchers)
        atexit.register(self.leave)
        return True

    def _join_elastic(
        self, config: Config, check: Callable[[int], None]
    ) -> tuple[Config, tuple[_native.Runtime, StackSource | None]]:
        from hvdtune.core.job.worker import ElasticWorker

        def start(placed: Config) -> tuple[_native.Runtime, StackSource | None]:
            check(placed.place.size)
            return _start(placed, {})

        if self.worker is None:
            for prepare in self.before_join:
                prepare()
            self.worker = ElasticWorker(config)
        return self.worker.join(config, start)

    def watch(self, watcher: Callable[[], Undo]) -> None:
        """Calls `watcher` in every `form`, and its result in the next `leave`.

        In a job it also calls it at once: a group of torch's forms the job before hvdtune.torch is
        imported.
        """
        with self.forming:
            self.watchers.append(watcher)
            if self.runtime is not None:
                self._undo.append(watcher())

    def leave(self) -> None:
        """Leaves the job; operations still pending fail on every rank. Without a job, nothing.

        If a signal handler raises meanwhile, the remaining steps are done before this raises.
        """
        with contextlib.ExitStack() as rest:
            rest.callback(_call_all, self.on_shutdown)
            rest.callback(atexit.unregister, self.leave)
            with self.forming:
                runtime, self.runtime, self.place = self.runtime, None, {}
                stacks, self._stacks = self._stacks, None
                if stacks is not None:
                    rest.callback(stacks.close)
                if runtime is not None:
                    rest.callback(_end, runtime)
            rest.callback(_call_all, self._undo)

    def forget_after_fork(self) -> None:
        """Forget the parent's connections and threads, which a child does not own."""
        # Either lock may have been held by a thread that is not here.
        self.forming, self.lock = threading.Lock(), threading.Lock()
        self.pending, self.submitter, self.worker = {}, None, None
        for batch in self.in_flight:  # which a thread of the child may still wait for
            batch.leave_to_parent(Refusal())
        self.in_flight, self.abandoned, self.blocked = set(), set(), set()
        self.undecided = set()
        if self.runtime is None:
            return
        # Never destroyed: that would wait for the parent's threads, which are not here.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.runtime))
        self.runtime, self.place, self._stacks, self._was_forked = None, {}, None, True
        self.on_shutdown.clear()
        atexit.unregister(self.leave)


def _meet(
    config: Config, board: Board | None, point: MeetingPoint | None
) -> tuple[Config, Started]:
    """Start as a rank: by the board, at the meeting point, or else by the launcher's rendezvous."""
    from hvdtune.core.job import meeting, rendezvous

    if board is not None:
        return rendezvous.meet(config, board, _start_met)
    if point is not None:
        return meeting.join(config, _start_met)
    return config, _start(config, {})


class Refusal:
    """Replaces the parent's runtime in a child of fork: every method raises UsageError."""

    def __getattr__(self, name: str) -> Any:
        raise UsageError(OF_THE_PARENT)


def _after(jobs: int, config: Config) -> Config:
    """Return the configuration of the next job of a process that has formed this many jobs."""
    rendezvous = config.rendezvous
    rendezvous = dataclasses.replace(rendezvous, generation=rendezvous.generation + jobs)
    return dataclasses.replace(config, rendezvous=rendezvous)


def _warn_of_ignored(config: Config) -> None:
    """Warn of ignored variables on rank 0."""
    meeting = config.rendezvous.meeting
    rank = config.place.rank if meeting is None else meeting.place.rank
    for text in config.ignored if rank == 0 else ():
        warnings.warn(text, stacklevel=4)  # of who calls init


def _compare_local_rank(place: LauncherPlace, local_rank: int) -> None:
    """Warns if the launcher's local rank differs from the one of the ranks on this host."""
    if place.local_rank not in (None, local_rank):
        warnings.warn(
            f"{place.title} reports local rank {place.local_rank} for this process, but "
            f"hvd.local_rank() returns {local_rank}, counted among the ranks on this host. A "
            "script that uses both numbers may select two different devices",
            stacklevel=4,  # of who calls init
        )


def _config_of_environment() -> Config:
    # Loaded when a job is formed, as the rest of the configuration, and not by every import.
    from hvdtune.core.config.environment import Config

    return Config.from_environ()


def _set_place(place: dict[str, Any]) -> None:
    """Set the place in the environment, too, where scripts and libraries read it."""
    from hvdtune.core.config.environment import set_place

    set_place(place)


def _call_all(callbacks: list[Callable[[], None]]) -> None:
    """Calls the last one first, and all of them whatever one raises."""
    with contextlib.ExitStack() as rest:
        for callback in callbacks:
            rest.callback(callback)
        callbacks.clear()


def _end(runtime: _native.Runtime) -> None:
    from hvdtune.core.mpi import startup

    runtime.shutdown()
    startup.note_end(failed=runtime.has_lost_a_rank())


def _job_name(config: Config) -> str:
    """Return a name, equal on all ranks of a job and in no other job; the key stays secret."""
    if not config.rendezvous.key:  # a job of one rank
        return secrets.token_hex(_NAME_BYTES)
    number = str(config.rendezvous.generation).encode()
    return hashlib.blake2b(number, digest_size=_NAME_BYTES, key=config.rendezvous.key).hexdigest()


def _can_share(config: Config) -> bool:
    ours = config.data_path.transport != "tcp" and config.mpi.cpu_operations != "mpi"
    return config.data_path.zero_copy and ours


def _start(config: Config, more: dict[str, Any]) -> Started:
    stacks = open_stack_source() if config.place.size > 1 else None
    try:
        return _started(config, more, stacks), stacks
    except BaseException:
        if stacks is not None:
            stacks.close()
        raise


def _started(config: Config, more: dict[str, Any], stacks: StackSource | None) -> _native.Runtime:
    from hvdtune.core import _native

    with threads_on(config.data_path.thread_core):
        runtime = _native.Runtime(_options(config, stacks) | more)
    if runtime.has_measured_costs():
        # Where nothing can be kept, as in a container's read-only home, every job measures.
        from hvdtune.core.config import environment, host_costs

        with contextlib.suppress(OSError):
            host_costs.store(environment.cache_folder(), runtime.host_costs())
    _tell_where_it_runs(config)
    return runtime


def _tell_where_it_runs(config: Config) -> None:
    """A line on stderr, as the core's, where such are wanted (HVDTUNE_LOG_LEVEL)."""
    from hvdtune.core.config import environment

    levels = environment.LOG_LEVELS
    if levels.index(config.log_level) <= levels.index("info"):
        rank, core = config.place.rank, config.data_path.thread_core
        place = f"rank {rank} of {config.place.size} on {config.place.host}"
        line = f"hvdtune[{rank}] info: {place}: {where_it_runs(core)}\n"
        with contextlib.suppress(OSError):  # stderr is closed
            os.write(2, line.encode())


def _start_met(config: Config) -> Started:
    """Start as a rank of a job whose rendezvous rank 0 holds, while it forms only."""
    from hvdtune.core.job import rendezvous

    return _start(config, {"launched": False, "generation": rendezvous.GENERATION})


def _start_by_mpi(config: Config, communicator: Any) -> Started:
    return _start(config, {"launched": False, "mpi": communicator})


def start_beside(config: Config) -> _native.Runtime:
    """Start a runtime besides the one of this process, which alone can read the main thread's
    stack.

    The configuration is that of a rank of a job whose rendezvous rank 0 holds while it forms only,
    or of the only rank of a job. It has no GPU operations: a process has one thread for NCCL.
    """
    config = _with_gpu_on_host(config)
    more = {"launched": False, "generation": BESIDE} if config.place.size > 1 else {}
    return _started(config, more, None)


def _with_gpu_operations(config: Config, can_have_gpu_tensors: bool) -> Config:
    """This with "host" in place of "auto" where it cannot become anything else."""
    from hvdtune.core.toolchain import nccl

    gpu = config.gpu
    if gpu.operations == "nccl":
        error = nccl.libraries_error(config.gpu.cuda_library, config.gpu.nccl_library)
        if error:
            raise UsageError(
                f"HVDTUNE_GPU_OPERATIONS=nccl needs CUDA's driver and NCCL: {error}. Install them "
                "(`hvdtune doctor` lists missing parts), or unset HVDTUNE_GPU_OPERATIONS"
            )
    if gpu.operations != "auto":
        return config
    if can_have_gpu_tensors:
        error = nccl.libraries_error(config.gpu.cuda_library, config.gpu.nccl_library)
        if not error:
            return config
        if gpu.cuda_library or gpu.nccl_library:
            warnings.warn(
                f"GPU tensors are copied through host memory: {error}. Point "
                "HVDTUNE_CUDA_LIBRARY and HVDTUNE_NCCL_LIBRARY to existing libraries, or unset "
                "them",
                stacklevel=4,  # of who calls init
            )
    return _with_gpu_on_host(config)


def _with_gpu_on_host(config: Config) -> Config:
    return dataclasses.replace(config, gpu=dataclasses.replace(config.gpu, operations="host"))


def _own_gpus(place: dict[str, Any]) -> str:
    """What "auto" means: "nccl" where each rank of this host has a GPU of its own, else "host"."""
    from hvdtune.core.config.environment import own_environ
    from hvdtune.core.toolchain import nccl

    found = nccl.report(*place["gpu_libraries"])
    # Where it is set, each process has been given its GPUs.
    has_own = own_environ().get("CUDA_VISIBLE_DEVICES") or len(found.get("gpus", ())) >= int(
        place["local_size"]
    )
    return "nccl" if has_own and not found["unusable"] else "host"


def _gpu_options(gpu: GpuConfig) -> dict[str, Any]:
    if gpu.operations == "host":
        return {}
    from hvdtune.core.toolchain.nccl import wheel_library

    return {
        "gpu_operations": True,
        "gpu_bits": gpu.bits,
        "cuda_library": gpu.cuda_library,
        "nccl_library": gpu.nccl_library or wheel_library(),
    }


def _options(config: Config, stacks: StackSource | None) -> dict[str, Any]:
    from hvdtune.core.config import environment, host_costs

    rendezvous, recording, timeouts = config.rendezvous, config.recording, config.timeouts
    options: dict[str, Any] = {
        "rank": config.place.rank,
        "size": config.place.size,
        "host": config.place.host,
        "bind_address": rendezvous.own_address,
        "shared_memory": config.data_path.transport != "tcp",
        "setting": dict(config.setting),
        "heartbeat_timeout_s": timeouts.heartbeat_s,
        "start_timeout_s": timeouts.start_s,
        "hang_warning_s": timeouts.hang_warning_s,
        "hang_abort_s": timeouts.hang_abort_s,
        "hang_about": timeouts.hang_about,
        "refuses_after_join": config.join_rule == "horovod",
        "failpoint": config.failpoint,
        "log_level": environment.LOG_LEVELS.index(config.log_level),
        "timeline_path": config.timeline_path,
        "timeline_max_bytes": recording.max_bytes,
        "timeline_stops": recording.when_full == "stop",
        "timeline_first_step": recording.steps.first,
        "timeline_end_step": recording.steps.end,
        "timeline_every_step": recording.steps.every,
        "version": __version__,
    }
    options |= _gpu_options(config.gpu)
    if stacks is not None:
        options["stack_signal"] = stacks.signal
        options["stack_fd"] = stacks.fd
    costs = config.data_path.host_costs
    options["only_costs_decide"] = costs is not None
    if costs is None and not config.data_path.measures_costs and config.place.size > 1:
        costs = host_costs.load(environment.cache_folder())
    if costs is not None:
        options["host_costs"] = dict(costs)
    if rendezvous.port:
        options["store_address"] = rendezvous.address
        options["store_port"] = rendezvous.port
        options["key"] = rendezvous.key
        options["generation"] = rendezvous.generation
    return options


PROCESS: Final = Process()
os.register_at_fork(after_in_child=PROCESS.forget_after_fork)
