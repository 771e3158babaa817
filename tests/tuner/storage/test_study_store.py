import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import optuna
import pytest

from hvdtune.core.config.knobs import Value
from hvdtune.errors import StudyError
from hvdtune.tuner.space.search_space import Space, make_space
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.storage.study_list import find_place, open_study
from hvdtune.tuner.storage.study_store import StudyStore, TrialOutcome, read_study
from tests.kit.simulated_job import DEFAULT, KNOBS

OPTIONS = TuneOptions(trials=20, seed=3)


def space() -> Space:
    return make_space(KNOBS, DEFAULT)


def test_the_default_is_asked_first(tmp_path: Path) -> None:
    with StudyStore(tmp_path, space(), OPTIONS) as store:
        assert store.ask() == (0, DEFAULT)
        assert store.ask()[1] != DEFAULT


def test_the_database_is_in_wal_mode(tmp_path: Path) -> None:
    with StudyStore(tmp_path, space(), OPTIONS):
        pass

    with closing(sqlite3.connect(tmp_path / "study.db")) as database:
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)


@pytest.mark.parametrize(
    "outcome",
    [
        TrialOutcome("complete", 0.05, 0.01, 8, ""),
        TrialOutcome("pruned", -0.2, 0.02, 2, "slower than the default"),
        TrialOutcome("failed", None, None, 0, "the script failed"),
    ],
    ids=lambda outcome: outcome.state,
)
def test_an_outcome_can_be_read_while_the_tuner_works(
    tmp_path: Path, outcome: TrialOutcome
) -> None:
    with StudyStore(tmp_path, space(), OPTIONS) as store:
        number, setting = store.ask()
        store.tell(number, outcome)
        store.ask()
        store.set("noise_floor", 0.6)
        view = read_study(tmp_path)

    trial, running = view.trials
    assert (trial.state, running.state) == (outcome.state, "running")
    assert (trial.setting, trial.reason) == (setting, outcome.reason)
    assert (trial.gain_percent is None) == (outcome.log_ratio is None)
    assert trial.log_ratio == pytest.approx(outcome.log_ratio or 0.0)
    assert trial.log_stderr == pytest.approx(outcome.log_stderr or 0.0)
    assert (view.noise_floor_percent, view.default, view.verdict) == (0.6, DEFAULT, None)


def test_a_duplicate_repeats_the_outcome_and_is_not_counted(tmp_path: Path) -> None:
    only = make_space(KNOBS, DEFAULT, tunable=("cache_enabled",))
    with StudyStore(tmp_path, only, OPTIONS) as store:
        for _ in range(8):
            number, setting = store.ask()
            if store.is_known(setting):
                store.tell_duplicate(number, setting)
            else:
                store.tell(number, TrialOutcome("pruned", -0.1, 0.01, 3, "slower than the default"))
        trials = store.trials()

        assert store.measured_trials == 2
    duplicate = next(trial for trial in trials if trial.is_duplicate)
    assert duplicate.state == "pruned"
    assert duplicate.reason in ("the same setting as trial 0", "the same setting as trial 1")


def test_the_default_is_not_the_best_nor_what_leads_to_its_plan(tmp_path: Path) -> None:
    with StudyStore(tmp_path, space(), OPTIONS) as store:
        store.tell(store.ask()[0], TrialOutcome("complete", -0.03, 0.01, 5))
        store.plan_key = lambda setting: "one for all"
        number, setting = store.ask()
        assert setting != DEFAULT
        store.tell_duplicate(number, setting)
        assert store.best() is None
    assert open_study(find_place(str(tmp_path), tmp_path, None)).best is None


def test_trials_of_a_dead_tuner_are_failed_and_asked_again(tmp_path: Path) -> None:
    store = StudyStore(tmp_path, space(), OPTIONS)
    store.tell(store.ask()[0], TrialOutcome("complete", 0.0, 0.01, 8))
    number, setting = store.ask()
    store.close()

    with StudyStore(tmp_path, space(), OPTIONS) as resumed:
        again, same = resumed.ask()
        assert same == setting
        assert again != number
        assert resumed.measured_trials == 1
        assert number not in [trial.number for trial in resumed.trials()]


class Killed(BaseException):
    """The tuner is no more."""


def test_what_a_killed_tuner_was_about_to_tell_counts_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise Killed

    outcome = TrialOutcome("complete", 0.05, 0.01, 3)
    with StudyStore(tmp_path, space(), OPTIONS) as store:
        store.tell(store.ask()[0], TrialOutcome("complete", 0.0, 0.01, 8))
        number, setting = store.ask()
        with monkeypatch.context() as patched, pytest.raises(Killed):
            patched.setattr(optuna.Study, "tell", killed)
            store.tell(number, outcome)

    with StudyStore(tmp_path, space(), OPTIONS) as resumed:
        assert list(resumed.observations()) == [0]
        again, same = resumed.ask()
        assert same == setting
        resumed.tell(again, outcome)
        assert list(resumed.observations()) == [0, again]
        ended = [trial.number for trial in resumed.trials() if trial.state == "complete"]
        assert ended == [0, again]


def test_a_resumed_study_draws_other_points(tmp_path: Path) -> None:
    drawn = []
    for _ in range(3):
        with StudyStore(tmp_path, space(), OPTIONS) as store:
            number, setting = store.ask()
            drawn.append(str(setting))
            store.tell(number, TrialOutcome("complete", 0.0, 0.01, 3))

    assert len(set(drawn)) == 3


def test_the_best_is_never_the_default(tmp_path: Path) -> None:
    with StudyStore(tmp_path, space(), OPTIONS) as store:
        store.tell(store.ask()[0], TrialOutcome("complete", 0.02, 0.01, 8))
        assert store.best() is None
        store.tell(store.ask()[0], TrialOutcome("complete", 0.01, 0.005, 8))
        best = store.best()

    assert best is not None
    assert best.mean == pytest.approx(0.01)


def test_a_second_tuner_is_kept_out(tmp_path: Path) -> None:
    with (
        StudyStore(tmp_path, space(), OPTIONS),
        pytest.raises(StudyError, match="another tuner is working"),
    ):
        StudyStore(tmp_path, space(), OPTIONS)


@pytest.mark.parametrize(
    ("default", "options", "message"),
    [
        (
            {**DEFAULT, "cycle_time_ms": 5.0},
            OPTIONS,
            "a different default; choose another run folder",
        ),
        (DEFAULT, replace(OPTIONS, objectives=("cpu_time",)), "different knobs, objectives or"),
    ],
    ids=["another-default", "another-first-objective"],
)
def test_a_study_of_something_else_is_refused(
    tmp_path: Path, default: dict[str, Value], options: TuneOptions, message: str
) -> None:
    with StudyStore(tmp_path, space(), OPTIONS):
        pass

    with pytest.raises(StudyError, match=message):
        StudyStore(tmp_path, make_space(KNOBS, default), options)


@pytest.mark.parametrize(
    "open_study",
    [
        pytest.param(lambda folder: StudyStore(folder, space(), OPTIONS), id="for-writing"),
        pytest.param(read_study, id="for-reading"),
    ],
)
def test_a_file_that_is_no_database_is_a_study_error(
    tmp_path: Path, open_study: Callable[[Path], object]
) -> None:
    (tmp_path / "study.db").write_bytes(b"no database" * 1000)

    with pytest.raises(StudyError, match=r"study\.db: file is not a database"):
        open_study(tmp_path)


def test_a_directory_without_a_study_is_a_study_error(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"holds no study \(study\.db is missing\)"):
        read_study(tmp_path)


def test_optuna_itself_can_open_the_study(tmp_path: Path) -> None:
    with StudyStore(tmp_path, space(), OPTIONS) as store:
        store.tell(store.ask()[0], TrialOutcome("complete", 0.01, 0.01, 8))

    study = optuna.load_study(study_name=None, storage=f"sqlite:///{tmp_path}/study.db")
    attributes = study.trials[0].user_attrs
    assert {"setting", "gain_percent", "stderr", "pairs", "state_reason"} <= set(attributes)
