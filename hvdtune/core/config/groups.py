"""The configuration of a process in groups, each read from its own variables."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hvdtune import parse
from hvdtune.core.config import host_costs
from hvdtune.core.config.interfaces import address_of_interface
from hvdtune.core.config.key_source import launched_key
from hvdtune.core.config.own_variables import read_choice, read_variable
from hvdtune.core.config.thread_cores import core_of_rank
from hvdtune.errors import UsageError

if TYPE_CHECKING:
    from typing_extensions import Self

    from hvdtune.core.config.meeting_point import MeetingPoint

Environ = Mapping[str, str]


@dataclass(frozen=True)
class RankPlace:
    """This rank's place in its job.

    Attributes:
        rank, size: its number and the number of ranks.
        local_rank, local_size: the same among the ranks of its host.
        cross_rank, cross_size: the same among the hosts.
        host: name of its host. Ranks with the same name share memory.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1
    host: str = "localhost"

    @classmethod
    def read(cls, env: Environ) -> Self:
        """Read the variables that `hvdtune run` sets. Raises UsageError."""
        rank = read_variable(env, "HVDTUNE_RANK", parse.whole, 0)
        size = read_variable(env, "HVDTUNE_SIZE", parse.whole, 1)
        if rank and not env.get("HVDTUNE_SIZE"):
            raise UsageError(
                f"HVDTUNE_RANK={rank} is set, but HVDTUNE_SIZE is not. `hvdtune run` sets both for "
                "its ranks; unset it elsewhere"
            )
        if not 0 <= rank < size:
            raise UsageError(
                f"HVDTUNE_RANK={rank} is not less than HVDTUNE_SIZE={size}. `hvdtune run` sets "
                "both for its ranks; unset them elsewhere"
            )
        return cls(
            rank,
            size,
            read_variable(env, "HVDTUNE_LOCAL_RANK", parse.whole, 0),
            read_variable(env, "HVDTUNE_LOCAL_SIZE", parse.whole, 1),
            read_variable(env, "HVDTUNE_CROSS_RANK", parse.whole, 0),
            read_variable(env, "HVDTUNE_CROSS_SIZE", parse.whole, 1),
            (env.get("HVDTUNE_HOST") or socket.gethostname()).lower(),
        )


@dataclass(frozen=True)
class RendezvousConfig:
    """The place where the ranks of the job find each other.

    Attributes:
        address: host of the rendezvous.
        port: its port, 0 if `hvdtune run` did not start this process.
        key: key of the job.
        own_address: address on which this process listens, "" for loopback.
        generation: number of jobs that this process was in before.
        worker: number of this process in an elastic job, whose launcher is at the rendezvous and
            assigns rank and size. -1 in other jobs.
        meeting: meeting point of a job that another launcher has started, else None. Without it
            and without a port this process is alone and opens no sockets.
    """

    address: str = ""
    port: int = 0
    key: bytes = field(default=b"", repr=False)
    own_address: str = ""
    generation: int = 0
    worker: int = -1
    meeting: MeetingPoint | None = None

    @classmethod
    def read(cls, env: Environ, size: int) -> Self:
        """Read the variables of a job of `size` ranks. Raises UsageError."""
        address, port = read_variable(env, "HVDTUNE_RENDEZVOUS", parse.endpoint, ("", 0))
        if size > 1 and port == 0:
            raise UsageError(
                f"HVDTUNE_SIZE={size} is set, but HVDTUNE_RENDEZVOUS is not. Start the ranks with "
                "`hvdtune run`"
            )
        return cls(
            address,
            port,
            own_address=_own_address(env),
            key=launched_key(env) if port else b"",
            worker=read_variable(env, "HVDTUNE_WORKER", parse.whole, -1),
        )


def _own_address(env: Environ) -> str:
    for variable in ("HVDTUNE_INTERFACE", "HOROVOD_GLOO_IFACE"):
        if env.get(variable):
            if env.get("HVDTUNE_ADDRESS"):
                raise UsageError(f"Give HVDTUNE_ADDRESS or {variable}, not both")
            return read_variable(env, variable, address_of_interface, "")
    return read_variable(env, "HVDTUNE_ADDRESS", parse.address, "")


@dataclass(frozen=True)
class RecordingConfig:
    """The files that the ranks record.

    Attributes:
        timeline: file of each rank's timeline, `%r` for the rank, "" for none.
        max_bytes: limit of each file, 0 for none.
        when_full: at the limit "ring" drops the oldest records, "stop" ends the recording.
        steps: steps to record.
        horovod_timeline: file in Horovod's format that rank 0 writes itself, without a launcher.
        horovod_cycles: whether that file shows the cycles.
    """

    timeline: str = ""
    max_bytes: int = 0
    when_full: str = "ring"
    steps: parse.StepWindow = parse.ALL_STEPS
    horovod_timeline: str = ""
    horovod_cycles: bool = False

    @classmethod
    def read(cls, env: Environ) -> Self:
        """Read the variables of the timeline. Raises UsageError."""
        max_mb = read_variable(env, "HVDTUNE_TIMELINE_MAX_MB", parse.amount, 0.0)
        return cls(
            env.get("HVDTUNE_TIMELINE", ""),
            int(max_mb * 2**20),
            read_choice(env, "HVDTUNE_TIMELINE_WHEN_FULL", ("ring", "stop")),
            read_variable(env, "HVDTUNE_TIMELINE_STEPS", parse.step_window, parse.ALL_STEPS),
        )


@dataclass(frozen=True)
class Timeouts:
    """Timeouts of a job, in seconds.

    Attributes:
        start_s: time for all ranks to find each other.
        heartbeat_s: silence after which a rank is suspected.
        hang_warning_s: time after which pending operations are reported, 0 for never. Rank 0's
            value is used.
        hang_abort_s: time after which pending operations fail, 0 for never. Rank 0's value is used.
        hang_about: text in front of a report.
    """

    start_s: float = 30.0
    heartbeat_s: float = 2.0
    hang_warning_s: float = 5.0
    hang_abort_s: float = 600.0
    hang_about: str = ""

    @classmethod
    def read(cls, env: Environ) -> Self:
        """Read the variables of the timeouts. Raises UsageError."""
        return cls(
            read_variable(env, "HVDTUNE_START_TIMEOUT_S", parse.positive, cls.start_s),
            read_variable(env, "HVDTUNE_HEARTBEAT_TIMEOUT_S", parse.positive, cls.heartbeat_s),
            read_variable(env, "HVDTUNE_HANG_WARNING_S", parse.amount, cls.hang_warning_s),
            read_variable(env, "HVDTUNE_HANG_ABORT_S", parse.amount, cls.hang_abort_s),
        )


@dataclass(frozen=True)
class DataPath:
    """The transport of data between ranks. It does not change results.

    Attributes:
        transport: "tcp" disables shared memory.
        zero_copy: allows gradients in memory that the ranks of a host share.
        host_costs: costs of moving bytes on this host, None for the measured ones.
        measures_costs: measure them again.
        thread_core: core of the runtime's threads, -1 for any.
    """

    transport: str = "auto"
    zero_copy: bool = True
    host_costs: Mapping[str, float] | None = None
    measures_costs: bool = False
    thread_core: int = -1

    @classmethod
    def read(cls, env: Environ, place: RankPlace) -> Self:
        """Read the variables for a rank at `place`. Raises UsageError."""
        return cls(
            read_choice(env, "HVDTUNE_TRANSPORT", ("auto", "tcp")),
            read_variable(env, "HVDTUNE_ZERO_COPY", parse.switch, True),
            read_variable(env, "HVDTUNE_HOST_COSTS", host_costs.parse, None),
            env.get("HVDTUNE_HOST_COSTS") == "measure",
            core_of_rank(env, place.local_rank, place.local_size),
        )


@dataclass(frozen=True)
class GpuConfig:
    """Collectives on GPU tensors.

    Attributes:
        operations: "nccl" uses NCCL, "host" copies through host memory, "auto" uses NCCL if the
            libraries and one GPU per rank of the host are found.
        bits: "exact" makes sums equal to the CPU's, bit by bit.
        cuda_library, nccl_library: paths of the libraries, "" to look for them.
    """

    operations: str = "host"
    bits: str = "nccl"
    cuda_library: str = ""
    nccl_library: str = ""

    @classmethod
    def read(cls, env: Environ) -> Self:
        """Read the variables for GPUs. Raises UsageError."""
        return cls(
            read_choice(env, "HVDTUNE_GPU_OPERATIONS", ("auto", "nccl", "host")),
            read_choice(env, "HVDTUNE_GPU_BITS", ("nccl", "exact")),
            env.get("HVDTUNE_CUDA_LIBRARY", ""),
            env.get("HVDTUNE_NCCL_LIBRARY", ""),
        )


@dataclass(frozen=True)
class MpiLauncher:
    """The MPI launcher that started this process.

    Attributes:
        flavour: "openmpi", "mpich" (and all that share its ABI), or "" for one of these.
        size: number of processes, 0 if the launcher does not set it.
        rank: number of this process.
    """

    flavour: str
    size: int
    rank: int = 0


@dataclass(frozen=True)
class MpiConfig:
    """The use of MPI.

    Attributes:
        controller: "mpi" forms the job by MPI, "hvdtune" without it, "auto" by the launcher.
        cpu_operations: "mpi" carries out collectives by MPI.
        launcher: the MPI launcher that started this process, if any.
    """

    controller: str = "auto"
    cpu_operations: str = "hvdtune"
    launcher: MpiLauncher | None = None

    @classmethod
    def read(cls, env: Environ) -> Self:
        """Read the variables for MPI. Raises UsageError."""
        operations = read_choice(env, "HVDTUNE_CPU_OPERATIONS", ("hvdtune", "mpi"))
        no_threads = read_variable(env, "HOROVOD_MPI_THREADS_DISABLE", parse.switch, False)
        if operations == "mpi" and no_threads:
            raise UsageError(
                "HOROVOD_MPI_THREADS_DISABLE is set, but HVDTUNE_CPU_OPERATIONS=mpi calls MPI from "
                "a thread of its own. Unset one of them"
            )
        return cls(read_choice(env, "HVDTUNE_CONTROLLER", ("auto", "mpi", "hvdtune")), operations)
