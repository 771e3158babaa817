"""The environment of a process, read once. Nothing else in hvdtune reads or copies `os.environ`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import ipaddress
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast

from hvdtune import parse
from hvdtune.core.config import host_costs, script_knobs
from hvdtune.core.config.key_source import launched_key
from hvdtune.core.config.knobs import Knob, Value, load_knobs, parse_assignments
from hvdtune.core.config.launched import (
    OWN_PLACE,
    TRAINING_PYTHON,
    Launch,
    give,
    in_vain,
    note_launch,
    place_variables,
    settle,
    without_launch,
)
from hvdtune.core.config.own_variables import unknown
from hvdtune.errors import UsageError
from hvdtune.horovod import variables
from hvdtune.horovod.vocabulary import LOG_LEVELS as LOG_LEVELS
from hvdtune.horovod.vocabulary import log_level

if TYPE_CHECKING:
    from typing_extensions import Self

    from hvdtune.core.config.dialect import ToldPlace
    from hvdtune.core.config.meeting_point import MeetingPoint

TRANSPORTS: Final = ("auto", "tcp")
# Who brings the ranks together: whichever started them, MPI, or hvdtune's own launcher alone.
CONTROLLERS: Final = ("auto", "mpi", "hvdtune")
CPU_OPERATIONS: Final = ("hvdtune", "mpi")
GPU_OPERATIONS: Final = ("auto", "nccl", "host")
GPU_BITS: Final = ("nccl", "exact")
JOIN_RULES: Final = ("hvdtune", "horovod")
WHEN_FULL: Final = ("ring", "stop")
_ALIAS: Final = str(Path(__file__).parents[2] / "alias")

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class MpiLauncher:
    """What started this process. `flavour` is "openmpi", "mpich" (and all that share its ABI) or
    "" for one of these; `size` is the number of processes, 0 where that is not told, and `rank`
    this one's."""

    flavour: str
    size: int
    rank: int = 0


@dataclasses.dataclass(frozen=True)
class Config:
    """What the environment says about this process.

    `rendezvous_port` 0 means that no launcher of ours started it; without a `meeting` it is then
    rank 0 of 1 and has no sockets. `setting`
    holds only the knobs the environment names; the others keep their defaults. `timeline` is the
    raw trace file with `%r` for the rank, "" for none; when it has `timeline_max_bytes` (0: no
    cap) the oldest records go ("ring") or no more come ("stop"); it has `timeline_steps` only.
    `meeting` is where the ranks find each other that another launcher has started, None for others.
    `horovod_timeline` is the trace in Horovod's format that rank 0 writes where no launcher does
    it, "" for none, `horovod_cycles` whether it shows the cycles. `vain` has a sentence about each
    variable that the script has set to no effect.
    `address` is the one that this process
    listens on and is reached at, "" for loopback. `hang_warning_s` and `hang_abort_s` are the
    times after which operations that wait are explained and given up, 0 for never; rank 0's
    count. `hang_about` is what an explanation begins with, "" for nothing.
    `gpu_operations` "nccl" lets the core carry tensors in a GPU's memory, with the sums that
    `gpu_bits` says, by the libraries that are named or found; "auto" does where there are these
    libraries and a GPU for each rank of the host. `join_rule` "horovod" refuses operations other
    than allreduce and barrier while a rank has joined; rank 0's counts.
    `thread_core` is the processor that the core's threads keep to, -1 for any. `zero_copy` lets
    gradients live in memory that the ranks of a host share. `host_costs` is what moving bytes
    costs on this host, and alone decides which way they go; None: as it was measured before,
    and lately, and `measures_costs` that they are measured anew. `worker` is this process's
    number in an elastic job, whose launcher then is at the rendezvous and tells it rank and
    size; -1 elsewhere. `failpoint` is for cores compiled with failpoints
    (`csrc/base/failpoint.h`).
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
    timeline_when_full: str = "ring"
    timeline_steps: parse.StepWindow = parse.ALL_STEPS
    horovod_timeline: str = ""
    horovod_cycles: bool = False
    heartbeat_timeout_s: float = 2.0
    hang_warning_s: float = 5.0
    hang_abort_s: float = 600.0
    hang_about: str = ""
    failpoint: str = ""
    start_timeout_s: float = 30.0
    transport: str = "auto"
    log_level: str = "warning"
    generation: int = 0
    controller: str = "auto"
    cpu_operations: str = "hvdtune"
    gpu_operations: str = "host"
    gpu_bits: str = "nccl"
    join_rule: str = "hvdtune"
    cuda_library: str = ""
    nccl_library: str = ""
    zero_copy: bool = True
    host_costs: Mapping[str, float] | None = None
    measures_costs: bool = False
    thread_core: int = -1
    worker: int = -1
    mpi_launcher: MpiLauncher | None = None
    meeting: MeetingPoint | None = None
    vain: tuple[str, ...] = ()

    @property
    def timeline_path(self) -> str:
        """Where this rank records, "" for nowhere. Every job that a process forms has its own.

        A path without `%r` becomes one of each rank where there are several. A worker of an elastic
        job is told its own.
        """
        path = self.timeline.replace("%r", str(self.rank))
        if not path:
            return ""
        stem = Path(path).stem
        if self.size > 1 and self.worker < 0 and path == self.timeline:
            stem += f"-rank{self.rank}"
        if self.generation > 0:
            stem += f"-job{self.generation}"
        return str(Path(path).with_stem(stem))

    @classmethod
    def from_environ(
        cls, environ: Mapping[str, str] | None = None, knobs: Sequence[Knob] | None = None
    ) -> Config:
        """Reads `environ` (default: the process's) against `knobs` (default: the knob table).

        Raises UsageError naming the variable whose value cannot be.
        """
        env, vain = settle(os.environ if environ is None else environ)
        # Loaded here, since every script that imports a framework's module loads this one.
        from hvdtune.core.config import dialects

        place = dialects.recognise(env, forming=True)
        config = cls._read(env, knobs)._placed(env, place)
        if config.rendezvous_port == 0:
            variables.check_alone(env, is_told=place is not None)
        path, why_not = _horovod_timeline(env, config)
        if why_not:
            vain = (*vain, in_vain(env, "HOROVOD_TIMELINE", why_not))
        if place is not None and place.remark:
            vain = (*vain, place.remark)
        vain = (*vain, *unknown_variables(env, knobs))
        cycles = bool(path) and bool(launcher_values(env).get("HOROVOD_TIMELINE_MARK_CYCLES"))
        return dataclasses.replace(config, horovod_timeline=path, horovod_cycles=cycles, vain=vain)

    def _placed(self, env: Mapping[str, str], place: ToldPlace | None) -> Self:
        """This with what another launcher, if there is one, tells of the place."""
        if place is None or self.rendezvous_port:
            return self
        is_complete = _is_complete(place)
        return dataclasses.replace(
            self,
            host=(env.get("HVDTUNE_HOST") or place.host or self.host).lower(),
            meeting=_meeting(env, place) if is_complete else None,
            mpi_launcher=_mpi_launcher(place),
            thread_core=_told_core(env, place),
        )

    @classmethod
    def _read(cls, env: Mapping[str, str], knobs: Sequence[Knob] | None) -> Config:
        variables.check(env)
        rank = _read(env, "HVDTUNE_RANK", parse.whole, 0)
        size = _read(env, "HVDTUNE_SIZE", parse.whole, 1)
        if rank and not env.get("HVDTUNE_SIZE"):
            raise UsageError(
                f"HVDTUNE_RANK={rank} is set, but not HVDTUNE_SIZE: `hvdtune run` sets both for "
                "its ranks; unset it elsewhere"
            )
        if not 0 <= rank < size:
            raise UsageError(
                f"HVDTUNE_RANK={rank} is not a rank of HVDTUNE_SIZE={size}: `hvdtune run` sets "
                "both for its ranks; unset them elsewhere"
            )
        address, port = _read(env, "HVDTUNE_RENDEZVOUS", parse.endpoint, ("", 0))
        if size > 1 and port == 0:
            raise UsageError(f"HVDTUNE_SIZE={size} needs HVDTUNE_RENDEZVOUS: use `hvdtune run`")
        return cls(
            rank=rank,
            size=size,
            local_rank=_read(env, "HVDTUNE_LOCAL_RANK", parse.whole, 0),
            local_size=_read(env, "HVDTUNE_LOCAL_SIZE", parse.whole, 1),
            cross_rank=_read(env, "HVDTUNE_CROSS_RANK", parse.whole, 0),
            cross_size=_read(env, "HVDTUNE_CROSS_SIZE", parse.whole, 1),
            # Ranks with the same name share memory, however it is spelled.
            host=(env.get("HVDTUNE_HOST") or socket.gethostname()).lower(),
            address=_own_address(env),
            rendezvous_address=address,
            rendezvous_port=port,
            key=launched_key(env) if port else b"",
            setting=read_setting(env, knobs),
            timeline=env.get("HVDTUNE_TIMELINE", ""),
            timeline_max_bytes=int(
                _read(env, "HVDTUNE_TIMELINE_MAX_MB", parse.amount, 0.0) * 2**20
            ),
            timeline_when_full=_choice(env, "HVDTUNE_TIMELINE_WHEN_FULL", WHEN_FULL),
            timeline_steps=_read(env, "HVDTUNE_TIMELINE_STEPS", parse.step_window, parse.ALL_STEPS),
            heartbeat_timeout_s=_read(env, "HVDTUNE_HEARTBEAT_TIMEOUT_S", parse.positive, 2.0),
            hang_warning_s=_read(env, "HVDTUNE_HANG_WARNING_S", parse.amount, 5.0),
            hang_abort_s=_read(env, "HVDTUNE_HANG_ABORT_S", parse.amount, 600.0),
            failpoint=env.get("HVDTUNE_FAILPOINT", ""),
            start_timeout_s=_read(env, "HVDTUNE_START_TIMEOUT_S", parse.positive, 30.0),
            transport=_read(
                env, "HVDTUNE_TRANSPORT", functools.partial(parse.one_of, TRANSPORTS), "auto"
            ),
            log_level=_read(env, "HVDTUNE_LOG_LEVEL", log_level, "warning"),
            controller=_choice(env, "HVDTUNE_CONTROLLER", CONTROLLERS),
            cpu_operations=_cpu_operations(env),
            gpu_operations=_choice(env, "HVDTUNE_GPU_OPERATIONS", GPU_OPERATIONS),
            gpu_bits=_choice(env, "HVDTUNE_GPU_BITS", GPU_BITS),
            join_rule=_choice(env, "HVDTUNE_JOIN", JOIN_RULES),
            cuda_library=env.get("HVDTUNE_CUDA_LIBRARY", ""),
            nccl_library=env.get("HVDTUNE_NCCL_LIBRARY", ""),
            zero_copy=_read(env, "HVDTUNE_ZERO_COPY", parse.switch, True),
            host_costs=_read(env, "HVDTUNE_HOST_COSTS", host_costs.parse, None),
            measures_costs=env.get("HVDTUNE_HOST_COSTS") == "measure",
            thread_core=_launched_core(env),
            worker=_read(env, "HVDTUNE_WORKER", parse.whole, -1),
        )


def read_setting(
    environ: Mapping[str, str] | None = None, knobs: Sequence[Knob] | None = None
) -> dict[str, Value]:
    """The knobs that `environ` names, by HVDTUNE_<NAME> or else by Horovod's variable.

    Raises UsageError naming the variable whose value the knob cannot have.
    """
    env = own_environ() if environ is None else environ
    setting: dict[str, Value] = {}
    for knob in _table(knobs):
        own = _variable(knob)
        for variable in (own, *(term.variable for term in variables.standing_for(own))):
            if env.get(variable):
                try:
                    setting |= parse_assignments([f"{knob.name}={env[variable]}"], [knob])
                except UsageError as error:
                    raise UsageError(f"{variable}: {error}") from None
                break
    return setting | script_knobs.read_start_values(env)


def _table(knobs: Sequence[Knob] | None) -> Sequence[Knob]:
    return load_knobs() if knobs is None else knobs


def _variable(knob: Knob) -> str:
    return f"HVDTUNE_{knob.name.upper()}"


def unknown_variables(
    environ: Mapping[str, str] | None = None, knobs: Sequence[Knob] | None = None
) -> tuple[str, ...]:
    """A sentence about each HVDTUNE_ variable that is none of hvdtune's.

    A rank leaves out what its launcher has told already.
    """
    env = os.environ if environ is None else environ
    launch = Launch.of(env)
    told = () if launch is None else [n for n in env if not launch.is_changed(env, n)]
    new = {name: value for name, value in env.items() if name not in told}
    return tuple(unknown(new, lambda: [_variable(knob) for knob in _table(knobs)]))


def launch_defaults(
    environ: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    local_size: int = 1,
) -> Config:
    """Reads what `variables`, then the environment ask of jobs that this process launches.

    A rank's place is left out of both, but for the number of ranks on a host, `local_size`. Raises
    UsageError for every value that the ranks would refuse.
    """
    env = {**own_environ(environ), **(variables or {})}
    env = {name: value for name, value in env.items() if name not in OWN_PLACE}
    return Config._read(env | {"HVDTUNE_LOCAL_SIZE": str(local_size)}, None)


def thread_cores(given: Mapping[str, str]) -> tuple[str, tuple[int, ...]]:
    """The cores that `given`, then the environment name for the threads of a host's ranks.

    Returns what has named them, as `NAME=VALUE`, and the cores; "" and () where nothing has. Raises
    UsageError for what names no cores.
    """
    env = {**own_environ(), **given}
    own = "HVDTUNE_THREAD_AFFINITY"
    cores: tuple[int, ...] = _read(env, own, parse.wholes, ())
    names = (own, *(term.variable for term in variables.standing_for(own)))
    source = next((f"{name}={env[name]}" for name in names if env.get(name)), "")
    return source, cores


def node_meeting(environ: Mapping[str, str] | None = None) -> MeetingPoint | None:
    """Where the launchers meet of which a scheduler has started one on each of several hosts.

    None where it has started this process alone, or several on a host. Raises UsageError as
    `Config.from_environ` does for a place and a meeting that cannot be.
    """
    env = os.environ if environ is None else environ
    from hvdtune.core.config import dialects

    place = dialects.recognise(env, forming=True)
    if place is None or env.get("HVDTUNE_RENDEZVOUS"):
        return None
    place.require_complete()  # a launcher has no MPI to ask for what is not told
    if place.size in (None, 1):
        return None
    return _meeting(env, place) if _is_one_on_each_host(place) else None


def crowded_place(environ: Mapping[str, str] | None = None) -> ToldPlace | None:
    """The place of a launcher of which a scheduler has started several on a host.

    Each then launches a job of its own. None for others.
    """
    env = os.environ if environ is None else environ
    from hvdtune.core.config import dialects

    place = dialects.recognise(env, forming=True)
    if place is None or env.get("HVDTUNE_RENDEZVOUS") or (place.size or 1) == 1:
        return None
    return None if _is_one_on_each_host(place) else place


def _is_one_on_each_host(place: ToldPlace) -> bool:
    return place.is_node or place.local_size == 1 or place.cross_size == place.size


def launcher_values(environ: Mapping[str, str] | None = None) -> dict[str, object]:
    """Reads what Horovod's variables ask of the launcher, by variable; only those that are set.

    Raises UsageError for a value that cannot be.
    """
    return variables.launcher_values(own_environ() if environ is None else environ)


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where this user's programs keep what they can make again."""
    env = os.environ if environ is None else environ
    return Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hvdtune"


def config_folder(environ: Mapping[str, str] | None = None) -> Path:
    """The folder of files that this user's programs cannot make again."""
    env = os.environ if environ is None else environ
    return Path(env.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "hvdtune"


def storage_url(environ: Mapping[str, str] | None = None) -> str | None:
    """The database of shared studies, HVDTUNE_STORAGE; None where there is none."""
    return (os.environ if environ is None else environ).get("HVDTUNE_STORAGE") or None


def workbench_python(environ: Mapping[str, str] | None = None) -> Path | None:
    """A Python that has the workbench, HVDTUNE_WORKBENCH_PYTHON; None where none is named."""
    named = (os.environ if environ is None else environ).get("HVDTUNE_WORKBENCH_PYTHON")
    return Path(named).expanduser() if named else None


def training_python(environ: Mapping[str, str] | None = None) -> str:
    """What the interpreter of the ranks has said of itself to this one, "" where it is this one."""
    return (os.environ if environ is None else environ).get(TRAINING_PYTHON, "")


def own_environ(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment (or `environ`), for processes that are no rank of its job.

    Where this process is a rank itself, that is without what its launcher has set for it.
    """
    return without_launch(os.environ if environ is None else environ)


def inherited_environ() -> dict[str, str]:
    """This process's environment as it is, for processes that stand for this one."""
    return dict(os.environ)


def worker_environ(
    variables: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a new rank: this process's (or `environ`) with `variables` on top.

    The folder of hvdtune.alias ends its PYTHONPATH. The tuner's database, whose URL may hold a
    password, is no affair of ranks; nor is what another launcher has set for this process.
    """
    inherited = own_environ(environ)
    for name in ("_HOROVOD_SECRET_KEY", "HVDTUNE_STORAGE"):
        inherited.pop(name, None)
    new = inherited | dict(variables)
    if Launch.of(variables) is None:
        note_launch(new, {name: inherited.get(name) for name in variables})
    folders = [new["PYTHONPATH"]] if new.get("PYTHONPATH") else []
    if _ALIAS not in os.pathsep.join(folders).split(os.pathsep):
        new["PYTHONPATH"] = os.pathsep.join([*folders, _ALIAS])
    return new


def environ_rank_and_size(environ: Mapping[str, str] | None = None) -> tuple[int, int]:
    """Return the rank and size that a launcher has set; (0, 1) without a launcher.

    Raises UsageError if only one of the two is set, one is not a number, or two launchers disagree.
    """
    from hvdtune.core.config import dialects

    env = os.environ if environ is None else environ
    place = dialects.recognise(env)
    if place is None:
        if env.get("HOROVOD_SIZE"):  # Horovod refuses it even if it is 1
            raise UsageError(
                "HOROVOD_SIZE is set, but HOROVOD_RANK is not. horovodrun sets both. Correct it, "
                "or set HVDTUNE_STARTED_BY=none for a single process"
            )
        return 0, 1
    place.require_complete()
    return place.rank or 0, place.size or 1


def tell_place(place: Mapping[str, int]) -> None:
    """Corrects the variables of this rank's place, which its launcher has set.

    Args:
        place: `rank`, `size`, `local_rank`, `local_size`, `cross_rank` and `cross_size`.
    """
    names = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
    for name, value in place_variables(*(place[name] for name in names)).items():
        give(os.environ, name, value)


def is_elastic_worker(environ: Mapping[str, str] | None = None) -> bool:
    """Whether this process is a worker of an elastic job."""
    return bool((os.environ if environ is None else environ).get("HVDTUNE_WORKER"))


@contextlib.contextmanager
def changed_environ(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set these environment variables in the block, and unset those that are None."""
    before = {name: os.environ.get(name) for name in variables}
    _change_environ(variables)
    try:
        yield
    finally:
        _change_environ(before)


def _change_environ(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _choice(env: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    return _read(env, name, functools.partial(parse.one_of, choices), choices[0])


def _cpu_operations(env: Mapping[str, str]) -> str:
    chosen = _choice(env, "HVDTUNE_CPU_OPERATIONS", CPU_OPERATIONS)
    if chosen == "mpi" and _read(env, "HOROVOD_MPI_THREADS_DISABLE", parse.switch, False):
        raise UsageError(
            "HOROVOD_MPI_THREADS_DISABLE is on, but MPI is to carry out the collectives, which it "
            "does on a thread of its own: unset one of them"
        )
    return chosen


def _horovod_timeline(env: Mapping[str, str], config: Config) -> tuple[str, str]:
    """The trace that HOROVOD_TIMELINE asks the ranks for, and why there is none though it does.

    What the launcher's environment says, `hvdtune run` has seen to; mpirun has not.
    """
    path = str(launcher_values(env).get("HOROVOD_TIMELINE", ""))
    launch = Launch.of(env)
    launched = config.rendezvous_port != 0
    if launched and (launch is None or not launch.is_changed(env, "HOROVOD_TIMELINE")):
        return "", ""
    if path and launched and config.timeline:
        return "", "`hvdtune run` records this job's timeline already"
    return path, ""


def _launched_core(env: Mapping[str, str]) -> int:
    local_rank = _read(env, "HVDTUNE_LOCAL_RANK", parse.whole, 0)
    return _thread_core(env, local_rank, _read(env, "HVDTUNE_LOCAL_SIZE", parse.whole, 1))


def _told_core(env: Mapping[str, str], place: ToldPlace) -> int:
    cores: tuple[int, ...] = _read(env, "HVDTUNE_THREAD_AFFINITY", parse.wholes, ())
    if cores and place.local_rank is None and not place.is_node:
        raise UsageError(
            f"thread affinity names a core for each rank of a host, but {place.title} does not say "
            "which of them this process is: bind the processes by its own options"
        )
    local_rank = place.local_rank or 0
    return _thread_core(env, local_rank, place.local_size or local_rank + 1)


def _thread_core(env: Mapping[str, str], local_rank: int, local_size: int) -> int:
    cores: tuple[int, ...] = _read(env, "HVDTUNE_THREAD_AFFINITY", parse.wholes, ())
    if not cores:
        return -1
    if len(cores) < local_size:
        raise UsageError(
            f"thread affinity names {len(cores)} of the {local_size} cores that the ranks of a "
            "host need, one for each, as in 0,2"
        )
    return cores[local_rank]


def _meeting(env: Mapping[str, str], place: ToldPlace) -> MeetingPoint | None:
    """Where the ranks meet; None for a process that is alone."""
    from hvdtune.core.config.meeting_point import read_meeting_point

    return None if place.size == 1 else read_meeting_point(env, place, cache_folder(env))


def _is_complete(place: ToldPlace) -> bool:
    """Whether both rank and size are told. Raises UsageError where one has to be and is not."""
    # PMIx names no size; MPI then says it.
    if place.size_by or _mpi_launcher(place) is None:
        place.require_complete()
    return place.rank is not None and place.size is not None


def _mpi_launcher(place: ToldPlace) -> MpiLauncher | None:
    from hvdtune.core.config import dialects

    flavour = dialects.mpi_flavour(place)
    return None if flavour is None else MpiLauncher(flavour, place.size or 0, place.rank or 0)


def _read(env: Mapping[str, str], name: str, parse_text: Callable[[str], T], default: T) -> T:
    """Reads hvdtune's variable, else Horovod's that stand for it, else returns the default."""
    if text := env.get(name, ""):
        try:
            return parse_text(text)
        except ValueError as error:
            raise UsageError(f"{name}={text} {error}") from None
    for term in variables.standing_for(name):
        if (value := variables.value_of(env, term)) is not None:
            return cast(T, value)
    return default


def require_interface(name: str, source: str) -> None:
    """Raises UsageError unless this host has an address at that network interface.

    Args:
        source: what has named the interface, as it is spelled there.
    """
    try:
        _address_of_interface(name)
    except ValueError as error:
        raise UsageError(f"{source} {name} {error}") from None


def _own_address(env: Mapping[str, str]) -> str:
    for variable in ("HVDTUNE_INTERFACE", "HOROVOD_GLOO_IFACE"):
        if env.get(variable):
            if env.get("HVDTUNE_ADDRESS"):
                raise UsageError(f"give HVDTUNE_ADDRESS or {variable}, not both")
            return _read(env, variable, _address_of_interface, "")
    return _read(env, "HVDTUNE_ADDRESS", parse.address, "")


def _address_of_interface(name: str) -> str:
    import psutil

    interfaces = psutil.net_if_addrs()
    if name not in interfaces:
        raise ValueError(f"is none of this host's interfaces: {', '.join(sorted(interfaces))}")
    addresses = [
        ipaddress.ip_address(entry.address)
        for entry in interfaces[name]
        if entry.family in (socket.AF_INET, socket.AF_INET6)
    ]
    if not addresses:
        raise ValueError("has no address")
    # A link-local address of IPv6 (fe80::1%eth0) leads no further than its link.
    return str(min(addresses, key=lambda address: (address.version, address.is_link_local)))
