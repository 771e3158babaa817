"""This process's place in a job: init, shutdown, ranks and sizes.

The core itself has no process-wide state; Horovod's functions do, and this module is where the one
runtime of a process lives.
"""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING, Any, Final

from hvdtune import __version__
from hvdtune.core.config import Config
from hvdtune.core.knobs import Setting, Value, validate
from hvdtune.errors import UsageError

if TYPE_CHECKING:
    from hvdtune.core import _native

LOG_LEVELS: Final = ("debug", "info", "warning", "error")

_lock = threading.Lock()
_runtime: _native.Runtime | None = None  # guarded by _lock for writing
_place: dict[str, Any] = {}
_left_job = False  # a launcher forms a job once


def init(comm: object = None, process_sets: object = None, config: Config | None = None) -> None:
    """Joins the job that the environment (or `config`) describes; without one, a job of one rank.

    Returns when every rank has called it. Calling it again before `shutdown` does nothing.

    Raises:
        RendezvousError: not every rank came within the start timeout.
        UsageError: the environment is not one that `hvdtune run` makes.
    """
    if comm is not None or process_sets is not None:
        raise UsageError("hvd.init(comm=..., process_sets=...) is not supported in this version")
    global _runtime, _place
    with _lock:
        if _runtime is not None:
            return
        config = config or Config.from_environ()
        if _left_job and config.rendezvous_port:
            raise UsageError(
                "hvd.init() after hvd.shutdown() is not supported in this version: a job is formed "
                "once"
            )
        from hvdtune.core import _native

        runtime = _native.Runtime(_options(config))
        _place = runtime.topology()
        _runtime = runtime
    atexit.register(shutdown)


def _options(config: Config) -> dict[str, Any]:
    if config.log_level not in LOG_LEVELS:
        raise UsageError(f"HVDTUNE_LOG_LEVEL={config.log_level} is none of {', '.join(LOG_LEVELS)}")
    options: dict[str, Any] = {
        "rank": config.rank,
        "size": config.size,
        "host": config.host,
        "shared_memory": config.transport != "tcp",
        "setting": dict(config.setting),
        "heartbeat_timeout_s": config.heartbeat_timeout_s,
        "start_timeout_s": config.start_timeout_s,
        "log_level": LOG_LEVELS.index(config.log_level),
        "timeline_path": config.timeline,
        "timeline_max_bytes": config.timeline_max_bytes,
        "version": __version__,
    }
    if config.rendezvous_port:
        options["store_address"] = config.rendezvous_address
        options["store_port"] = config.rendezvous_port
        options["key"] = config.key
    return options


def shutdown() -> None:
    """Leaves the job; operations still pending fail on every rank. Does nothing before `init`."""
    global _runtime, _place, _left_job
    with _lock:
        runtime, _runtime, _place = _runtime, None, {}
        _left_job = _left_job or runtime is not None
    if runtime is not None:
        runtime.shutdown()
    atexit.unregister(shutdown)


def is_initialized() -> bool:
    """Whether `init` has been called and `shutdown` has not."""
    return _runtime is not None


def native() -> _native.Runtime:
    """The runtime of this process.

    Raises:
        UsageError: `init` has not been called.
    """
    runtime = _runtime
    if runtime is None:
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
