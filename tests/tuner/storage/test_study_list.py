import fcntl
import shutil
from pathlib import Path

import pytest

from hvdtune.errors import StudyError, UsageError
from hvdtune.tuner.space.search_space import make_space
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.storage.database import parse_url
from hvdtune.tuner.storage.shared_study import SharedStudy
from hvdtune.tuner.storage.study_list import find_place, open_study, run_places, stored_places
from hvdtune.tuner.storage.study_store import StudyStore
from tests.kit.simulated_job import DEFAULT, KNOBS


def test_a_finished_study_says_what_it_found(finished_run: Path) -> None:
    study = open_study(find_place(None, finished_run.parent, None))
    assert (study.state, study.measured) == ("finished", 6)
    assert study.best is not None
    assert study.best.setting["cycle_time_ms"] < 1
    assert study.document()["verdict"]["text"] == study.verdict


def test_folders_without_a_study_are_no_studies(finished_run: Path) -> None:
    (finished_run.parent / "plain-run").mkdir()
    (finished_run.parent / "plain-run" / "run.json").write_text("{}")
    assert [place.folder for place in run_places(finished_run.parent)] == [finished_run]
    assert run_places(finished_run / "nothing") == []


def test_a_study_whose_tuner_works_is_running(finished_run: Path) -> None:
    with (finished_run / "tuner.lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert open_study(find_place(str(finished_run), Path(), None)).state == "running"


def test_a_study_is_found_by_its_folder_or_its_name_in_runs(finished_run: Path) -> None:
    by_path = find_place(str(finished_run), Path("nowhere"), None)
    assert find_place("train-1", finished_run.parent, None) == by_path
    assert find_place(None, finished_run.parent, None) == by_path


@pytest.mark.parametrize(
    ("name", "message"),
    [("train-2", "train-2 is not a folder with a study"), (None, "there is no study in")],
)
def test_a_study_that_is_not_there_is_named(tmp_path: Path, name: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        find_place(name, tmp_path, None)


def test_without_its_database_a_study_is_damaged(finished_run: Path) -> None:
    (finished_run / "study.db").unlink()
    with pytest.raises(StudyError, match=r"study\.db is missing; to repair the study: hvd"):
        open_study(find_place(str(finished_run), Path(), None))


def test_a_comparison_has_pairs_and_a_verdict_but_no_trials(finished_run: Path) -> None:
    (finished_run / "study.db").unlink()
    log = finished_run / "pairs.jsonl"
    lines = [line for line in log.read_text().splitlines() if '"verify"' in line]
    log.write_text("\n".join(lines) + "\n")
    study = open_study(find_place(str(finished_run), Path(), None))
    assert (study.measured, len(study.view.pairs)) == (0, len(lines))
    assert study.verdict


def test_the_studies_of_a_database_are_listed(
    tmp_path: Path, study_url: str, study_name: str
) -> None:
    share = SharedStudy(study_url, study_name)
    with StudyStore(tmp_path, make_space(KNOBS, DEFAULT), TuneOptions(), share=share):
        (found,) = [each for each in stored_places(parse_url(study_url)) if each.name == study_name]
        assert open_study(found).state == "running"
    assert open_study(found).state == "unfinished"
    with pytest.raises(UsageError, match="holds no study nobody"):
        find_place("nobody", Path(), parse_url(study_url))


def test_a_database_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no database"):
        stored_places(parse_url(f"sqlite:///{tmp_path}/nothing.db"))
    assert not (tmp_path / "nothing.db").exists()


def test_a_copy_of_a_study_is_a_study(finished_run: Path, tmp_path: Path) -> None:
    shutil.copytree(finished_run, tmp_path / "copy")
    assert open_study(find_place(str(tmp_path / "copy"), Path(), None)).measured == 6
