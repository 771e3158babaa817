"""Studies of other programs in the same database, in each kind of database that is installed."""

import contextlib
import sqlite3
from pathlib import Path

import optuna
import pytest
import sqlalchemy

from hvdtune.errors import StudyError
from hvdtune.tuner.space.search_space import make_space
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.storage import ownership
from hvdtune.tuner.storage.database import open_storage, opened_storage, parse_url
from hvdtune.tuner.storage.deletion import delete_run, delete_stored
from hvdtune.tuner.storage.fsck import check
from hvdtune.tuner.storage.shared_study import SharedStudy
from hvdtune.tuner.storage.study_list import StudyPlace, find_place, open_study, run_places
from hvdtune.tuner.storage.study_reader import study_names
from hvdtune.tuner.storage.study_store import StudyStore
from tests.kit.simulated_job import DEFAULT, KNOBS

NOT_OURS = "hvdtune did not make study"


def open_store(folder: Path, url: str, name: str) -> StudyStore:
    return StudyStore(
        folder, make_space(KNOBS, DEFAULT), TuneOptions(), share=SharedStudy(url, name)
    )


def their_storage(url: str) -> optuna.storages.RDBStorage:
    place = parse_url(url).render_as_string(hide_password=False)
    return optuna.storages.RDBStorage(place, {"poolclass": sqlalchemy.NullPool})


def foreign_study(url: str, name: str) -> optuna.Study:
    """A study of another program, with one trial."""
    study = optuna.create_study(storage=their_storage(url), study_name=name)
    study.optimize(lambda trial: trial.suggest_float("lr", 0, 1), n_trials=1)
    return study


def is_untouched(study: optuna.Study) -> bool:
    return len(study.get_trials()) == 1 and study.user_attrs == {}


USES = {
    "run": lambda folder, url, name: open_store(folder, url, name),
    "show": lambda folder, url, name: open_study(StudyPlace(name, url=parse_url(url))),
    "find": lambda folder, url, name: find_place(name, folder, parse_url(url)),
    "fsck": lambda folder, url, name: check(StudyPlace(name, url=parse_url(url))),
    "delete": lambda folder, url, name: delete_stored(parse_url(url), name),
}


@pytest.mark.parametrize("use", USES)
def test_a_foreign_study_is_refused_and_unchanged(
    tmp_path: Path, study_url: str, study_name: str, use: str
) -> None:
    study = foreign_study(study_url, study_name)
    with pytest.raises(StudyError, match=f"{NOT_OURS} {study_name}"):
        USES[use](tmp_path, study_url, study_name)
    assert is_untouched(study)
    assert study_name not in study_names(parse_url(study_url))


def test_a_foreign_study_created_at_the_same_moment_is_refused(
    tmp_path: Path, study_url: str, study_name: str
) -> None:
    made = []
    with opened_storage(parse_url(study_url), create=True) as storage:

        @sqlalchemy.event.listens_for(storage.engine, "before_cursor_execute")
        def come_first(connection, cursor, statement, *rest) -> None:
            if statement.startswith("INSERT INTO studies") and not made:
                made.append(foreign_study(study_url, study_name))

        with pytest.raises(StudyError, match=NOT_OURS):
            ownership.open_or_create(storage, study_name, 1, "here")
    assert is_untouched(made[0])


def test_a_study_replaced_by_a_foreign_one_is_not_written_to(
    tmp_path: Path, study_url: str, study_name: str
) -> None:
    with open_store(tmp_path, study_url, study_name) as store:
        optuna.delete_study(study_name=study_name, storage=their_storage(study_url))
        study = foreign_study(study_url, study_name)
        for write in (lambda: store.set("verdict", "{}"), lambda: store.ask()):
            with pytest.raises((StudyError, KeyError)):
                write()
    assert is_untouched(study)


def test_a_replaced_study_is_reported(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/studies.db"
    with open_store(tmp_path, url, "mine") as store:
        optuna.delete_study(study_name="mine", storage=their_storage(url))
        foreign_study(url, "mine")
        with pytest.raises(StudyError, match="study mine is missing in sqlite:"):
            store.set("verdict", "{}")


@pytest.mark.parametrize("name", ["lr search", "hvdtune"])
def test_a_foreign_file_in_a_folder_is_refused_and_unchanged(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "runs" / "theirs"
    folder.mkdir(parents=True)
    path = folder / "study.db"
    foreign_study(f"sqlite:///{path}", name)
    before = path.read_bytes()
    assert run_places(folder.parent) == []
    (folder / "pairs.jsonl").touch()
    place = StudyPlace("", folder=folder)
    for use in (
        lambda: StudyStore(folder, make_space(KNOBS, DEFAULT), TuneOptions()),
        lambda: open_study(place),
        lambda: delete_run(folder),
    ):
        with pytest.raises(StudyError, match=name):
            use()
    (fault,) = check(place)
    assert fault.mend is None
    assert name in fault.text
    assert path.read_bytes() == before


def test_a_run_folder_that_also_holds_a_foreign_study_is_kept(finished_run: Path) -> None:
    foreign_study(f"sqlite:///{finished_run}/study.db", "lr search")
    with pytest.raises(StudyError, match="holds study lr search, which hvdtune did not make"):
        delete_run(finished_run)
    assert (finished_run / "pairs.jsonl").exists()
    assert open_study(StudyPlace("", folder=finished_run)).measured == 6


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        ("v2.6.0.a", "optuna storage upgrade --storage sqlite:///"),
        ("v9.9.0.a", "pip install --upgrade optuna"),
    ],
)
def test_another_schema_of_optuna_is_named(tmp_path: Path, version: str, advice: str) -> None:
    path = tmp_path / "old.db"
    foreign_study(f"sqlite:///{path}", "mine")
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE alembic_version SET version_num = ?", (version,))
    url = parse_url(f"sqlite:///{path}")
    with pytest.raises(StudyError, match=rf"schema {version}, but Optuna .* needs v.*{advice}"):
        open_storage(url)
