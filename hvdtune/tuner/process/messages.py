"""What a tuner and the launcher that holds its job say to each other.

They are two processes of one command and speak over an inherited socket pair, which nobody else
has: what travels is pickled values of the classes below.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hvdtune.core.config.knobs import Setting
from hvdtune.core.job.channel import Formed, JobEvent
from hvdtune.errors import HvdtuneError
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.tuner.study import Study


@dataclass(frozen=True)
class RunningLaunch:
    """A job that a tuner finds running: its number, its launch and how it was formed.

    `formed` is None while its ranks have yet to find each other. `has_closed`: these ranks train no
    more, and the next ones do not yet.
    """

    job: int
    launch: int
    formed: Formed | None = None
    has_closed: bool = False


@dataclass(frozen=True)
class StartStudy:
    """Gives a new tuner its study, all but how to start a job."""

    study: Study
    run_dir: Path
    options: TuneOptions
    running: RunningLaunch | None


@dataclass(frozen=True)
class JobExit:
    """How the script ended, as an ExitReport."""

    returncode: int
    reason: str
    tail: tuple[str, ...]


@dataclass(frozen=True)
class JobEventMessage:
    """An event of the job, or how it ended; `job` counts the jobs that were started."""

    job: int
    what: JobEvent | JobExit


@dataclass(frozen=True)
class StartRequest:
    """Request: start the script, as this launch. Returns the job's number."""

    launch: int


@dataclass(frozen=True)
class ProposeRequest:
    """Request: all ranks are to adopt the setting. Returns its version.

    `formed` is how often the job's ranks have formed anew, as far as the tuner has read: what is
    meant for others than those that train is not proposed.
    """

    setting: Setting
    formed: int


@dataclass(frozen=True)
class TerminateRequest:
    """Request: end the job."""


@dataclass(frozen=True)
class Reply:
    """What a request returned, or the error it raised."""

    value: Any = None
    error: HvdtuneError | None = None


@dataclass(frozen=True)
class ProgressMessage:
    """News for the user."""

    progress: StudyProgress


@dataclass(frozen=True)
class VerdictMessage:
    """The verdict. `goes_on`: the job runs on under its setting, the good one from here."""

    verdict: Verdict
    goes_on: bool


@dataclass(frozen=True)
class SettingMessage:
    """Says that another setting has become the good one after the verdict."""

    setting: Setting


@dataclass(frozen=True)
class FailureMessage:
    """The study cannot go on."""

    error: HvdtuneError
