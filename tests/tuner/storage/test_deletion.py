import fcntl
from pathlib import Path

import pytest

from hvdtune.errors import StudyError
from hvdtune.tuner.space.search_space import make_space
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.storage.database import parse_url
from hvdtune.tuner.storage.deletion import delete_run, delete_stored
from hvdtune.tuner.storage.shared_study import SharedStudy
from hvdtune.tuner.storage.study_reader import study_names
from hvdtune.tuner.storage.study_store import StudyStore, TrialOutcome
from tests.kit.simulated_job import DEFAULT, KNOBS


def test_a_study_goes_with_all_its_files(finished_run: Path) -> None:
    for name in (
        "run.json",
        "trace.json",
        ".trace.json.hvdtune",
        "output/launch-0.log",
        "ranks/launch-0/rank-1.hvt.1",
        "artifacts/493ca3c6-5c78-4ee7-a0f2-e1a8cba9d839",
    ):
        (finished_run / name).parent.mkdir(parents=True, exist_ok=True)
        (finished_run / name).touch()
    assert delete_run(finished_run) == []
    assert not finished_run.exists()


@pytest.mark.parametrize(
    "name", ["notes.txt", "output/launch-0.log.bak", "ranks/model.pt", "artifacts/figure.png"]
)
def test_what_is_not_the_studys_own_stays(finished_run: Path, name: str) -> None:
    (finished_run / name).parent.mkdir(exist_ok=True)
    (finished_run / name).touch()
    left = delete_run(finished_run)
    assert [path for path in left if path.is_file()] == [finished_run / name]


def test_links_are_not_followed(finished_run: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "launch-0.log").touch()
    (finished_run / "output").symlink_to(elsewhere)
    delete_run(finished_run)
    assert (elsewhere / "launch-0.log").exists()


@pytest.mark.parametrize("name", ["tuner.lock", "run.json"])
def test_a_study_in_use_is_not_deleted(finished_run: Path, name: str) -> None:
    with (finished_run / name).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StudyError, match=r"another tuner is working in|a run is active in"):
            delete_run(finished_run)
    assert (finished_run / "pairs.jsonl").exists()


def test_a_study_in_a_database_is_deleted_when_nobody_works_on_it(
    tmp_path: Path, study_url: str, study_name: str
) -> None:
    url = parse_url(study_url)
    with open_store(tmp_path, study_url, study_name) as store:
        number, _ = store.ask()
        with pytest.raises(StudyError, match=rf"{tmp_path.name} works on {study_name} in"):
            delete_stored(url, study_name)
        store.tell(number, TrialOutcome("complete", 0.0, 0.01, 8))
    delete_stored(url, study_name)
    assert study_name not in study_names(url)
    with pytest.raises(StudyError, match=f"holds no study {study_name}"):
        delete_stored(url, study_name)


def test_a_new_study_knows_nothing_of_a_deleted_one(
    tmp_path: Path, study_url: str, study_name: str
) -> None:
    for _ in range(2):
        with open_store(tmp_path, study_url, study_name) as store:
            assert store.measured_trials == 0
            store.tell(store.ask()[0], TrialOutcome("complete", 0.0, 0.01, 8))
        delete_stored(parse_url(study_url), study_name)


def open_store(folder: Path, url: str, name: str) -> StudyStore:
    return StudyStore(
        folder, make_space(KNOBS, DEFAULT), TuneOptions(), share=SharedStudy(url, name)
    )
