"""What is being tuned, as it runs: the contract of live runs and of runs by restarting."""

import hashlib
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from hvdtune.core.config.knobs import Knob, Setting
from hvdtune.core.job.channel import Formed, JobEvent
from hvdtune.errors import StudyError
from hvdtune.plural import counted
from hvdtune.tuner.measure.blocks import BlockShape, Order, PairTimes
from hvdtune.tuner.measure.pair_plan import PairCost

# Of so many pairs the median says what a pair takes at the moment.
RECENT_PAIRS: Final = 9
_LONGEST_NAME: Final = 100


class ExitStatus(Protocol):
    """How the script ended: exit code, one line about it ("" if well), its last output lines."""

    @property
    def returncode(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def tail(self) -> tuple[str, ...]: ...


class RunningJob(Protocol):
    """A started script; `terminate` returns when none of its processes is left."""

    def propose(self, setting: Setting) -> int: ...
    def next_event(self, timeout_s: float) -> JobEvent | None: ...
    def poll(self) -> ExitStatus | None: ...
    def terminate(self) -> None: ...


# Starts the script as the launch of this number.
StartJob = Callable[[int], RunningJob]


class TrialFailed(Exception):
    """This setting cannot be measured; the study goes on."""


class JobCrashed(TrialFailed):
    """The script failed while this setting was measured."""

    def __init__(self, reason: str, exit_code: int) -> None:
        super().__init__(reason)
        self.exit_code = exit_code


class ScriptEnded(Exception):
    """The script came to its natural end; what was being measured is measured again."""


class ScriptFailed(StudyError):
    """The script failed and that ended the study; `exit_code` is the script's own."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class MembershipChanged(Exception):
    """Other ranks train from here on; what was being measured says nothing of them."""

    def __init__(self, formed: Formed) -> None:
        super().__init__(f"training continues with {membership_of(formed)}")
        self.formed = formed


class RunOver(StudyError):
    """The script has ended and is not to be started again."""


@dataclass(frozen=True)
class JobInfo:
    """The ranks as they found each other."""

    size: int
    hosts: tuple[str, ...]


def membership_of(formed: Formed) -> str:
    """Return the number of ranks and their hosts: settings are compared only if these are equal."""
    slots = Counter(rank.host for rank in formed.ranks)
    hosts = ",".join(f"{host}:{number}" for host, number in sorted(slots.items()))
    return f"{counted(len(formed.ranks), 'rank')} ({hosts})"


def study_folder(run_dir: Path, membership: str) -> Path:
    """Return where an elastic job's study of a membership is, in the job's run folder."""
    hosts = membership.partition("(")[2].rstrip(")")
    name = re.sub(r"[^\w.,-]", "-", hosts)
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(hosts.encode()).hexdigest()[:8]
        name = f"{name[:_LONGEST_NAME]}-{digest}"
    return studies_folder(run_dir) / name


def studies_folder(run_dir: Path) -> Path:
    """Return where those of all memberships are."""
    return run_dir / "studies"


class Run(Protocol):
    """The script being tuned, over all its launches. One thread uses a run.

    `ensure_running`, `choose_shape`, `restart` and `measure` start the script where necessary and
    raise StudyError when it cannot be measured: it fails with the default, ends before it can be
    measured, or never takes a step. After `stop` or `detach` any of them starts it again, if it
    may be started.
    """

    @property
    def launch(self) -> int:
        """The number of the latest launch; one less than the first before any."""

    @property
    def job_info(self) -> JobInfo | None:
        """The ranks of the latest launch, None where nobody knows them."""

    @property
    def step_s(self) -> float:
        """Seconds of a step under the default, 0 before the script was started."""

    @property
    def steps_taken(self) -> int:
        """Steps of all launches, measured or not."""

    @property
    def training_steps(self) -> int:
        """Steps that the training which goes on after the study has taken; 0 if none goes on."""

    @property
    def resumable(self) -> "ResumableRun | None":
        """This run if it can go on after the study, None if every block is a launch of its own."""

    def ensure_running(self) -> None:
        """Start the script unless it is running; return when its steps are warm."""

    def choose_shape(self) -> BlockShape:
        """The size of the blocks that suits the script's step time."""

    def cost(self, shape: BlockShape) -> PairCost:
        """Seconds of pairs and launches: of the latest pairs, or by the shape before the first."""

    def expect_pace(self, factor: float) -> None:
        """Another setting is in use from here on, under which pairs take so many times as long."""

    def check_affordable(self, seconds_left: float, calibrated: int) -> None:
        """Raise StudyError if the time left is too short for an answer.

        `calibrated` pairs of the default with itself are measured already. Time counts only where
        launches are made for the study alone.
        """

    def measure(
        self,
        setting: Setting,
        order: Order,
        shape: BlockShape,
        *,
        reference: Setting | None = None,
        hopeless: float = -math.inf,
    ) -> PairTimes:
        """One pair; a run may measure only its first half, and does where that is `hopeless`.

        `reference` is what the setting is compared with, the default if None: where every block
        is a launch of its own, always the default.

        Raises ScriptEnded (measure again) or TrialFailed (give this setting up).
        """

    def pause(self, seconds: float) -> None:
        """Wait without measuring."""

    def restart(self) -> None:
        """Make sure that the next pair is measured in a fresh launch."""

    def stop(self) -> None:
        """End the script if it is running."""

    def detach(self, setting: Setting, *, revive: bool = False) -> RunningJob | None:
        """Let the script go on under the setting; None if it has ended or cannot go on.

        With `revive` it is started again if its latest launch failed.
        """


class ResumableRun(Run, Protocol):
    """A run whose training goes on after the study and can be measured again."""

    @property
    def script_knobs(self) -> tuple[Knob, ...]:
        """The knobs that the script has declared so far."""

    def take_default(self, default: Setting) -> None:
        """Take this setting as the default from here on."""

    def attach(self, job: RunningJob) -> None:
        """Measure on the job that goes on; it is not started again when it ends."""

    def run_for(self, setting: Setting, seconds: float) -> None:
        """Let the script take steps under a setting for so long, and learn their time.

        Raises RunOver when it ends.
        """
