"""Horovod's vocabulary: a row for each thing that it names, with what stands for it here. Pure.

A thing can have an environment variable, an option of horovodrun, a key of its configuration file
and a column of autotune's log. Everything that reads or writes one of these names reads this table.
A knob whose row has a `help` text needs nothing else in Python: its option is made of the row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from hvdtune import __version__, parse

MIB: Final = 1 << 20
LOG_LEVELS: Final = ("debug", "info", "warning", "error")


class Sets(NamedTuple):
    """The option's value goes to the ranks as this variable."""

    variable: str


class Idle(NamedTuple):
    """The option is accepted; `why` there is nothing to do. `said`: silence would mislead."""

    why: str
    said: bool = False


class Refused(NamedTuple):
    """What the option asks for, as the beginning of a sentence, comes later or never."""

    what: str

    def sentence(self, option: str) -> str:
        return f"{option}: {self.what}; this is hvdtune {__version__}"


Effect = Sets | Idle | Refused


class Limits(NamedTuple):
    """What Horovod takes for a knob, ends included, and the default of Horovod 0.28."""

    low: float
    high: float
    default: int | float | bool
    unit: str
    doc: str


# Compared by identity; every rank makes this class, which takes time for each of its methods.
@dataclass(frozen=True, kw_only=True, eq=False)
class Term:
    """One row. A name is "" where Horovod has none of that kind.

    Names: `variable` with the parser of its value, which raises ValueError for texts that cannot
    be; `option`, the field of the options of `hvdtune run`; `key` in the configuration file;
    `column` in autotune's log.

    One of `sets`, `launcher`, `idle` and `refused` says what becomes of the variable. `sets` is
    hvdtune's variable that it stands for, unless it parses to None. `launcher` is what it asks of
    `hvdtune run`; with `alone`, a process that is started otherwise refuses a value that is not
    zero or off. `idle` says why there is nothing to do, `refused` why a value that is not zero or
    off cannot be. `effect` says what becomes of the option where that is more than its name says.

    Knobs: `knob` is the name in a setting, `missing` where Horovod has no counterpart, and why;
    `mebibytes` that option, key and column count in MiB; `routes` the collective whose way over
    the hosts the knob chooses; `switches` the knob that Horovod sets to 0 to switch this one off;
    `zero_note` what to know about a value of 0 in Horovod.
    """

    variable: str = ""
    parse: Callable[[str], object] = str
    option: str = ""
    key: str = ""
    column: str = ""
    sets: str = ""
    launcher: str = ""
    idle: str = ""
    refused: str = ""
    alone: str = ""
    effect: Effect | None = None
    knob: str = ""
    limits: Limits | None = None
    help: str = ""
    missing: str = ""
    mebibytes: bool = False
    routes: Literal["", "allreduce", "allgather"] = ""
    switches: str = ""
    zero_note: str = ""

    def to_knob(self, value: float) -> int | float | bool:
        """The knob's value for a number of the option, the key or the column."""
        default = self.limits.default if self.limits else 0
        if isinstance(default, bool):
            return value != 0
        value = value * MIB if self.mebibytes else value
        return round(value) if isinstance(default, int) and math.isfinite(value) else value

    def from_knob(self, value: Any) -> Any:
        """The number that option, key and column have for the knob's value."""
        return value / MIB if self.mebibytes else value


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


def _gpu_operations(text: str) -> str:
    # Horovod's installation reads it: whatever is left of that must not keep a job from starting.
    return "host" if text.lower() in ("mpi", "gloo", "ccl", "ddl") else "auto"


def _port(text: str) -> int:
    return max(0, parse.integer(text))  # Horovod's -1 is no port


_ELASTIC: Final = "an elastic job is started by `hvdtune run --min-np`, not by Horovod's launcher"
_OF_A_PLACE: Final = (
    "hvdtune does not use it for the rendezvous; start the ranks with `hvdtune run`, mpirun, srun, "
    "torchrun or another launcher of docs/schedulers.md"
)
_TOLD: Final = "the rank's place, set by the launcher"
_TUNER: Final = "tuning needs the launcher: use `hvdtune run --autotune`"
_NO_NCCL: Final = "NCCL is loaded during init, not compiled in"
_ONE_STREAM: Final = "all of a rank's communicators of NCCL share one stream"
_NO_DDL: Final = "IBM's DDL is not used"
_NO_CCL: Final = "oneCCL is not used"
_ONE_KERNEL: Final = "one kernel packs a bucket on a GPU"
_STREAMS_WAIT: Final = "GPU operations already block a stream, not the host"
_NO_TIMES: Final = "hvdtune's messages have no timestamps"
_SPARK: Final = "Spark is not supported yet"
_SIZED: Final = Idle("hvdtune chooses the number of measurements from the noise", said=True)
_LIBRARY_CHOOSES: Final = "Horovod, whose library (gloo, MPI, NCCL) decides"


def _knob(variable: str, knob: str, limits: Limits, **more: Any) -> Term:
    kinds: dict[type, Callable[[str], object]] = {bool: parse.switch, int: parse.whole}
    return Term(
        variable=variable,
        parse=kinds.get(type(limits.default), parse.amount),
        knob=knob,
        limits=limits,
        **more,
    )


def _switch(knob: str, routes: str, doc: str, help: str = "") -> Term:
    return _knob(
        f"HOROVOD_{knob.upper()}",
        knob,
        Limits(0, 1, False, "", doc),
        option=knob,
        key=f"params.{knob}",
        column=knob,
        sets=f"HVDTUNE_{knob.upper()}",
        routes=routes,
        help=help,
    )


# Knobs that hvdtune has, those with a column in the order of Horovod's log.
KNOBS: Final = (
    _switch(
        "hierarchical_allreduce",
        "allreduce",
        "Reduce within each host first (only in builds with NCCL).",
    ),
    _switch(
        "hierarchical_allgather",
        "allgather",
        "Gather within each host first (only in builds with MPI).",
        help="Gather within each host, then across hosts.",
    ),
    _switch(
        "torus_allreduce",
        "allreduce",
        "Reduce within each host, then across hosts (only in builds with NCCL).",
        help="Reduce within each host, then between ranks of the same local_rank.",
    ),
    Term(
        knob="cache_enabled",
        column="cache_enabled",
        limits=Limits(0, 1, True, "", "Cache responses for tensors that were announced before."),
        switches="cache_capacity",
    ),
    _knob(
        "HOROVOD_CYCLE_TIME",
        "cycle_time_ms",
        Limits(0, 100, 1.0, "ms", "Time for which tensors are collected."),
        option="cycle_time_ms",
        key="params.cycle_time_ms",
        column="cycle_time_ms",
        sets="HVDTUNE_CYCLE_TIME_MS",
        zero_note="0: hvdtune is driven by events; Horovod's thread polls without a pause.",
    ),
    _knob(
        "HOROVOD_FUSION_THRESHOLD",
        "fusion_threshold_bytes",
        Limits(0, 512 * MIB, 128 * MIB, "bytes", "Bucket size."),
        option="fusion_threshold_mb",
        key="params.fusion_threshold_mb",
        column="tensor_fusion_threshold",
        sets="HVDTUNE_FUSION_THRESHOLD_BYTES",
        mebibytes=True,
    ),
    _knob(
        "HOROVOD_CACHE_CAPACITY",
        "cache_capacity",
        Limits(0, 65536, 1024, "entries", "Number of tensors in the response cache."),
        option="cache_capacity",
        key="params.cache_capacity",
        sets="HVDTUNE_CACHE_CAPACITY",
    ),
    Term(knob="chunk_bytes", missing="Horovod, which does not cut buckets into chunks"),
    Term(knob="allreduce_algorithm", missing=_LIBRARY_CHOOSES),
    Term(knob="channels", missing=_LIBRARY_CHOOSES),
)

# Knobs that only Horovod has.
FOREIGN_KNOBS: Final = (
    _knob(
        "HOROVOD_NUM_NCCL_STREAMS",
        "num_nccl_streams",
        Limits(1, 8, 1, "streams", "NCCL streams."),
        option="num_nccl_streams",
        key="library_options.num_nccl_streams",
        effect=Idle(_ONE_STREAM, said=True),
        idle=_ONE_STREAM,
    ),
    _knob(
        "HOROVOD_BATCH_D2D_MEMCOPIES",
        "batch_d2d_memcopies",
        Limits(0, 1, True, "", "Copy a bucket with one kernel."),
        idle=_ONE_KERNEL,
    ),
    _knob(
        "HOROVOD_DISABLE_GROUP_FUSION",
        "disable_group_fusion",
        Limits(0, 1, False, "", "Fuse groups of tensors separately."),
        idle="groups are fused like single tensors; results do not depend on it",
    ),
)


def _sets(variable: str, kind: Callable[[str], object], sets: str, **more: Any) -> Term:
    return Term(variable=variable, parse=kind, sets=sets, **more)


def _also_option(
    variable: str, kind: Callable[[str], object], sets: str, option: str, key: str
) -> Term:
    return _sets(variable, kind, sets, option=option, key=key, effect=Sets(sets))


def _idle(variable: str, kind: Callable[[str], object], why: str, **more: Any) -> Term:
    return Term(variable=variable, parse=kind, idle=why, **more)


def _asked(
    variable: str, kind: Callable[[str], object], option: str, key: str, **more: Any
) -> Term:
    more.setdefault("launcher", f"`--{option.replace('_', '-')}`")
    return Term(variable=variable, parse=kind, option=option, key=key, **more)


def _place(variable: str, kind: Callable[[str], object], whose: str = "") -> Term:
    return Term(variable=variable, parse=kind, launcher=whose or _TOLD, alone=_OF_A_PLACE)


_OTHERS: Final = (
    _idle("HOROVOD_ENABLE_ASYNC_COMPLETION", parse.switch, _STREAMS_WAIT),
    _idle("HOROVOD_ENABLE_XLA_OPS", parse.switch, "hvdtune has no operations for XLA"),
    _idle("HOROVOD_DYNAMIC_PROCESS_SETS", parse.switch, "process sets are always dynamic"),
    _sets("HOROVOD_CONTROLLER", _backend, "HVDTUNE_CONTROLLER", option="controller",
          key="controller"),
    _sets("HOROVOD_CPU_OPERATIONS", _backend, "HVDTUNE_CPU_OPERATIONS"),
    _sets("HOROVOD_GPU_OPERATIONS", _gpu_operations, "HVDTUNE_GPU_OPERATIONS"),
    _idle("HOROVOD_CCL_CACHE", parse.switch, _NO_CCL),
    _idle(
        "HOROVOD_MPI_THREADS_DISABLE",
        parse.switch,
        "MPI is called from one thread; refused if MPI carries out the collectives",
        option="mpi_threads_disable",
        key="library_options.mpi_threads_disable",
        effect=Sets("HOROVOD_MPI_THREADS_DISABLE"),
    ),
    _idle("HOROVOD_ADASUM_MPI_CHUNK_SIZE", parse.whole, "Adasum does not use MPI"),
    _also_option("HOROVOD_THREAD_AFFINITY", parse.wholes, "HVDTUNE_THREAD_AFFINITY",
                 "thread_affinity", "library_options.thread_affinity"),
    _asked("HOROVOD_AUTOTUNE", parse.switch, "autotune", "autotune.enabled", alone=_TUNER),
    _asked("HOROVOD_AUTOTUNE_LOG", str, "autotune_log_file", "autotune.log_file"),
    _asked("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", parse.whole, "autotune_warmup_samples",
           "autotune.warmup_samples", effect=_SIZED),
    _asked("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", parse.count, "autotune_steps_per_sample",
           "autotune.steps_per_sample", effect=_SIZED),
    _asked("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", parse.count,
           "autotune_bayes_opt_max_samples", "autotune.bayes_opt_max_samples"),
    _asked("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", parse.share,
           "autotune_gaussian_process_noise", "autotune.gaussian_process_noise", effect=_SIZED),
    _asked(
        "HOROVOD_TIMELINE",
        _trace_path,
        "timeline_filename",
        "timeline.filename",
        launcher="`--timeline-filename` with `--timeline-format horovod`; `DYNAMIC` has no effect",
    ),
    _asked("HOROVOD_TIMELINE_MARK_CYCLES", parse.switch, "timeline_mark_cycles",
           "timeline.mark_cycles"),
    _idle("HOROVOD_DISABLE_NVTX_RANGES", parse.switch, "hvdtune does not create NVTX ranges"),
    _sets("HOROVOD_STALL_CHECK_DISABLE", _no_warning, "HVDTUNE_HANG_WARNING_S",
          option="stall_check", key="stall_check.enabled"),
    _also_option("HOROVOD_STALL_CHECK_TIME_SECONDS", parse.amount, "HVDTUNE_HANG_WARNING_S",
                 "stall_check_warning_time_seconds", "stall_check.warning_time_seconds"),
    _also_option("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", parse.amount, "HVDTUNE_HANG_ABORT_S",
                 "stall_check_shutdown_time_seconds", "stall_check.shutdown_time_seconds"),
    _also_option("HOROVOD_LOG_LEVEL", log_level, "HVDTUNE_LOG_LEVEL", "log_level",
                 "logging.level"),
    _idle("HOROVOD_LOG_HIDE_TIME", parse.switch, _NO_TIMES, option="log_hide_timestamp",
          effect=Idle(_NO_TIMES)),
    Term(option="log_timestamp", key="logging.with_timestamp", effect=Idle(_NO_TIMES)),
    Term(variable="HOROVOD_ELASTIC", parse=parse.switch,
         refused=f"{_ELASTIC}; this is hvdtune {__version__}"),
    _sets("HOROVOD_START_TIMEOUT", parse.positive, "HVDTUNE_START_TIMEOUT_S"),
    _also_option("HOROVOD_GLOO_TIMEOUT_SECONDS", parse.positive, "HVDTUNE_START_TIMEOUT_S",
                 "gloo_timeout_seconds", "library_options.gloo_timeout_seconds"),
    _sets("HOROVOD_GLOO_IFACE", str, "HVDTUNE_INTERFACE"),
    _place("HOROVOD_GLOO_RENDEZVOUS_ADDR", str, "hvdtune uses its own rendezvous"),
    _place("HOROVOD_GLOO_RENDEZVOUS_PORT", _port, "hvdtune uses its own rendezvous"),
    Term(variable="HOROVOD_HOSTNAME", launcher=_TOLD),
    *(
        _place(f"HOROVOD_{level}{name}", kind)
        for level in ("", "LOCAL_", "CROSS_")
        for name, kind in (("RANK", parse.whole), ("SIZE", _others))
    ),
    _asked("HOROVOD_ELASTIC_TIMEOUT", parse.positive, "elastic_timeout", ""),
    _idle("HOROVOD_SPARK_START_TIMEOUT", parse.positive, _SPARK),
    _idle("HOROVOD_SPARK_PYTHONPATH", str, _SPARK),
    _idle("HOROVOD_SPARK_WORK_DIR", str, _SPARK),
    _idle("HOROVOD_SPARK_USE_LOCAL_RANK_GPU_INDEX", parse.switch, _SPARK),
    _idle("_HOROVOD_SECRET_KEY", str, "every job creates its own key"),
    _idle("DDL_OPTIONS", str, _NO_DDL),
    Term(option="disable_cache", effect=Idle("host checks are not cached")),
    Term(option="jsrun", effect=Refused("LSF's jsrun is not supported; use --mpi on LSF")),
)  # fmt: skip

TERMS: Final = (*KNOBS, *FOREIGN_KNOBS, *_OTHERS)
VARIABLES: Final = tuple(term for term in TERMS if term.variable)
# The columns of autotune's log before its score, in their order.
LOG_COLUMNS: Final = {term.column: term for term in KNOBS if term.column}
# The knobs that choose how an allreduce goes over the hosts.
ALLREDUCE_ROUTES: Final = tuple(term.knob for term in KNOBS if term.routes == "allreduce")
# What only the launcher of a job says to its ranks.
PLACE: Final[frozenset[str]] = frozenset(
    term.variable for term in VARIABLES if term.alone == _OF_A_PLACE or term.launcher == _TOLD
)
# What Horovod's variables ask of the launcher, as options.
LAUNCHER_OPTIONS: Final = {t.variable: t.option for t in VARIABLES if t.launcher and t.option}
# The libraries that Horovod can be built with and hvdtune never is, and why.
ABSENT_LIBRARIES: Final = {"NCCL": _NO_NCCL, "DDL": _NO_DDL, "CCL": _NO_CCL}
