"""The environment of a process, read once. Nothing else in hvdtune reads or copies `os.environ`."""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
import math
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from hvdtune.core.knobs import Knob, Value, load_knobs, parse_assignments
from hvdtune.errors import UsageError

KEY_BYTES: Final = 32
TRANSPORTS: Final = ("auto", "tcp")
# Who brings the ranks together: whichever started them, MPI, or hvdtune's own launcher alone.
CONTROLLERS: Final = ("auto", "mpi", "hvdtune")
CPU_OPERATIONS: Final = ("hvdtune", "mpi")
# Horovod's other choices are what hvdtune does without MPI.
_HOROVOD_CHOICES: Final = {"mpi": "mpi", "gloo": "hvdtune", "ccl": "hvdtune"}
# The knobs for which Horovod has a variable of its own; the units are the same.
HOROVOD_KNOBS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "fusion_threshold_bytes": "HOROVOD_FUSION_THRESHOLD",
        "cycle_time_ms": "HOROVOD_CYCLE_TIME",
        "cache_capacity": "HOROVOD_CACHE_CAPACITY",
        "hierarchical_allreduce": "HOROVOD_HIERARCHICAL_ALLREDUCE",
        "hierarchical_allgather": "HOROVOD_HIERARCHICAL_ALLGATHER",
        "torus_allreduce": "HOROVOD_TORUS_ALLREDUCE",
    }
)

# Times in seconds; hvdtune's variable comes first.
HANG_WARNING: Final = ("HVDTUNE_HANG_WARNING_S", "HOROVOD_STALL_CHECK_TIME_SECONDS")
HANG_ABORT: Final = ("HVDTUNE_HANG_ABORT_S", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS")

# What a launcher tells each of its ranks.
_PLACE: Final = frozenset(
    f"HVDTUNE_{name}"
    for name in (
        "RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOST",
        "RENDEZVOUS", "KEY_FD", "KEY_FILE",
    )
)  # fmt: skip
LOG_LEVELS: Final = ("debug", "info", "warning", "error")

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class MpiLauncher:
    """What started this process. `flavour` is "openmpi", "mpich" (and all that share its ABI) or
    "" for one of these; `size` is the number of processes, 0 where that is not told."""

    flavour: str
    size: int


@dataclasses.dataclass(frozen=True)
class Config:
    """What the environment says about this process.

    `rendezvous_port` 0 means that no launcher started it: rank 0 of 1, no sockets. `setting`
    holds only the knobs the environment names; the others keep their defaults. `timeline` is the
    raw trace file with `%r` for the rank, "" for none. `address` is the one that this process
    listens on and is reached at, "" for loopback. `hang_warning_s` and `hang_abort_s` are the
    times after which operations that wait are explained and given up, 0 for never; rank 0's
    count. `zero_copy` lets gradients live in memory that the ranks of a host share. `failpoint` is
    for cores compiled with failpoints (`csrc/base/failpoint.h`).
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    cross_rank: int = 0
    cross_size: int = 1
    host: str = "localhost"
    address: str = ""
    rendezvous_address: str = ""
    rendezvous_port: int = 0
    key: bytes = dataclasses.field(default=b"", repr=False)
    setting: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    timeline: str = ""
    timeline_max_bytes: int = 0
    heartbeat_timeout_s: float = 2.0
    hang_warning_s: float = 5.0
    hang_abort_s: float = 600.0
    failpoint: str = ""
    start_timeout_s: float = 30.0
    transport: str = "auto"
    log_level: str = "warning"
    generation: int = 0
    controller: str = "auto"
    cpu_operations: str = "hvdtune"
    zero_copy: bool = True
    mpi_launcher: MpiLauncher | None = None

    @property
    def timeline_path(self) -> str:
        """Where this rank records, "" for nowhere. Every job that a process forms has its own."""
        path = self.timeline.replace("%r", str(self.rank))
        if not path or self.generation == 0:
            return path
        return str(Path(path).with_stem(f"{Path(path).stem}-job{self.generation}"))

    @classmethod
    def from_environ(
        cls, environ: Mapping[str, str] | None = None, knobs: Sequence[Knob] | None = None
    ) -> Config:
        """Reads `environ` (default: the process's) against `knobs` (default: the knob table).

        Raises UsageError naming the variable whose value cannot be.
        """
        env = os.environ if environ is None else environ
        rank = _read(env, "HVDTUNE_RANK", _whole, 0)
        size = _read(env, "HVDTUNE_SIZE", _whole, 1)
        if not 0 <= rank < size:
            raise UsageError(f"HVDTUNE_RANK={rank} is not a rank of HVDTUNE_SIZE={size}")
        address, port = _read(env, "HVDTUNE_RENDEZVOUS", _endpoint, ("", 0))
        if size > 1 and port == 0:
            raise UsageError(f"HVDTUNE_SIZE={size} needs HVDTUNE_RENDEZVOUS: use `hvdtune run`")
        return cls(
            rank=rank,
            size=size,
            local_rank=_read(env, "HVDTUNE_LOCAL_RANK", _whole, 0),
            local_size=_read(env, "HVDTUNE_LOCAL_SIZE", _whole, 1),
            cross_rank=_read(env, "HVDTUNE_CROSS_RANK", _whole, 0),
            cross_size=_read(env, "HVDTUNE_CROSS_SIZE", _whole, 1),
            host=env.get("HVDTUNE_HOST") or socket.gethostname(),
            address=_own_address(env),
            rendezvous_address=address,
            rendezvous_port=port,
            key=_read_key(env) if port else b"",
            setting=read_setting(env, knobs),
            timeline=env.get("HVDTUNE_TIMELINE", ""),
            timeline_max_bytes=int(_read(env, "HVDTUNE_TIMELINE_MAX_MB", _amount, 0.0) * 2**20),
            heartbeat_timeout_s=_read(env, "HVDTUNE_HEARTBEAT_TIMEOUT_S", _positive, 2.0),
            hang_warning_s=_hang_warning(env),
            hang_abort_s=_read_first(env, HANG_ABORT, _amount, 600.0),
            failpoint=env.get("HVDTUNE_FAILPOINT", ""),
            start_timeout_s=_read(env, "HVDTUNE_START_TIMEOUT_S", _positive, 30.0),
            transport=_read(env, "HVDTUNE_TRANSPORT", _transport, "auto"),
            log_level=_read(
                env, "HVDTUNE_LOG_LEVEL", functools.partial(_one_of, LOG_LEVELS), "warning"
            ),
            controller=_choice(env, "CONTROLLER", CONTROLLERS),
            cpu_operations=_choice(env, "CPU_OPERATIONS", CPU_OPERATIONS),
            zero_copy=_read(env, "HVDTUNE_ZERO_COPY", _switch, True),
            mpi_launcher=_mpi_launcher(env),
        )


def read_setting(
    environ: Mapping[str, str] | None = None, knobs: Sequence[Knob] | None = None
) -> dict[str, Value]:
    """The knobs that `environ` names, by HVDTUNE_<NAME> or else by Horovod's variable.

    Raises UsageError naming the variable whose value the knob cannot have.
    """
    env = os.environ if environ is None else environ
    setting: dict[str, Value] = {}
    for knob in load_knobs() if knobs is None else knobs:
        for variable in (f"HVDTUNE_{knob.name.upper()}", HOROVOD_KNOBS.get(knob.name, "")):
            if env.get(variable):
                try:
                    setting |= parse_assignments([f"{knob.name}={env[variable]}"], [knob])
                except UsageError as error:
                    raise UsageError(f"{variable}: {error}") from None
                break
    return setting


def _hang_warning(env: Mapping[str, str]) -> float:
    if not env.get(HANG_WARNING[0]) and env.get("HOROVOD_STALL_CHECK_DISABLE", "0") != "0":
        return 0.0
    return _read_first(env, HANG_WARNING, _amount, 5.0)


def launch_defaults(environ: Mapping[str, str] | None = None) -> Config:
    """What the environment asks of jobs that this process launches; its own place left out.

    Raises UsageError for every value that the ranks would refuse.
    """
    env = os.environ if environ is None else environ
    return Config.from_environ({name: env[name] for name in env if name not in _PLACE})


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where this user's programs keep what they can make again."""
    env = os.environ if environ is None else environ
    return Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hvdtune"


def worker_environ(
    variables: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a new rank: this process's (or `environ`) with `variables` on top."""
    inherited = dict(os.environ if environ is None else environ)
    for stale in ("HVDTUNE_KEY_FD", "HVDTUNE_KEY_FILE"):
        inherited.pop(stale, None)
    return inherited | dict(variables)


def _choice(env: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    if env.get(f"HVDTUNE_{name}"):
        return _read(env, f"HVDTUNE_{name}", functools.partial(_one_of, choices), choices[0])
    horovod = _read(env, f"HOROVOD_{name}", functools.partial(_one_of, [*_HOROVOD_CHOICES]), "")
    return _HOROVOD_CHOICES.get(horovod, choices[0])


def _one_of(choices: Sequence[str], text: str) -> str:
    if text.lower() not in choices:
        raise ValueError(f"is none of {', '.join(choices)}")
    return text.lower()


def _mpi_launcher(env: Mapping[str, str]) -> MpiLauncher | None:
    for variable, flavour in (("OMPI_COMM_WORLD_SIZE", "openmpi"), ("PMI_SIZE", "mpich")):
        if env.get(variable):
            return MpiLauncher(flavour, _read(env, variable, _whole, 0))
    if env.get("PMIX_RANK"):
        return MpiLauncher("", _read(env, "SLURM_NTASKS", _whole, 0))
    return None


def _read(env: Mapping[str, str], name: str, parse: Callable[[str], T], default: T) -> T:
    text = env.get(name, "")
    if not text:
        return default
    try:
        return parse(text)
    except ValueError as error:
        raise UsageError(f"{name}={text} {error}") from None


def _read_first(
    env: Mapping[str, str], names: Sequence[str], parse: Callable[[str], T], default: T
) -> T:
    for name in names:
        if env.get(name):
            return _read(env, name, parse, default)
    return default


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("is not a whole number") from None


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("is not a number") from None
    if not math.isfinite(value):
        raise ValueError("is not a number")
    return value


def _whole(text: str) -> int:
    value = _integer(text)
    if value < 0:
        raise ValueError("is negative")
    return value


def _amount(text: str) -> float:
    value = _number(text)
    if value < 0:
        raise ValueError("is negative")
    return value


def _positive(text: str) -> float:
    value = _amount(text)
    if value == 0:
        raise ValueError("is not a time")
    return value


def _endpoint(text: str) -> tuple[str, int]:
    address, colon, port = text.rpartition(":")
    if not colon or not address or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError("is not ADDRESS:PORT")
    return address, int(port)


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("is neither 0 nor 1")
    return text == "1"


def _transport(text: str) -> str:
    if text not in TRANSPORTS:
        raise ValueError(f"is none of {', '.join(TRANSPORTS)}")
    return text


def _own_address(env: Mapping[str, str]) -> str:
    for variable in ("HVDTUNE_INTERFACE", "HOROVOD_GLOO_IFACE"):
        if env.get(variable):
            if env.get("HVDTUNE_ADDRESS"):
                raise UsageError(f"give HVDTUNE_ADDRESS or {variable}, not both")
            return _read(env, variable, _address_of_interface, "")
    return _read(env, "HVDTUNE_ADDRESS", _address, "")


def _address(text: str) -> str:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError("is not a numeric IP address") from None
    if address.is_unspecified:
        raise ValueError("is every interface: name one")
    return str(address)


def _address_of_interface(name: str) -> str:
    import psutil

    interfaces = psutil.net_if_addrs()
    if name not in interfaces:
        raise ValueError(f"is none of this host's interfaces: {', '.join(sorted(interfaces))}")
    by_family = {entry.family: entry.address for entry in reversed(interfaces[name])}
    for family in (socket.AF_INET, socket.AF_INET6):
        # A link-local IPv6 address (fe80::1%eth0) cannot be reached by its number alone.
        if family in by_family and "%" not in by_family[family]:
            return by_family[family]
    raise ValueError("has no address")


def _read_key(env: Mapping[str, str]) -> bytes:
    if env.get("HVDTUNE_KEY_FD"):
        source = f"HVDTUNE_KEY_FD={env['HVDTUNE_KEY_FD']}"
        fd = _read(env, "HVDTUNE_KEY_FD", _whole, -1)
        try:
            key = os.pread(fd, KEY_BYTES + 1, 0)
            # Programs that the script starts have no business with the job's key.
            os.set_inheritable(fd, False)
        except OSError:
            raise UsageError(
                f"{source} is not open: a program between `hvdtune run` and this one closed the "
                "descriptors it inherited"
            ) from None
    elif env.get("HVDTUNE_KEY_FILE"):
        source = f"HVDTUNE_KEY_FILE={env['HVDTUNE_KEY_FILE']}"
        try:
            with open(env["HVDTUNE_KEY_FILE"], "rb") as file:
                if os.fstat(file.fileno()).st_mode & 0o077:
                    raise UsageError(f"{source} can be read by others; it must have mode 0600")
                key = file.read(KEY_BYTES + 1)
        except OSError as error:
            raise UsageError(f"{source}: {error.strerror}") from None
    else:
        raise UsageError("HVDTUNE_RENDEZVOUS is set but HVDTUNE_KEY_FD is not: use `hvdtune run`")
    if len(key) != KEY_BYTES:
        raise UsageError(f"{source} does not hold a key of {KEY_BYTES} bytes")
    return key
