"""What a workflow is given: small frozen requests, and a reporter for what the user should read."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from hvdtune.errors import UsageError

if TYPE_CHECKING:
    from hvdtune.core.config.knobs import Setting, Value
    from hvdtune.launcher.elastic.chaos import ChaosPlan
    from hvdtune.launcher.elastic.slots import Cooldown
    from hvdtune.launcher.hosts import Host
    from hvdtune.launcher.mpirun import MpiJob
    from hvdtune.launcher.run import JobOptions, JobPlan
    from hvdtune.tuner.measure.progress import StudyProgress
    from hvdtune.tuner.space.targets import Adapter
    from hvdtune.tuner.space.tune_options import SamplerName


@dataclass(frozen=True)
class SettingRequest:
    """The knob values that a job starts with.

    Those of the file `profile` come first, over them the `named` ones, over these the texts
    `KNOB=VALUE` in `fix`, whose knobs a study leaves alone.
    """

    profile: Path | None = None
    named: Setting = field(default_factory=dict)
    fix: tuple[str, ...] = ()

    def profile_setting(self) -> dict[str, Value]:
        """The setting of the profile, {} without one. Raises UsageError."""
        if self.profile is None:
            return {}
        from hvdtune.tuner.results.profile import read_profile

        return read_profile(self.profile).setting

    def core_setting(self) -> dict[str, Value]:
        """The values of hvdtune's own knobs, checked. Raises UsageError."""
        from hvdtune.core.config.knobs import parse_assignments, validate

        setting = {**self.profile_setting(), **self.named}
        if self.fix:
            setting |= parse_assignments(self.fix)
        return validate(setting) if setting else setting


@dataclass(frozen=True)
class JobRequest:
    """What runs.

    `words` are the command as the user gave it, `plan` says which rank runs where, `options` how
    hvdtune's own ranks are run; ranks of another runtime than hvdtune (`adapter`) take only the
    variables in it. `placement` are the words that place the ranks, as in `-np 2`. With `restart`
    the command is started once per measurement.
    """

    words: tuple[str, ...]
    plan: JobPlan
    options: JobOptions
    values: SettingRequest = SettingRequest()
    adapter: Adapter = "hvdtune"
    placement: tuple[str, ...] = ()
    restart: RestartRequest | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the hosts, each once, sorted."""
        return tuple(sorted({slot.host for slot in self.plan.slots}))


@dataclass(frozen=True)
class MpiRequest:
    """A job that mpirun starts; `variables` go to its ranks."""

    job: MpiJob
    variables: Mapping[str, str]
    values: SettingRequest = SettingRequest()


@dataclass(frozen=True)
class ElasticRequest:
    """A job whose ranks may come and go.

    It runs on `hosts`, or on those that `discovery_script` prints, which have `slots_per_host`
    where it prints no number. It needs `min_ranks` and uses at most `max_ranks` slots (None: all).
    `variables` go to its ranks; `chaos` are faults that are made; with `resume` the job of the run
    folder is taken over; `timeline_...` as in launcher.run.JobOptions, the rest as in
    launcher.elastic.membership.ElasticLimits.
    """

    words: tuple[str, ...]
    command: tuple[str, ...]
    hosts: tuple[Host, ...]
    discovery_script: str | None
    slots_per_host: int
    min_ranks: int
    max_ranks: int | None
    elastic_timeout_s: float
    reset_limit: int | None
    cooldown: Cooldown | None
    variables: Mapping[str, str]
    chaos: ChaosPlan | None = None
    values: SettingRequest = SettingRequest()
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    resume: bool = False
    timeline_max_mb: float = 0.0
    timeline_when_full: str = ""
    timeline_steps: str = ""


@dataclass(frozen=True)
class StudyRequest:
    """A search for a better setting; None means the default of its kind of study.

    `knobs` ("A,B") are the only ones to be searched, `space` is a YAML file of their ranges,
    `storage` the URL of a database that holds the study, under `name`. `use_earlier`: what earlier
    launches of the job have shown counts. `log_file` is a CSV table
    of the trials for `autotune`. `launch_s` is as in RestartRequest, for the part of a study in two
    scopes that starts the command again. A study `in_background` (`--autotune`) leaves the ranks'
    output on the terminal.
    """

    trials: int | None = None
    time_budget_s: float | None = None
    seed: int = 0
    knobs: str | None = None
    space: Path | None = None
    objectives: tuple[str, ...] = ("step_time",)
    sampler: SamplerName | None = None
    step_budget: int | None = None
    train_steps: int | None = None
    watch_drift: bool = True
    probe_share: float | None = None
    use_earlier: bool = True
    keep_timelines: int | None = None
    storage: str | None = None
    name: str | None = None
    log_file: Path | None = None
    launch_s: float | None = None
    in_background: bool = False


@dataclass(frozen=True)
class RestartRequest:
    """How a command is measured by starting it again.

    `vary` are environment variables to tune, as `NAME=A,B`; `metric_regex` finds the step times in
    the output; `launch_s` is how long each launch is measured.
    """

    vary: tuple[str, ...] = ()
    metric_regex: str | None = None
    launch_s: float | None = None


@dataclass(frozen=True)
class ComparisonRequest:
    """Setting B against setting A, as files or values of knobs; without B, A against itself.

    With `variant` ("NAME" or "NAME=VALUE") B is A with another value of a knob of the script. None
    as A is what the command has by itself. `pairs` None: as many as a gain of 1 % takes.
    """

    a: Path | Setting | None = None
    b: Path | Setting | None = None
    variant: str | None = None
    pairs: int | None = None
    time_budget_s: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class TraceRequest:
    """Where the trace of all ranks is written, and whether as Horovod writes it (with cycles).

    Raises UsageError when `path` is a directory.
    """

    path: Path | None = None
    horovod: bool = False
    mark_cycles: bool = False

    def __post_init__(self) -> None:
        if self.path is not None and self.path.is_dir():
            raise UsageError(f"the trace cannot be written to {self.path}: it is a directory")


@dataclass(frozen=True)
class OutputRequest:
    """What a run leaves: its folder, and a folder with the output of each rank.

    `timestamps` precede the ranks' lines on the terminal; `verbose` shows process ids, and the
    ranks' output during a study.
    """

    folder: Path | None = None
    rank_files: Path | None = None
    timestamps: bool = False
    verbose: bool = False
    trace: TraceRequest = TraceRequest()


@dataclass(frozen=True)
class RunRequest:
    """One use of the launcher: what runs, what is measured, and where the results go.

    Attributes:
        job: the command and its ranks.
        measurement: a study or a comparison; None runs the job once.
        output: the run folder, the ranks' output and the trace.
    """

    job: JobRequest | MpiRequest | ElasticRequest
    measurement: StudyRequest | ComparisonRequest | None = None
    output: OutputRequest = OutputRequest()


@dataclass(frozen=True)
class RecordRequest:
    """What is recorded of a running job: `steps`, `seconds` or, both None, until Ctrl-C.

    Each rank keeps the latest `max_mb` megabytes meanwhile.
    """

    steps: int | None = None
    seconds: float | None = None
    max_mb: float = 256.0


class ProgressView(Protocol):
    """A study's progress, and the ranks' output meanwhile. Both may come from any thread."""

    def show(self, progress: StudyProgress) -> None: ...
    def write(self, stream: str, text: bytes) -> None: ...


class StatusReporter(Protocol):
    """Takes what a user should read, one sentence at a time.

    `write` takes the output of ranks that nothing measures: "stdout" or "stderr", whole lines.
    """

    def info(self, text: str) -> None: ...
    def warning(self, text: str) -> None: ...
    def error(self, text: str) -> None: ...
    def write(self, stream: str, text: bytes) -> None: ...
    def progress(self, default: Setting) -> AbstractContextManager[ProgressView]: ...


def report_exit(reporter: StatusReporter, code: int, reason: str) -> None:
    """Says why a job ended, if there is anything to say."""
    if reason:
        (reporter.error if code else reporter.warning)(reason)
