"""Inputs of the workflows: frozen requests, and the reporter for user-facing messages."""

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
    from hvdtune.launcher.elastic.membership import ElasticLimits
    from hvdtune.launcher.hosts import Host
    from hvdtune.launcher.mpirun import MpiJob
    from hvdtune.launcher.ranks import JobOptions, JobPlan
    from hvdtune.tuner.measure.progress import StudyProgress
    from hvdtune.tuner.space.targets import Adapter
    from hvdtune.tuner.space.tune_options import SamplerName


@dataclass(frozen=True)
class SettingRequest:
    """The values of knobs at the start of a job. Later attributes override earlier ones.

    Attributes:
        profile: a profile.yaml.
        named: values by knob.
        fix: texts `KNOB=VALUE`; a study does not search these knobs.
    """

    profile: Path | None = None
    named: Setting = field(default_factory=dict)
    fix: tuple[str, ...] = ()

    def profile_setting(self) -> dict[str, Value]:
        """Return the setting of the profile, {} without one. Raises UsageError."""
        if self.profile is None:
            return {}
        from hvdtune.tuner.results.profile import read_profile

        return read_profile(self.profile).setting

    def core_setting(self) -> dict[str, Value]:
        """Return the checked values of hvdtune's own knobs. Raises UsageError."""
        from hvdtune.core.config.knobs import parse_assignments, validate

        setting = {**self.profile_setting(), **self.named}
        if self.fix:
            setting |= parse_assignments(self.fix)
        return validate(setting) if setting else setting


@dataclass(frozen=True)
class ElasticRequest:
    """Ranks that may come and go.

    Attributes:
        hosts: those without a script.
        script: prints the hosts.
        slots_per_host: slots of a host that the script prints without a number.
        limits: those that do not depend on the ranks' options.
        login: ssh's port and identity file.
        chaos: faults to inject.
        resume: continue the job of the run folder.
    """

    hosts: tuple[Host, ...]
    script: str | None
    slots_per_host: int
    limits: ElasticLimits
    login: tuple[int | None, str | None] = (None, None)
    chaos: ChaosPlan | None = None
    resume: bool = False


@dataclass(frozen=True)
class JobRequest:
    """A job.

    Attributes:
        words: the user's command.
        plan: the place of each rank; no place in an elastic job.
        options: those of hvdtune's own ranks; ranks of another runtime use only its variables.
        adapter: the runtime of the ranks.
        placement: the options that place the ranks, as in `-np 2`.
        restart: set if each measurement starts the command.
        elastic: set if ranks may come and go.
    """

    words: tuple[str, ...]
    plan: JobPlan
    options: JobOptions
    values: SettingRequest = SettingRequest()
    adapter: Adapter = "hvdtune"
    placement: tuple[str, ...] = ()
    restart: RestartRequest | None = None
    elastic: ElasticRequest | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the distinct names of the hosts, sorted."""
        return tuple(sorted({slot.host for slot in self.plan.slots}))


@dataclass(frozen=True)
class MpiRequest:
    """A job started by mpirun; `variables` are those of its ranks."""

    job: MpiJob
    variables: Mapping[str, str]
    values: SettingRequest = SettingRequest()


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
    """A search for a faster setting; None means the default of its kind of study.

    Attributes:
        knobs: names of the knobs to search; None: all.
        space: a YAML file with their ranges.
        storage: URL of a database with the study, under `study_name`.
        no_drift: do not test the setting again after the verdict.
        ignore_earlier: ignore results of earlier launches of the job.
        log_file: a CSV table of the trials, for a study in the background.
        launch_s: as in RestartRequest, for the launches of a study with DDP's knobs.
        in_background: leave the ranks' output on the terminal (--autotune).
    """

    trials: int | None = None
    time_budget_s: float | None = None
    knobs: tuple[str, ...] | None = None
    seed: int = 0
    space: Path | None = None
    objective: tuple[str, ...] = ("step_time",)
    sampler: SamplerName | None = None
    step_budget: int | None = None
    train_steps: int | None = None
    storage: str | None = None
    study_name: str | None = None
    keep_timelines: int | None = None
    no_drift: bool = False
    ignore_earlier: bool = False
    probe_share: float | None = None
    log_file: Path | None = None
    launch_s: float | None = None
    in_background: bool = False


@dataclass(frozen=True)
class RestartRequest:
    """Measurements that start the command again.

    Attributes:
        vary: environment variables to tune, as `NAME=A,B`.
        metric_regex: finds the step times in the output.
        launch_s: time to measure in each launch.
    """

    vary: tuple[str, ...] = ()
    metric_regex: str | None = None
    launch_s: float | None = None


@dataclass(frozen=True)
class ComparisonRequest:
    """A comparison of setting B with setting A; without B, of A with itself.

    Attributes:
        a: a file or values of knobs; None: the setting of the command itself.
        variant: "NAME" or "NAME=VALUE": B is A with another value of a knob of the script.
        pairs: their number; None: enough to prove a gain of 1 %.
    """

    a: Path | Setting | None = None
    b: Path | Setting | None = None
    variant: str | None = None
    pairs: int | None = None
    time_budget_s: float | None = None
    seed: int = 0


@dataclass(frozen=True)
class TraceRequest:
    """The file for the trace of all ranks, and its format. Raises UsageError for a directory.

    Attributes:
        horovod: write Horovod's format.
        mark_cycles: show cycles in Horovod's format.
    """

    path: Path | None = None
    horovod: bool = False
    mark_cycles: bool = False

    def __post_init__(self) -> None:
        if self.path is not None and self.path.is_dir():
            raise UsageError(f"cannot write the trace to {self.path}: it is a directory")


@dataclass(frozen=True)
class OutputRequest:
    """The output of a run.

    Attributes:
        folder: the run folder.
        rank_files: a folder for the output of each rank.
        timestamps: put the time before the ranks' lines on the terminal.
        verbose: show process ids, and the ranks' output during a study.
    """

    folder: Path | None = None
    rank_files: Path | None = None
    timestamps: bool = False
    verbose: bool = False
    trace: TraceRequest = TraceRequest()


@dataclass(frozen=True)
class RunRequest:
    """One use of the launcher: job, measurement and output.

    Attributes:
        job: the command and its ranks.
        measurement: a study or a comparison; None runs the job once.
        output: the run folder, the ranks' output and the trace.
    """

    job: JobRequest | MpiRequest
    measurement: StudyRequest | ComparisonRequest | None = None
    output: OutputRequest = OutputRequest()


@dataclass(frozen=True)
class RecordRequest:
    """A recording of a running job: of `steps`, of `seconds` or, if both are None, until Ctrl-C.

    Each rank keeps the latest `max_mb` megabytes.
    """

    steps: int | None = None
    seconds: float | None = None
    max_mb: float = 256.0


class ProgressView(Protocol):
    """A study's progress, and the ranks' output. Any thread may call both methods."""

    def show(self, progress: StudyProgress) -> None: ...
    def write(self, stream: str, text: bytes) -> None: ...


class StatusReporter(Protocol):
    """Receives messages for the user, one sentence per call.

    `write` receives the output of ranks outside of a study: "stdout" or "stderr", whole lines.
    """

    def info(self, text: str) -> None: ...
    def warning(self, text: str) -> None: ...
    def error(self, text: str) -> None: ...
    def write(self, stream: str, text: bytes) -> None: ...
    def progress(self, default: Setting) -> AbstractContextManager[ProgressView]: ...


def report_exit(reporter: StatusReporter, code: int, reason: str) -> None:
    """Report the reason for the end of a job, if any."""
    if reason:
        (reporter.error if code else reporter.warning)(reason)
