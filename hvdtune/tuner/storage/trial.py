"""What a trial is, as it ends and as it is read back."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from optuna.trial import FrozenTrial, TrialState

from hvdtune.core.config.knobs import Value
from hvdtune.plural import counted
from hvdtune.tuner.space.search_space import Space
from hvdtune.tuner.space.unit_cube import to_cube
from hvdtune.tuner.stats.estimates import Observation, from_percent
from hvdtune.tuner.stats.posterior import Belief
from hvdtune.tuner.storage.pair_log import Pair

# Of the attributes by which Optuna knows a trial's artifacts.
ARTIFACT_PREFIX: Final = "artifacts:"

State = Literal["waiting", "running", "complete", "pruned", "failed"]

_STATES: Final[Mapping[TrialState, State]] = {
    TrialState.WAITING: "waiting",
    TrialState.RUNNING: "running",
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
}


@dataclass(frozen=True)
class Further:
    """What a trial has for an objective beside the first."""

    log_ratio: float
    log_stderr: float


@dataclass(frozen=True)
class TrialOutcome:
    """How a trial ended; log ratio and its standard error are None where nothing was measured.

    `further` has the objectives beside the first.
    """

    state: Literal["complete", "pruned", "failed"]
    log_ratio: float | None
    log_stderr: float | None
    pairs: int
    reason: str = ""
    further: Mapping[str, Further] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialView:
    """A trial as stored; times are UNIX seconds, gain and stderr None where nothing was measured.

    `stderr_percent` is in percent points. A duplicate repeats the result of an earlier trial
    whose setting it shares. `by` names the tuner that measured it where several share a study,
    "" where there is one. `timeline` is the artifact that shows its last pair, "" for none.
    """

    number: int
    state: State
    setting: Mapping[str, Value]
    gain_percent: float | None
    stderr_percent: float | None
    pairs: int
    reason: str
    is_duplicate: bool
    began_unix: float | None
    ended_unix: float | None
    further: Mapping[str, Further] = field(default_factory=dict)
    by: str = ""
    timeline: str = ""

    @property
    def log_ratio(self) -> float:
        """ln(default / setting) of the step time; 0 where nothing was measured."""
        return 0.0 if self.gain_percent is None else from_percent(self.gain_percent)

    @property
    def log_ratios(self) -> list[float]:
        """The log ratios of all objectives, in their order."""
        return [self.log_ratio, *(each.log_ratio for each in self.further.values())]

    @property
    def log_stderr(self) -> float:
        """Standard error of the log ratio; 0 where nothing was measured."""
        return 0.0 if self.stderr_percent is None else self.stderr_percent / 100.0

    @property
    def is_measured(self) -> bool:
        """Return whether it has an outcome of its own."""
        return self.state in ("complete", "pruned", "failed") and not self.is_duplicate


@dataclass(frozen=True)
class StudyView:
    """A study as it stands on disk; `verdict` is None until there is one.

    `noise_floor_percent` is over `noise_floor_pairs` pairs, as many as a verification takes at
    least (None: the study does not say how many); that in the text of a verdict is over the pairs
    which that rests on. `beliefs` are those of trials by number, from the end of the search on; the
    default's gain is 0 by definition, and of hopeless settings only the readings are kept.
    """

    trials: tuple[TrialView, ...]
    pairs: tuple[Pair, ...]
    noise_floor_percent: float | None
    default: Mapping[str, Value] | None
    verdict: Mapping[str, Any] | None
    noise_floor_pairs: int | None = None
    beliefs: Mapping[int, Belief] = field(default_factory=dict)

    @property
    def trials_text(self) -> str:
        """Return the number of trials, by state and by kind of result."""
        states = Counter(trial.state for trial in self.trials)
        text = counted(len(self.trials), "trial")
        if states:
            text += f" ({', '.join(f'{count} {state}' for state, count in states.items())})"
        kinds = Counter(self._kind_of(trial) for trial in self.trials)
        said = [f"{kinds[kind]} {words}" for kind, words in _TRIAL_KINDS.items() if kinds[kind]]
        return f"{text}: {', '.join(said)}" if said else text

    def _kind_of(self, trial: TrialView) -> str:
        if trial.is_duplicate:
            return "duplicate"
        if not trial.pairs:
            return "no pair"
        return "default" if trial.setting == self.default else "other"


_TRIAL_KINDS: Final = {
    "default": "of the default",
    "other": "of other settings",
    "duplicate": "of a setting or fusion plan measured before",
    "no pair": "without a pair",
}


def view_trials(trials: Iterable[FrozenTrial]) -> list[TrialView]:
    """The trials, without those that a dead tuner left: they were asked again."""
    return [view_trial(trial) for trial in trials if not trial.user_attrs.get("zombie")]


def view_trial(trial: FrozenTrial) -> TrialView:
    """One of Optuna's trials as `StudyStore` writes them."""
    attributes = trial.user_attrs
    began, ended = trial.datetime_start, trial.datetime_complete
    return TrialView(
        number=trial.number,
        state=_STATES[trial.state],
        setting=attributes.get("setting", {}),
        gain_percent=attributes.get("gain_percent"),
        stderr_percent=attributes.get("stderr"),
        pairs=attributes.get("pairs", 0),
        reason=attributes.get("state_reason", ""),
        is_duplicate="duplicate_of" in attributes,
        began_unix=None if began is None else began.timestamp(),
        ended_unix=None if ended is None else ended.timestamp(),
        further={name: Further(**each) for name, each in attributes.get("further", {}).items()},
        by=attributes.get("by", ""),
        timeline=next(iter(artifacts_of(trial)), ""),
    )


def observations(trials: Sequence[FrozenTrial], space: Space) -> dict[int, Observation]:
    """The results of the ended trials by number; the default's gain is 0 by definition.

    A tuner that is killed while it ends a trial leaves what it has read in a trial that is asked
    again: that counts once, in the other.
    """
    found = {}
    for trial in trials:
        if trial.user_attrs.get("zombie") or not trial.state.is_finished():
            continue
        gain, stderr = trial.user_attrs.get("gain_percent"), trial.user_attrs.get("stderr")
        inside = set(trial.params) >= {axis.knob.name for axis in space.axes}
        if gain is None or stderr is None or "duplicate_of" in trial.user_attrs or not inside:
            continue
        point = to_cube(space, trial.params)
        if trial.user_attrs.get("setting") == space.default:
            found[trial.number] = Observation(point, 0.0, 0.0)
        else:
            found[trial.number] = Observation(point, math.log1p(gain / 100), stderr / 100)
    return found


def artifacts_of(trial: FrozenTrial) -> list[str]:
    """The ids of a trial's artifacts, which are the names of their files."""
    attributes = trial.system_attrs
    prefix = ARTIFACT_PREFIX
    return [key.removeprefix(prefix) for key in attributes if key.startswith(prefix)]
