"""Horovod's environment variables: one row each, with what it does here. Pure.

Horovod reads a text that is no number as 0, and `true` as false. Here such texts are refused; an
empty one counts as not set.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from hvdtune import __version__
from hvdtune.core.config import parse
from hvdtune.errors import UsageError

LOG_LEVELS: Final = ("debug", "info", "warning", "error")


@dataclass(frozen=True)
class HorovodVariable:
    """One variable. One of `sets`, `launcher`, `idle` and `refused` says what becomes of it.

    `parse` gives the value and raises ValueError for texts that cannot be. `sets` is the variable
    of hvdtune's that it stands for, unless it parses to None. `launcher` is what it asks of
    `hvdtune run`; with `alone`, a process that is started otherwise refuses a value that is not
    zero or off. `idle` says why there is nothing to do, `refused` why a value that is not zero or
    off cannot be.
    """

    name: str
    parse: Callable[[str], object]
    sets: str = ""
    launcher: str = ""
    idle: str = ""
    refused: str = ""
    alone: str = ""


def log_level(text: str) -> str:
    """One of LOG_LEVELS, also for Horovod's trace and fatal. Raises ValueError."""
    level = parse.one_of(("trace", *LOG_LEVELS, "fatal"), text)
    return {"trace": "debug", "fatal": "error"}.get(level, level)


def _no_warning(text: str) -> float | None:
    return 0.0 if parse.switch(text) else None


def _trace_path(text: str) -> str | None:
    return None if text == "DYNAMIC" else text


def _others(text: str) -> int:
    return parse.count(text) - 1


def _backend(text: str) -> str:
    # Horovod's other choices are what hvdtune does without MPI.
    choices = {"mpi": "mpi", "gloo": "hvdtune", "ccl": "hvdtune"}
    return choices[parse.one_of([*choices], text)]


def _port(text: str) -> int:
    return max(0, parse.integer(text))  # Horovod's -1 is no port


_ELASTIC: Final = "elastic training comes in a later version"
_OF_A_PLACE: Final = (
    "a rank's place is given by `hvdtune run` or mpirun; start the job with one of them, and not "
    "with Horovod's launcher or by hand"
)
_TUNER: Final = "the tuner works from the launcher: use `hvdtune run --autotune`"
_NO_NCCL: Final = "no collective of hvdtune uses NCCL"
_NO_GPU_KERNELS: Final = "no kernel of hvdtune runs on a GPU"
_SPARK: Final = "Spark comes in a later version"

_Row = HorovodVariable
_SLOT: Final = "the rank's place, as the launcher tells it"

RUN_TIME: Final = (
    _Row("HOROVOD_FUSION_THRESHOLD", parse.whole, sets="HVDTUNE_FUSION_THRESHOLD_BYTES"),
    _Row("HOROVOD_CYCLE_TIME", parse.amount, sets="HVDTUNE_CYCLE_TIME_MS"),
    _Row("HOROVOD_CACHE_CAPACITY", parse.whole, sets="HVDTUNE_CACHE_CAPACITY"),
    _Row("HOROVOD_HIERARCHICAL_ALLREDUCE", parse.switch, sets="HVDTUNE_HIERARCHICAL_ALLREDUCE"),
    _Row("HOROVOD_HIERARCHICAL_ALLGATHER", parse.switch, sets="HVDTUNE_HIERARCHICAL_ALLGATHER"),
    _Row("HOROVOD_TORUS_ALLREDUCE", parse.switch, sets="HVDTUNE_TORUS_ALLREDUCE"),
    _Row("HOROVOD_BATCH_D2D_MEMCOPIES", parse.switch, idle=_NO_GPU_KERNELS),
    _Row("HOROVOD_NUM_NCCL_STREAMS", parse.whole, idle=_NO_NCCL),
    _Row("HOROVOD_ENABLE_ASYNC_COMPLETION", parse.switch, idle=_NO_GPU_KERNELS),
    _Row("HOROVOD_ENABLE_XLA_OPS", parse.switch, idle="hvdtune has no operations for XLA"),
    _Row(
        "HOROVOD_DISABLE_GROUP_FUSION",
        parse.switch,
        idle="groups are fused as single tensors are; results do not depend on it",
    ),
    _Row("HOROVOD_DYNAMIC_PROCESS_SETS", parse.switch, idle="process sets always come and go"),
    _Row("HOROVOD_CONTROLLER", _backend, sets="HVDTUNE_CONTROLLER"),
    _Row("HOROVOD_CPU_OPERATIONS", _backend, sets="HVDTUNE_CPU_OPERATIONS"),
    _Row("HOROVOD_CCL_CACHE", parse.switch, idle="oneCCL is not used"),
    _Row(
        "HOROVOD_MPI_THREADS_DISABLE",
        parse.switch,
        idle="MPI is called from one thread unless it carries out the collectives; then it cannot "
        "be on",
    ),
    _Row("HOROVOD_ADASUM_MPI_CHUNK_SIZE", parse.whole, idle="Adasum never travels by MPI"),
    _Row("HOROVOD_THREAD_AFFINITY", parse.wholes, sets="HVDTUNE_THREAD_AFFINITY"),
    _Row("HOROVOD_AUTOTUNE", parse.switch, launcher="`--autotune`", alone=_TUNER),
    _Row("HOROVOD_AUTOTUNE_LOG", str, launcher="`--autotune-log-file`"),
    _Row("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", parse.whole, launcher="`--autotune-warmup-samples`"),
    _Row(
        "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", parse.count, launcher="`--autotune-steps-per-sample`"
    ),
    _Row(
        "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
        parse.count,
        launcher="`--autotune-bayes-opt-max-samples`",
    ),
    _Row(
        "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
        parse.share,
        launcher="`--autotune-gaussian-process-noise`",
    ),
    _Row(
        "HOROVOD_TIMELINE",
        _trace_path,
        launcher="`--timeline-filename` with `--timeline-format horovod`; `DYNAMIC` asks for "
        "nothing",
    ),
    _Row("HOROVOD_TIMELINE_MARK_CYCLES", parse.switch, launcher="`--timeline-mark-cycles`"),
    _Row("HOROVOD_DISABLE_NVTX_RANGES", parse.switch, idle="hvdtune makes no NVTX ranges"),
    _Row("HOROVOD_STALL_CHECK_DISABLE", _no_warning, sets="HVDTUNE_HANG_WARNING_S"),
    _Row("HOROVOD_STALL_CHECK_TIME_SECONDS", parse.amount, sets="HVDTUNE_HANG_WARNING_S"),
    _Row("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", parse.amount, sets="HVDTUNE_HANG_ABORT_S"),
    _Row("HOROVOD_LOG_LEVEL", log_level, sets="HVDTUNE_LOG_LEVEL"),
    _Row("HOROVOD_LOG_HIDE_TIME", parse.switch, idle="hvdtune's messages carry no time"),
    _Row("HOROVOD_ELASTIC", parse.switch, refused=f"{_ELASTIC}; this is hvdtune {__version__}"),
    _Row("HOROVOD_START_TIMEOUT", parse.positive, sets="HVDTUNE_START_TIMEOUT_S"),
    _Row("HOROVOD_GLOO_TIMEOUT_SECONDS", parse.positive, sets="HVDTUNE_START_TIMEOUT_S"),
    _Row("HOROVOD_GLOO_IFACE", str, sets="HVDTUNE_INTERFACE"),
    _Row("HOROVOD_GLOO_RENDEZVOUS_ADDR", str, launcher="it has its own", alone=_OF_A_PLACE),
    _Row("HOROVOD_GLOO_RENDEZVOUS_PORT", _port, launcher="it has its own", alone=_OF_A_PLACE),
    _Row("HOROVOD_HOSTNAME", str, launcher=_SLOT),
    _Row("HOROVOD_RANK", parse.whole, launcher=_SLOT, alone=_OF_A_PLACE),
    _Row("HOROVOD_SIZE", _others, launcher=_SLOT, alone=_OF_A_PLACE),
    _Row("HOROVOD_LOCAL_RANK", parse.whole, launcher=_SLOT, alone=_OF_A_PLACE),
    _Row("HOROVOD_LOCAL_SIZE", _others, launcher=_SLOT, alone=_OF_A_PLACE),
    _Row("HOROVOD_CROSS_RANK", parse.whole, launcher=_SLOT, alone=_OF_A_PLACE),
    _Row("HOROVOD_CROSS_SIZE", _others, launcher=_SLOT, alone=_OF_A_PLACE),
    _Row("HOROVOD_ELASTIC_TIMEOUT", parse.positive, idle=_ELASTIC),
    _Row("HOROVOD_SPARK_START_TIMEOUT", parse.positive, idle=_SPARK),
    _Row("HOROVOD_SPARK_PYTHONPATH", str, idle=_SPARK),
    _Row("HOROVOD_SPARK_WORK_DIR", str, idle=_SPARK),
    _Row("HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX", parse.switch, idle=_SPARK),
    _Row("_HOROVOD_SECRET_KEY", str, idle="every job makes a key of its own"),
    _Row("DDL_OPTIONS", str, idle="IBM's DDL is not used"),
)

# Horovod's installation asks these; HOROVOD_CPU_OPERATIONS is above.
BUILD_TIME: Final = (
    *(
        f"HOROVOD_{wish}_{part}"
        for wish in ("WITH", "WITHOUT")
        for part in ("TENSORFLOW", "PYTORCH", "MXNET", "MPI", "GLOO", "NVTX")
    ),
    *(f"HOROVOD_{library}_HOME" for library in ("CUDA", "ROCM", "NCCL")),
    *(f"HOROVOD_NCCL_{part}" for part in ("INCLUDE", "LIB", "LINK")),
    *(
        f"HOROVOD_GPU_{operation}"
        for operation in (
            "OPERATIONS", "ALLREDUCE", "ALLGATHER", "BROADCAST", "ALLTOALL", "REDUCESCATTER",
        )
    ),
    "HOROVOD_GPU",
    "HOROVOD_ALLOW_MIXED_GPU_IMPL",
    "HOROVOD_NVTX_INCLUDE",
    "HOROVOD_BUILD_ARCH_FLAGS",
    "HOROVOD_BUILD_CUDA_CC_LIST",
    "HOROVOD_CMAKE",
    "HOROVOD_DEBUG",
    "HOROVOD_SKIP_COMPILE",
    "HOROVOD_LOCAL_VERSION",
)  # fmt: skip

# What only the launcher of a job says to its ranks.
PLACE: Final = frozenset(row.name for row in RUN_TIME if row.alone == _OF_A_PLACE)


@functools.cache
def standing_for(variable: str) -> tuple[HorovodVariable, ...]:
    """Horovod's variables for one of hvdtune's; the first that is set counts."""
    return tuple(row for row in RUN_TIME if row.sets == variable)


def check(env: Mapping[str, str]) -> None:
    """Raises UsageError for the first variable whose value cannot be."""
    for row in RUN_TIME:
        if row.refused and value_of(env, row):
            raise UsageError(f"{row.name}={env[row.name]}: {row.refused}")
        value_of(env, row)


def check_alone(env: Mapping[str, str], *, under_mpi: bool) -> None:
    """As `check`, for a process that `hvdtune run` has not started."""
    for row in RUN_TIME:
        if row.alone and not (under_mpi and row.name in PLACE) and value_of(env, row):
            raise UsageError(f"{row.name}={env[row.name]}: {row.alone}")


def launcher_values(env: Mapping[str, str]) -> dict[str, object]:
    """What is asked of the launcher, by variable; only those that are set.

    Raises UsageError for a value that cannot be.
    """
    values = {
        row.name: value_of(env, row)
        for row in RUN_TIME
        if row.launcher and row.name not in PLACE and env.get(row.name)
    }
    return {name: value for name, value in values.items() if value is not None}


def value_of(env: Mapping[str, str], row: HorovodVariable) -> object:
    """None where the variable is not set. Raises UsageError for a value that cannot be."""
    text = env.get(row.name, "")
    if not text:
        return None
    try:
        return row.parse(text)
    except ValueError as error:
        raise UsageError(f"{row.name}={text} {error}") from None
