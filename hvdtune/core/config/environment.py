"""The environment of a process, read once. Nothing else in hvdtune reads or copies `os.environ`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hvdtune.core.config import script_knobs
from hvdtune.core.config.groups import (
    DataPath,
    GpuConfig,
    MpiConfig,
    MpiLauncher,
    RankPlace,
    RecordingConfig,
    RendezvousConfig,
    Timeouts,
)
from hvdtune.core.config.knobs import Knob, Value, load_knobs, parse_assignments
from hvdtune.core.config.launched import (
    OWN_PLACE,
    TRAINING_PYTHON,
    Launch,
    give,
    ignored_warning,
    note_launch,
    place_variables,
    settle,
    without_launch,
)
from hvdtune.core.config.own_variables import read_choice, read_variable, unknown
from hvdtune.core.config.thread_cores import core_at_place, read_thread_cores
from hvdtune.errors import UsageError
from hvdtune.horovod import variables
from hvdtune.horovod.vocabulary import LOG_LEVELS as LOG_LEVELS
from hvdtune.horovod.vocabulary import log_level

if TYPE_CHECKING:
    from typing_extensions import Self

    from hvdtune.core.config.dialect import LauncherPlace
    from hvdtune.core.config.meeting_point import MeetingPoint

_ALIAS: Final = str(Path(__file__).parents[2] / "alias")


@dataclasses.dataclass(frozen=True)
class Config:
    """The configuration of this process, from its environment.

    Attributes:
        place, rendezvous, recording, timeouts, data_path, gpu, mpi: groups of related variables.
        setting: values of the knobs that the environment names; the others have their defaults.
        join_rule: "horovod" refuses operations except allreduce and barrier while a rank has
            joined. Rank 0's value is used.
        log_level: lowest level that is shown on stderr.
        failpoint: for cores compiled with failpoints (`csrc/base/failpoint.h`).
        ignored: one warning per variable that was set too late to take effect.
    """

    place: RankPlace = dataclasses.field(default_factory=RankPlace)
    rendezvous: RendezvousConfig = dataclasses.field(default_factory=RendezvousConfig)
    recording: RecordingConfig = dataclasses.field(default_factory=RecordingConfig)
    timeouts: Timeouts = dataclasses.field(default_factory=Timeouts)
    data_path: DataPath = dataclasses.field(default_factory=DataPath)
    gpu: GpuConfig = dataclasses.field(default_factory=GpuConfig)
    mpi: MpiConfig = dataclasses.field(default_factory=MpiConfig)
    setting: Mapping[str, Value] = dataclasses.field(default_factory=dict)
    join_rule: str = "hvdtune"
    log_level: str = "warning"
    failpoint: str = ""
    ignored: tuple[str, ...] = ()

    @property
    def timeline_path(self) -> str:
        """The timeline file of this rank in this job, "" for none.

        Without `%r` in the path the rank is appended, if there are several. A worker of an elastic
        job has a path of its own.
        """
        place, rendezvous, timeline = self.place, self.rendezvous, self.recording.timeline
        path = timeline.replace("%r", str(place.rank))
        if not path:
            return ""
        stem = Path(path).stem
        if place.size > 1 and rendezvous.worker < 0 and path == timeline:
            stem += f"-rank{place.rank}"
        if rendezvous.generation > 0:
            stem += f"-job{rendezvous.generation}"
        return str(Path(path).with_stem(stem))

    @classmethod
    def from_environ(
        cls, environ: Mapping[str, str] | None = None, knobs: Sequence[Knob] | None = None
    ) -> Config:
        """Read `environ` (default: the process's) against `knobs` (default: the knob table).

        Raises UsageError naming the variable with a wrong value.
        """
        env, ignored = settle(os.environ if environ is None else environ)
        # Loaded here, since every script that imports a framework's module loads this one.
        from hvdtune.core.config import dialects

        place = dialects.recognise(env, forming=True)
        config = cls._read(env, knobs)._placed(env, place)
        if config.rendezvous.port == 0:
            variables.check_alone(env, is_told=place is not None)
        path, why_not = _horovod_timeline(env, config)
        cycles = bool(path) and bool(launcher_values(env).get("HOROVOD_TIMELINE_MARK_CYCLES"))
        warnings = [
            *ignored,
            ignored_warning(env, "HOROVOD_TIMELINE", why_not) if why_not else "",
            "" if place is None else place.remark,
            *unknown_variables(env, knobs),
        ]
        return dataclasses.replace(
            config,
            recording=dataclasses.replace(
                config.recording, horovod_timeline=path, horovod_cycles=cycles
            ),
            ignored=tuple(filter(None, warnings)),
        )

    def _placed(self, env: Mapping[str, str], place: LauncherPlace | None) -> Self:
        """Return this with the place that another launcher has set, if any."""
        if place is None or self.rendezvous.port:
            return self
        meeting = _meeting(env, place) if _is_complete(place) else None
        host = env.get("HVDTUNE_HOST") or place.host or self.place.host
        core = core_at_place(env, place)
        return dataclasses.replace(
            self,
            place=dataclasses.replace(self.place, host=host.lower()),
            rendezvous=dataclasses.replace(self.rendezvous, meeting=meeting),
            mpi=dataclasses.replace(self.mpi, launcher=_mpi_launcher(place)),
            data_path=dataclasses.replace(self.data_path, thread_core=core),
        )

    @classmethod
    def _read(cls, env: Mapping[str, str], knobs: Sequence[Knob] | None) -> Config:
        variables.check(env)
        place = RankPlace.read(env)
        return cls(
            place,
            RendezvousConfig.read(env, place.size),
            RecordingConfig.read(env),
            Timeouts.read(env),
            DataPath.read(env, place),
            GpuConfig.read(env),
            MpiConfig.read(env),
            setting=read_setting(env, knobs),
            join_rule=read_choice(env, "HVDTUNE_JOIN", ("hvdtune", "horovod")),
            log_level=read_variable(env, "HVDTUNE_LOG_LEVEL", log_level, "warning"),
            failpoint=env.get("HVDTUNE_FAILPOINT", ""),
        )


def read_setting(
    environ: Mapping[str, str] | None = None, knobs: Sequence[Knob] | None = None
) -> dict[str, Value]:
    """Return the knobs that `environ` sets, by HVDTUNE_<NAME> or else by Horovod's variable.

    Raises UsageError naming the variable with a wrong value.
    """
    env = own_environ() if environ is None else environ
    setting: dict[str, Value] = {}
    for knob in load_knobs() if knobs is None else knobs:
        own = _variable(knob)
        for variable in (own, *(term.variable for term in variables.standing_for(own))):
            if env.get(variable):
                try:
                    setting |= parse_assignments([f"{knob.name}={env[variable]}"], [knob])
                except UsageError as error:
                    raise UsageError(f"{variable}: {error}") from None
                break
    return setting | script_knobs.read_start_values(env)


def _variable(knob: Knob) -> str:
    return f"HVDTUNE_{knob.name.upper()}"


def unknown_variables(
    environ: Mapping[str, str] | None = None, knobs: Sequence[Knob] | None = None
) -> tuple[str, ...]:
    """Return one warning per unknown HVDTUNE_ variable.

    A rank leaves out variables of its launcher, which has reported them.
    """
    env = os.environ if environ is None else environ
    launch = Launch.of(env)
    new = {n: v for n, v in env.items() if launch is None or launch.is_changed(env, n)}
    return tuple(unknown(new, lambda: map(_variable, load_knobs() if knobs is None else knobs)))


def launch_defaults(
    environ: Mapping[str, str] | None = None,
    variables: Mapping[str, str] | None = None,
    local_size: int = 1,
) -> Config:
    """Read the configuration of jobs that this process launches.

    `variables` take precedence over the environment. Both are read without a rank's place, except
    the number of ranks on a host, `local_size`. Raises UsageError for values that ranks refuse.
    """
    env = {**own_environ(environ), **(variables or {})}
    env = {name: value for name, value in env.items() if name not in OWN_PLACE}
    return Config._read(env | {"HVDTUNE_LOCAL_SIZE": str(local_size)}, None)


def thread_cores(given: Mapping[str, str]) -> tuple[str, tuple[int, ...]]:
    """Return what `read_thread_cores` does, of `given`, then of the environment."""
    return read_thread_cores({**own_environ(), **given})


def node_meeting(environ: Mapping[str, str] | None = None) -> MeetingPoint | None:
    """Return the meeting point of launchers that a scheduler has started, one on each host.

    None if it has started this process alone, or several on a host. Raises UsageError as
    `Config.from_environ` does.
    """
    env = os.environ if environ is None else environ
    place = _scheduled_place(env)
    if place is None:
        return None
    place.require_complete()  # a launcher cannot ask MPI
    return _meeting(env, place) if _is_one_on_each_host(place) else None


def crowded_place(environ: Mapping[str, str] | None = None) -> LauncherPlace | None:
    """Return the place of a launcher if a scheduler has started several on a host, else None.

    Each of them then launches a job of its own.
    """
    place = _scheduled_place(os.environ if environ is None else environ)
    is_crowded = place is not None and place.size != 1 and not _is_one_on_each_host(place)
    return place if is_crowded else None


def _scheduled_place(env: Mapping[str, str]) -> LauncherPlace | None:
    from hvdtune.core.config import dialects

    place = dialects.recognise(env, forming=True)
    return None if place is None or env.get("HVDTUNE_RENDEZVOUS") else place


def _is_one_on_each_host(place: LauncherPlace) -> bool:
    return place.is_node or place.local_size == 1 or place.cross_size == place.size


def launcher_values(environ: Mapping[str, str] | None = None) -> dict[str, object]:
    """Return Horovod's variables for the launcher that are set, by name.

    Raises UsageError naming the variable with a wrong value.
    """
    return variables.launcher_values(own_environ() if environ is None else environ)


def cache_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of files that this user's programs can make again."""
    env = os.environ if environ is None else environ
    return Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hvdtune"


def config_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder of files that this user's programs cannot make again."""
    env = os.environ if environ is None else environ
    return Path(env.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "hvdtune"


def storage_url(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the database of shared studies, HVDTUNE_STORAGE, None if it is not set."""
    return (os.environ if environ is None else environ).get("HVDTUNE_STORAGE") or None


def workbench_python(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the Python with the workbench, HVDTUNE_WORKBENCH_PYTHON, None if it is not set."""
    named = (os.environ if environ is None else environ).get("HVDTUNE_WORKBENCH_PYTHON")
    return Path(named).expanduser() if named else None


def training_python(environ: Mapping[str, str] | None = None) -> str:
    """Return the facts of the interpreter of the ranks, "" if it is this one."""
    return (os.environ if environ is None else environ).get(TRAINING_PYTHON, "")


def own_environ(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return this process's environment (or `environ`) without what its launcher has set.

    It is for processes that are not ranks of this process's job.
    """
    return without_launch(os.environ if environ is None else environ)


def inherited_environ() -> dict[str, str]:
    """Return this process's environment unchanged, for processes that replace this one."""
    return dict(os.environ)


def worker_environ(
    variables: Mapping[str, str], environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment of a new rank: this process's (or `environ`) with `variables` on top.

    The folder of hvdtune.alias is at the end of PYTHONPATH. The tuner's database, whose URL may
    contain a password, and variables of another launcher are removed.
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


def set_place(place: Mapping[str, int]) -> None:
    """Correct the variables of this rank's place, which its launcher has set.

    Args:
        place: `rank`, `size`, `local_rank`, `local_size`, `cross_rank` and `cross_size`.
    """
    names = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
    for name, value in place_variables(*(place[name] for name in names)).items():
        give(os.environ, name, value)


def is_elastic_worker(environ: Mapping[str, str] | None = None) -> bool:
    """Return True in a worker of an elastic job."""
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


def _horovod_timeline(env: Mapping[str, str], config: Config) -> tuple[str, str]:
    """Return the trace that the ranks write for HOROVOD_TIMELINE, and why it is ignored.

    `hvdtune run` writes the trace of its own HOROVOD_TIMELINE; mpirun does not.
    """
    path = str(launcher_values(env).get("HOROVOD_TIMELINE", ""))
    launch = Launch.of(env)
    launched = config.rendezvous.port != 0
    if launched and (launch is None or not launch.is_changed(env, "HOROVOD_TIMELINE")):
        return "", ""
    if path and launched and config.recording.timeline:
        return "", "`hvdtune run` records this job's timeline already"
    return path, ""


def _meeting(env: Mapping[str, str], place: LauncherPlace) -> MeetingPoint | None:
    """Return the meeting point of the ranks, None for a process that is alone."""
    from hvdtune.core.config.meeting_point import read_meeting_point

    return None if place.size == 1 else read_meeting_point(env, place, cache_folder(env))


def _is_complete(place: LauncherPlace) -> bool:
    """Return True if rank and size are set. Raises UsageError if only one of them is."""
    # PMIx sets no size; MPI then reports it.
    if place.size_by or _mpi_launcher(place) is None:
        place.require_complete()
    return place.rank is not None and place.size is not None


def _mpi_launcher(place: LauncherPlace) -> MpiLauncher | None:
    from hvdtune.core.config import dialects

    flavour = dialects.mpi_flavour(place)
    return None if flavour is None else MpiLauncher(flavour, place.size or 0, place.rank or 0)
