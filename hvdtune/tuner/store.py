"""RUN/study.db: the Optuna study, written by one tuner and read by anyone.

Reading (`read_study`) needs neither a running tuner nor a lock.
"""

import contextlib
import fcntl
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import optuna
import sqlalchemy
from optuna.trial import FrozenTrial, TrialState

from hvdtune.core.knobs import Setting, Value
from hvdtune.errors import StudyError
from hvdtune.tuner.gp import Observation
from hvdtune.tuner.options import TuneOptions
from hvdtune.tuner.pairs import Pair, read_pairs
from hvdtune.tuner.samplers import GridSampler, make_sampler, observations
from hvdtune.tuner.space import Space, key_of
from hvdtune.tuner.statistics import Estimate, from_percent, to_percent

STUDY_NAME = "hvdtune"
STUDY_FILE = "study.db"
PAIRS_FILE = "pairs.jsonl"
_BUSY_TIMEOUT_S = 60


@dataclass(frozen=True)
class Further:
    """What a trial has for an objective beside the first."""

    log_ratio: float
    log_stderr: float


@dataclass(frozen=True)
class Outcome:
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
    whose setting it shares.
    """

    number: int
    state: Literal["waiting", "running", "complete", "pruned", "failed"]
    setting: Mapping[str, Value]
    gain_percent: float | None
    stderr_percent: float | None
    pairs: int
    reason: str
    is_duplicate: bool
    began_unix: float | None
    ended_unix: float | None
    further: Mapping[str, Further] = field(default_factory=dict)

    @property
    def log_ratio(self) -> float:
        """ln(default / setting) of the step time; 0 where nothing was measured."""
        return 0.0 if self.gain_percent is None else from_percent(self.gain_percent)

    @property
    def log_ratios(self) -> list[float]:
        """Of every objective, the first one's first."""
        return [self.log_ratio, *(each.log_ratio for each in self.further.values())]

    @property
    def log_stderr(self) -> float:
        """Standard error of the log ratio; 0 where nothing was measured."""
        return 0.0 if self.stderr_percent is None else self.stderr_percent / 100.0


@dataclass(frozen=True)
class StudyView:
    """A study as it stands on disk; `verdict` is None until there is one."""

    trials: tuple[TrialView, ...]
    pairs: tuple[Pair, ...]
    noise_floor_percent: float | None
    default: Mapping[str, Value] | None
    verdict: Mapping[str, Any] | None


class StudyStore:
    """The writing side, used by the tuner's thread only; a lock keeps a second tuner out.

    Opening a directory that holds a study continues it: trials a dead tuner left running are
    marked as failed and put in the queue again.

    Raises StudyError when the study is of another space or default, in use, or unreadable.
    """

    def __init__(
        self,
        run_dir: Path,
        space: Space,
        options: TuneOptions,
        *,
        first_settings: Sequence[Setting] = (),
    ) -> None:
        self.space = space
        self._first_settings = first_settings
        self.plan_key: Callable[[Setting], str] = key_of
        self._path = run_dir / STUDY_FILE
        self._trials: dict[int, optuna.Trial] = {}
        with contextlib.ExitStack() as undo:
            self._lock_fd = _lock(run_dir)
            undo.callback(os.close, self._lock_fd)
            with _as_study_error(self._path):
                _make_wal(self._path)
                self._storage = _storage(self._path)
                undo.callback(self._storage.engine.dispose)
                self._study = self._open(options)
                self._requeue_zombies()
            undo.pop_all()

    @property
    def measured_trials(self) -> int:
        """Trials with an outcome of their own: no duplicates, none that a dead tuner left."""
        return sum(
            trial.state in ("complete", "pruned", "failed") and not trial.is_duplicate
            for trial in self.trials()
        )

    def trials(self) -> list[TrialView]:
        """All trials but those a dead tuner left running."""
        with _as_study_error(self._path):
            return _views(self._study.get_trials(deepcopy=False))

    def best(self) -> Estimate | None:
        """The completed trial with the largest mean: for pruning, never for a verdict.

        Without the default, whose A/A mean is noise around a gain known to be zero.
        """
        default = self.space.default
        complete = [
            trial
            for trial in self.trials()
            if trial.state == "complete" and trial.setting != default
        ]
        if not complete:
            return None
        best = max(complete, key=lambda trial: trial.log_ratio)
        reach = 2 * best.log_stderr
        mean = best.log_ratio
        return Estimate(mean, best.log_stderr, mean - reach, mean + reach, best.pairs, 0)

    @property
    def is_exhausted(self) -> bool:
        """Whether the sampler has no setting left that it has not proposed."""
        sampler = self._study.sampler
        with _as_study_error(self._path):
            return isinstance(sampler, GridSampler) and sampler.is_exhausted(self._study)

    def observations(self) -> list[Observation]:
        """What the ended trials say, as points of the unit cube."""
        with _as_study_error(self._path):
            return observations(self._study.get_trials(deepcopy=False), self.space)

    def ask(self) -> tuple[int, dict[str, Value]]:
        """The next trial's number and setting."""
        with _as_study_error(self._path):
            trial = self._study.ask()
            setting = self.space.suggest(trial)
            trial.set_user_attr("setting", setting)
            self._trials[trial.number] = trial
            return trial.number, setting

    def is_known(self, setting: Setting) -> bool:
        """Whether an earlier trial of this setting has an outcome."""
        return self._known(setting) is not None

    def tell(self, number: int, outcome: Outcome) -> None:
        """End a trial that `ask` returned."""
        with _as_study_error(self._path):
            trial = self._trials.pop(number)
            if outcome.log_ratio is not None and outcome.log_stderr is not None:
                trial.set_user_attr("gain_percent", to_percent(outcome.log_ratio))
                trial.set_user_attr("stderr", 100.0 * outcome.log_stderr)
            trial.set_user_attr("pairs", outcome.pairs)
            trial.set_user_attr("state_reason", outcome.reason)
            if outcome.further:
                further = {name: asdict(each) for name, each in outcome.further.items()}
                trial.set_user_attr("further", further)
            if outcome.state == "complete":
                assert outcome.log_ratio is not None
                values = [outcome.log_ratio, *(f.log_ratio for f in outcome.further.values())]
                self._study.tell(trial, values)
            elif outcome.state == "pruned" and outcome.log_ratio is not None:
                if not outcome.further:
                    trial.report(outcome.log_ratio, step=outcome.pairs)
                self._study.tell(trial, state=TrialState.PRUNED)
            else:
                self._study.tell(trial, state=TrialState.FAIL)

    def tell_duplicate(self, number: int, setting: Setting) -> None:
        """End a trial with the outcome of the earlier trial of the same setting."""
        known = self._known(setting)
        assert known is not None
        assert known.state in ("complete", "pruned", "failed")
        with _as_study_error(self._path):
            self._trials[number].set_user_attr("duplicate_of", known.number)
        measured = known.gain_percent is not None
        self.tell(
            number,
            Outcome(
                known.state,
                known.log_ratio if measured else None,
                known.log_stderr if measured else None,
                known.pairs,
                _same_as(known, setting),
                known.further,
            ),
        )

    def get(self, name: str) -> Any:
        """A study attribute, None when it is not set."""
        with _as_study_error(self._path):
            return self._study.user_attrs.get(name)

    def set(self, name: str, value: Any) -> None:
        """Set a study attribute to a JSON value."""
        with _as_study_error(self._path):
            self._study.set_user_attr(name, value)

    def close(self) -> None:
        """Close the database and let another tuner in; calling it again does nothing."""
        if self._lock_fd >= 0:
            self._storage.remove_session()
            self._storage.engine.dispose()
            os.close(self._lock_fd)
            self._lock_fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _known(self, setting: Setting) -> TrialView | None:
        key = self.plan_key(setting)
        for trial in self.trials():
            ended = trial.state in ("complete", "pruned", "failed")
            if ended and not trial.is_duplicate and self.plan_key(trial.setting) == key:
                return trial
        return None

    def _open(self, options: TuneOptions) -> optuna.Study:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(
            storage=self._storage,
            study_name=STUDY_NAME,
            directions=["maximize"] * len(options.objectives),
            load_if_exists=True,
        )
        signature = " ".join([self.space.signature(), *options.objectives[1:]])
        known = study.user_attrs.get("space")
        if known is None:
            study.set_user_attr("space", signature)
            study.set_user_attr("default_setting", dict(self.space.default))
        elif known != signature:
            raise StudyError(
                f"{self._path} holds a study of other knobs, objectives or another default; "
                "choose another directory"
            )
        trials = study.get_trials(deepcopy=False)
        if not trials:
            for setting in (self.space.default, *self._first_settings):
                study.enqueue_trial(self.space.params_of(setting))
        study.sampler = make_sampler(
            options.sampler,
            self.space,
            # A resumed study must not draw its first points a second time.
            seed=options.seed + len(trials),
            trials=options.trials,
            objectives=len(options.objectives),
        )
        return study

    def _requeue_zombies(self) -> None:
        for trial in self._study.get_trials(states=(TrialState.RUNNING,)):
            params = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
            # Queued first: a tuner killed between the two leaves a duplicate, not a loss.
            if params:
                self._study.enqueue_trial(params, user_attrs={"resumes": trial.number})
            self._storage.set_trial_user_attr(trial._trial_id, "zombie", True)
            self._storage.set_trial_user_attr(
                trial._trial_id, "state_reason", "the tuner was stopped"
            )
            self._study.tell(trial.number, state=TrialState.FAIL)


def read_study(run_dir: Path) -> StudyView:
    """A study as it stands, while a tuner works on it or long after.

    Raises StudyError when there is none or it cannot be read.
    """
    path = run_dir / STUDY_FILE
    if not path.exists():
        raise StudyError(f"{run_dir} holds no study ({STUDY_FILE} is missing)")
    with _as_study_error(path):
        storage = _storage(path, skip_table_creation=True)
        try:
            study = optuna.load_study(study_name=STUDY_NAME, storage=storage)
            trials = tuple(_views(study.get_trials(deepcopy=False)))
            attributes = study.user_attrs
        except KeyError:
            trials, attributes = (), {}
        finally:
            storage.remove_session()
            storage.engine.dispose()
    verdict = attributes.get("verdict")
    return StudyView(
        trials=trials,
        pairs=read_pairs(run_dir / PAIRS_FILE),
        noise_floor_percent=attributes.get("noise_floor"),
        default=attributes.get("default_setting"),
        verdict=None if verdict is None else json.loads(verdict),
    )


def _views(trials: list[FrozenTrial]) -> list[TrialView]:
    return [_view(trial) for trial in trials if not trial.user_attrs.get("zombie")]


def _view(trial: FrozenTrial) -> TrialView:
    states: dict[TrialState, Literal["waiting", "running", "complete", "pruned", "failed"]] = {
        TrialState.WAITING: "waiting",
        TrialState.RUNNING: "running",
        TrialState.COMPLETE: "complete",
        TrialState.PRUNED: "pruned",
        TrialState.FAIL: "failed",
    }
    attributes = trial.user_attrs
    began, ended = trial.datetime_start, trial.datetime_complete
    return TrialView(
        number=trial.number,
        state=states[trial.state],
        setting=attributes.get("setting", {}),
        gain_percent=attributes.get("gain_percent"),
        stderr_percent=attributes.get("stderr"),
        pairs=attributes.get("pairs", 0),
        reason=attributes.get("state_reason", ""),
        is_duplicate="duplicate_of" in attributes,
        began_unix=None if began is None else began.timestamp(),
        ended_unix=None if ended is None else ended.timestamp(),
        further={name: Further(**each) for name, each in attributes.get("further", {}).items()},
    )


def _same_as(known: TrialView, setting: Setting) -> str:
    what = "setting" if key_of(known.setting) == key_of(setting) else "fusion plan"
    return f"the same {what} as trial {known.number}"


def _storage(path: Path, *, skip_table_creation: bool = False) -> optuna.storages.RDBStorage:
    url = sqlalchemy.URL.create("sqlite", database=str(path))
    return optuna.storages.RDBStorage(
        url.render_as_string(),
        engine_kwargs={"connect_args": {"timeout": _BUSY_TIMEOUT_S}},
        skip_table_creation=skip_table_creation,
    )


def _make_wal(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S)) as database:
        database.execute("PRAGMA journal_mode=WAL")


def _lock(run_dir: Path) -> int:
    lock_fd = os.open(run_dir / "tuner.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock_fd)
        raise StudyError(f"another tuner is working in {run_dir}") from None
    return lock_fd


@contextlib.contextmanager
def _as_study_error(path: Path) -> Iterator[None]:
    try:
        yield
    except (
        sqlite3.Error,
        sqlalchemy.exc.SQLAlchemyError,
        optuna.exceptions.StorageInternalError,
    ) as error:
        cause = error.__cause__ or error
        raise StudyError(f"{path}: {str(cause).splitlines()[0]}") from error
