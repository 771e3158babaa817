"""The Optuna study of a run: RUN/study.db, or one in a database that several tuners share.

Reading (`read_study`) needs neither a running tuner nor a lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import optuna
import sqlalchemy
from optuna.exceptions import UpdateFinishedTrialError
from optuna.samplers import BaseSampler, GridSampler, RandomSampler
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

from hvdtune.core.config.knobs import Setting, Value
from hvdtune.errors import StudyError
from hvdtune.tuner.space.search_space import Space, key_of
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.stats.estimates import Estimate, Observation, to_percent
from hvdtune.tuner.storage.database import (
    as_study_error,
    close_storage,
    file_url,
    open_storage,
    parse_url,
    shown_url,
)
from hvdtune.tuner.storage.leases import Lease, LeaseTable
from hvdtune.tuner.storage.ownership import open_or_create, refuse_foreign_file
from hvdtune.tuner.storage.pair_log import Pair, PairLog
from hvdtune.tuner.storage.shared_study import (
    SharedPairLog,
    SharedStudy,
    StudyMembership,
    adopt_reference,
    read_reference,
)
from hvdtune.tuner.storage.study_reader import PAIRS_FILE as PAIRS_FILE
from hvdtune.tuner.storage.study_reader import STUDY_FILE as STUDY_FILE
from hvdtune.tuner.storage.study_reader import STUDY_NAME as STUDY_NAME
from hvdtune.tuner.storage.study_reader import read_study as read_study
from hvdtune.tuner.storage.study_reader import refuse_foreign
from hvdtune.tuner.storage.trial import Further as Further
from hvdtune.tuner.storage.trial import StudyView as StudyView
from hvdtune.tuner.storage.trial import TrialOutcome as TrialOutcome
from hvdtune.tuner.storage.trial import TrialView as TrialView
from hvdtune.tuner.storage.trial import observations, view_trials

if TYPE_CHECKING:
    from typing_extensions import Self

LOCK_FILE: Final = "tuner.lock"
# How often a tuner asks anew when others are measuring what it was given, and how long it then
# waits for them.
_BUSY_ASKS: Final = 10
_BUSY_WAIT_S: Final = 60.0
_BUSY_POLL_S: Final = 0.5


# Makes a sampler, of a seed and of a key that is equal for settings of which one is enough.
MakeSampler = Callable[[int, Callable[[Setting], str]], BaseSampler]


class KeepsTimelines(Protocol):
    """Keeps the timeline of a trial that is about to end, and drops those it no longer wants."""

    def keep(self, storage: RDBStorage, trial: optuna.Trial, setting: Setting) -> None: ...
    def thin_out(self, storage: RDBStorage, trials: list[FrozenTrial]) -> None: ...


@dataclass(frozen=True)
class EndedStudy:
    """What a tuner of a shared study has come to: its name, its verdict as JSON, all its pairs."""

    name: str
    verdict: Mapping[str, Any]
    pairs: tuple[Pair, ...]


class StudyStore:
    """The writing side, used by the tuner's thread only; a lock keeps a second tuner out.

    Opening a directory that holds a study continues it: trials a dead tuner left running are
    marked as failed and put in the queue again. With `share` the study is in the database of
    several tuners, and all that this one sees are trials comparable with its own. `sampler` makes
    what proposes settings; without it they are drawn at random. One that `awaits_script` is given
    its whole space by `begin`, before anything is asked of it.

    Raises StudyError when the study is of another space or default, in use, or unreadable.
    """

    def __init__(
        self,
        run_dir: Path,
        space: Space,
        options: TuneOptions,
        *,
        first_settings: Sequence[Setting] = (),
        share: SharedStudy | None = None,
        timelines: KeepsTimelines | None = None,
        sampler: MakeSampler | None = None,
        awaits_script: bool = False,
    ) -> None:
        self.space = space
        self.plan_key: Callable[[Setting], str] = key_of
        self._first_settings = first_settings
        self._run_dir = run_dir
        self._timelines = timelines
        self._make_sampler = sampler or (lambda seed, key: RandomSampler(seed=seed))
        self._trials: dict[int, optuna.Trial] = {}
        self._busy: dict[str, Lease] = {}
        self._membership: StudyMembership | None = None
        with contextlib.ExitStack() as undo:
            self._lock_fd = lock_study(run_dir)
            undo.callback(os.close, self._lock_fd)
            url = self._place(share)
            with as_study_error(self._where):
                self._storage = open_storage(url, create=True)
                undo.callback(close_storage, self._storage)
                self._study = self._open(STUDY_NAME if share is None else share.study, options)
                if share is not None:
                    self._membership = self._join(share)
                    undo.callback(self._membership.leave)
                if not awaits_script:
                    self._prepare(options)
            undo.pop_all()

    def begin(
        self,
        space: Space,
        options: TuneOptions,
        first_settings: Sequence[Setting],
        sampler: MakeSampler,
    ) -> None:
        """Takes the space with the knobs that the script has declared.

        Raises StudyError when the study is one of other knobs of the script.
        """
        self.space, self._first_settings, self._make_sampler = space, first_settings, sampler
        with as_study_error(self._where):
            known = self._study.user_attrs.get("script_space", "")
            own = space.script_signature()
            if known != own:
                if self._study.get_trials(deepcopy=False):
                    raise StudyError(
                        f"{self._where} holds a study whose script knobs differ from those that "
                        "the script declares now; choose another run folder or study"
                    )
                self._study.set_user_attr("script_space", own)
                self._study.set_user_attr("default_setting", dict(space.default))
            self._prepare(options)

    @property
    def measured_trials(self) -> int:
        """Trials with an outcome of their own: no duplicates, none that a dead tuner left."""
        return sum(trial.is_measured for trial in self.trials())

    def trials(self) -> list[TrialView]:
        """All trials but those a dead tuner left running."""
        with as_study_error(self._where):
            trials = self._study.get_trials(deepcopy=False)
        return view_trials(trial for trial in trials if self._is_comparable(trial))

    def best(self) -> Estimate | None:
        """The completed trial with the largest mean: for pruning, never for a verdict.

        Without the default, whose A/A mean is noise around a gain known to be zero, and without
        duplicates, which may be its.
        """
        default = self.space.default
        complete = [
            trial
            for trial in self.trials()
            if trial.state == "complete" and not trial.is_duplicate and trial.setting != default
        ]
        if not complete:
            return None
        best = max(complete, key=lambda trial: trial.log_ratio)
        reach = 2 * best.log_stderr
        mean = best.log_ratio
        return Estimate(mean, best.log_stderr, mean - reach, mean + reach, best.pairs, 0)

    @property
    def is_exhausted(self) -> bool:
        """Return whether the sampler has no setting left that it has not proposed."""
        sampler = self._study.sampler
        with as_study_error(self._where):
            return isinstance(sampler, GridSampler) and sampler.is_exhausted(self._study)

    def observations(self) -> dict[int, Observation]:
        """The results of the ended trials by number, as points of the unit cube."""
        with as_study_error(self._where):
            trials = self._study.get_trials(deepcopy=False)
            return observations([t for t in trials if self._is_comparable(t)], self.space)

    def ask(self) -> tuple[int, dict[str, Value]]:
        """The next trial's number and setting.

        Where several tuners share the study it is one that no other is measuring, unless they
        leave nothing else: then it waits for them for a while.
        """
        with as_study_error(self._where):
            self._requeue_zombies()
            for _ in range(_BUSY_ASKS):
                trial, setting = self._ask()
                lease = self._leased_by_another(trial, setting)
                if lease is None:
                    return trial.number, setting
                self._set_aside(trial, lease)
            trial, setting = self._ask()
            deadline = time.monotonic() + _BUSY_WAIT_S
            while self._leased_by_another(trial, setting) and time.monotonic() < deadline:
                time.sleep(_BUSY_POLL_S)
            return trial.number, setting

    def is_known(self, setting: Setting) -> bool:
        """Return whether this setting has an outcome, or another tuner is measuring it."""
        return self._known(setting) is not None or key_of(setting) in self._busy

    def tell(self, number: int, outcome: TrialOutcome) -> None:
        """End a trial that `ask` returned."""
        with as_study_error(self._where):
            trial = self._trials.pop(number)
            # Taken for dead, its trial was given to another tuner; its pairs count there.
            with contextlib.suppress(UpdateFinishedTrialError):
                self._tell(trial, outcome)
            if self._membership is not None:
                self._membership.release(number)
            if self._timelines is not None:
                self._timelines.thin_out(self._storage, self._own_trials())

    def tell_duplicate(self, number: int, setting: Setting) -> None:
        """End a trial with the outcome of the earlier trial of the same setting."""
        known = self._known(setting)
        if known is None:
            with as_study_error(self._where):
                self._set_aside(self._trials.pop(number), self._busy.pop(key_of(setting)))
            return
        assert known.state in ("complete", "pruned", "failed")
        with as_study_error(self._where):
            self._trials[number].set_user_attr("duplicate_of", known.number)
        measured = known.gain_percent is not None
        self.tell(
            number,
            TrialOutcome(
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
        with as_study_error(self._where):
            attributes = self._study.user_attrs
        for key in self._keys(name):
            if key in attributes:
                return attributes[key]
        return None

    def set(self, name: str, value: Any) -> None:
        """Set a study attribute to a JSON value."""
        with as_study_error(self._where):
            for key in {name, *self._keys(name)}:
                self._study.set_user_attr(key, value)

    def ended_by_others(self) -> list[EndedStudy]:
        """What other tuners of a shared study have come to, the one that measured last at the end.

        None of them where the study is not shared.
        """
        if self._membership is None:
            return []
        with as_study_error(self._where):
            attributes = self._study.user_attrs
            ended = [
                EndedStudy(name, json.loads(attributes[f"verdict:{tuner}"]), tuple(pairs))
                for tuner, (name, pairs) in self._membership.pairs_by_tuner().items()
                if f"verdict:{tuner}" in attributes and pairs
            ]
        return sorted(ended, key=lambda each: each.pairs[-1].t_unix)

    def open_pairs(self) -> PairLog:
        """RUN/pairs.jsonl; where the study is shared, pairs of other tuners count beside its own.

        Raises StudyError when it cannot be read.
        """
        path = self._run_dir / PAIRS_FILE
        return PairLog(path) if self._membership is None else SharedPairLog(path, self._membership)

    def close(self) -> None:
        """Close the database and let another tuner in; calling it again does nothing."""
        if self._lock_fd >= 0:
            if self._membership is not None:
                self._membership.leave()
            close_storage(self._storage)
            os.close(self._lock_fd)
            self._lock_fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _place(self, share: SharedStudy | None) -> sqlalchemy.URL:
        path = self._run_dir / STUDY_FILE
        if share is None:
            reference = read_reference(self._run_dir)
            if reference is not None:
                raise StudyError(
                    f"{self._run_dir} belongs to {reference}; set HVDTUNE_STORAGE to it again"
                )
            refuse_foreign_file(path)
            self._where = str(path)
            return file_url(path)
        if path.exists():
            raise StudyError(f"{path} is not a shared study; choose another run folder")
        url = parse_url(share.url)
        self._where = shown_url(url)
        refuse_foreign(url, share.study)
        return url

    def _open(self, name: str, options: TuneOptions) -> optuna.Study:
        study = open_or_create(self._storage, name, len(options.objectives), self._where)
        signature = " ".join([self.space.signature(), *options.objectives[1:]])
        first = options.objectives[0]
        known = study.user_attrs.get("space")
        # Studies of earlier versions do not name their first objective.
        same_objective = study.user_attrs.get("objective", first) == first
        if known is None and same_objective:
            study.set_user_attr("space", signature)
            study.set_user_attr("objective", first)
            study.set_user_attr("default_setting", dict(self.space.default))
        elif known != signature or not same_objective:
            another = "run folder" if name == STUDY_NAME else "name for the study"
            raise StudyError(
                f"{self._where} holds a study with different knobs, objectives or a different "
                f"default; choose another {another}"
            )
        return study

    def _join(self, share: SharedStudy) -> StudyMembership:
        reference = adopt_reference(self._run_dir, share)
        engine, study_id = self._storage.engine, self._study._study_id
        LeaseTable.make_tables(engine)
        if not self._study.get_trials(deepcopy=False):
            # SQLite gives the number of a deleted study to the next.
            LeaseTable(engine, study_id, share.dead_after_s).prune_stale()
        return StudyMembership(engine, study_id, share, reference.tuner, self._run_dir)

    def _prepare(self, options: TuneOptions) -> None:
        trials = self._study.get_trials(deepcopy=False)
        if not trials:
            for setting in (self.space.default, *self._first_settings):
                self._study.enqueue_trial(self.space.params_of(setting))
        # Tuners that share a study must not draw the same points.
        own = 0 if self._membership is None else int(self._membership.tuner[:6], 16)
        # A resumed study must not draw its first points a second time.
        seed = options.seed + len(trials) + own
        self._study.sampler = self._make_sampler(seed, lambda setting: self.plan_key(setting))
        self._requeue_zombies()

    def _ask(self) -> tuple[optuna.Trial, dict[str, Value]]:
        trial = self._study.ask()
        if self._membership is not None:
            trial.set_user_attr("tuner", self._membership.tuner)
            trial.set_user_attr("by", self._membership.name)
            trial.set_user_attr("fingerprint", self._membership.fingerprint)
        setting = self.space.suggest(trial)
        trial.set_user_attr("setting", setting)
        self._trials[trial.number] = trial
        return trial, setting

    def _leased_by_another(self, trial: optuna.Trial, setting: Setting) -> Lease | None:
        self._busy.pop(key_of(setting), None)
        if self._membership is None:
            return None
        lease = self._membership.acquire(setting, trial.number)
        if lease is not None:
            self._busy[key_of(setting)] = lease
        return lease

    def _set_aside(self, trial: optuna.Trial, lease: Lease) -> None:
        self._trials.pop(trial.number, None)
        trial.set_user_attr("duplicate_of", lease.trial)
        trial.set_user_attr(
            "state_reason", f"trial {lease.trial} of another tuner measures the same setting"
        )
        self._study.tell(trial, state=TrialState.FAIL)

    def _tell(self, trial: optuna.Trial, outcome: TrialOutcome) -> None:
        if outcome.log_ratio is not None and outcome.log_stderr is not None:
            trial.set_user_attr("gain_percent", to_percent(outcome.log_ratio))
            trial.set_user_attr("stderr", 100.0 * outcome.log_stderr)
        trial.set_user_attr("pairs", outcome.pairs)
        trial.set_user_attr("state_reason", outcome.reason)
        if outcome.further:
            further = {name: asdict(each) for name, each in outcome.further.items()}
            trial.set_user_attr("further", further)
        if self._timelines is not None and "duplicate_of" not in trial.user_attrs:
            self._timelines.keep(self._storage, trial, trial.user_attrs["setting"])
        if outcome.state == "complete":
            assert outcome.log_ratio is not None
            values = [outcome.log_ratio, *(each.log_ratio for each in outcome.further.values())]
            self._study.tell(trial, values)
        elif outcome.state == "pruned" and outcome.log_ratio is not None:
            if not outcome.further:
                trial.report(outcome.log_ratio, step=outcome.pairs)
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            self._study.tell(trial, state=TrialState.FAIL)

    def _known(self, setting: Setting) -> TrialView | None:
        key = self.plan_key(setting)
        for trial in self.trials():
            if trial.is_measured and self.plan_key(trial.setting) == key:
                return trial
        return None

    def _is_comparable(self, trial: FrozenTrial) -> bool:
        if self._membership is None:
            return True
        own = self._membership.fingerprint
        return bool(trial.user_attrs.get("fingerprint", own) == own)

    def _own_trials(self) -> list[FrozenTrial]:
        trials = self._study.get_trials(deepcopy=False)
        if self._membership is None:
            return trials
        own = self._membership.tuner
        return [trial for trial in trials if trial.user_attrs.get("tuner") == own]

    def _keys(self, name: str) -> tuple[str, ...]:
        if self._membership is None:
            return (name,)
        return f"{name}:{self._membership.tuner}", f"{name}:{self._membership.fingerprint}"

    def _requeue_zombies(self) -> None:
        for trial in self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if trial.number not in self._trials and not self._has_living_tuner(trial):
                requeue(self._study, trial)

    def _has_living_tuner(self, trial: FrozenTrial) -> bool:
        if self._membership is None:
            return False
        tuner = trial.user_attrs.get("tuner")
        # Without the attribute it was asked a moment ago.
        return tuner is None or (
            tuner != self._membership.tuner and tuner in self._membership.alive()
        )


def requeue(study: optuna.Study, trial: FrozenTrial) -> None:
    """Marks a trial that a dead tuner left running as failed and puts its setting in the queue."""
    params = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
    # Queued first: a tuner killed between the two leaves a duplicate, not a loss.
    if params:
        study.enqueue_trial(params, user_attrs={"resumes": trial.number})
    # Another tuner may be about to do the same.
    with contextlib.suppress(UpdateFinishedTrialError):
        storage, number = study._storage, trial._trial_id
        storage.set_trial_user_attr(number, "zombie", True)
        storage.set_trial_user_attr(number, "state_reason", "the tuner was stopped")
        storage.set_trial_state_values(number, state=TrialState.FAIL)


def lock_study(run_dir: Path) -> int:
    """Keeps other tuners out of a run folder until the descriptor that it returns is closed.

    Raises StudyError when one is working there, or the folder cannot be written.
    """
    path = run_dir / LOCK_FILE
    try:
        lock_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StudyError(f"cannot write {path}: {error.strerror}") from None
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock_fd)
        raise StudyError(f"another tuner is working in {run_dir}") from None
    return lock_fd


def _same_as(known: TrialView, setting: Setting) -> str:
    what = "setting" if key_of(known.setting) == key_of(setting) else "fusion plan"
    return f"the same {what} as trial {known.number}"
