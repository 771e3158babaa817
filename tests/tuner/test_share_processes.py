"""Tuners in processes of their own on one study, each with its own simulated job."""

import collections
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hvdtune.tuner.space.search_space import key_of
from hvdtune.tuner.storage.database import parse_url
from hvdtune.tuner.storage.study_list import StudyPlace, open_study
from hvdtune.tuner.storage.trial import StudyView
from tests.kit.programs import environ
from tests.tuner import simulated_tuner

pytestmark = pytest.mark.slow


def start(run_dir: Path, url: str, name: str, kill_at: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", simulated_tuner.__name__, str(run_dir), str(kill_at), url, name],
        env=environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(tuner: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = tuner.communicate()
    assert err == ""
    return tuner.returncode, out


def stored(url: str, name: str) -> StudyView:
    return open_study(StudyPlace(name, url=parse_url(url))).view


def tuners_of(view: StudyView) -> dict[str, set[str]]:
    """Who has measured each setting in the search."""
    found = collections.defaultdict(set)
    for pair in view.pairs:
        if pair.phase == "search":
            found[key_of(pair.setting)].add(pair.by)
    return found


def test_three_tuners_measure_nothing_twice(
    tmp_path: Path, study_url: str, study_name: str
) -> None:
    tuners = [start(tmp_path / f"run-{n}", study_url, study_name) for n in range(3)]
    assert [ended(tuner)[0] for tuner in tuners] == [0, 0, 0]
    view = stored(study_url, study_name)
    found = tuners_of(view)
    assert {len(names) for names in found.values()} == {1}
    assert len(set.union(*found.values())) > 1
    measured = [trial for trial in view.trials if trial.is_measured]
    assert len({key_of(trial.setting) for trial in measured}) == len(measured)
    assert simulated_tuner.OPTIONS.trials <= len(measured) < simulated_tuner.OPTIONS.trials + 3


def test_what_a_killed_tuner_had_begun_is_finished_by_another(
    tmp_path: Path, study_url: str, study_name: str
) -> None:
    # Early: what a study does after its first trials depends on what they have read.
    killed = start(tmp_path / "killed", study_url, study_name, kill_at=175)
    assert ended(killed)[0] == -signal.SIGKILL
    before = stored(study_url, study_name)
    running = next(trial for trial in before.trials if trial.state == "running")
    assert ended(start(tmp_path / "other", study_url, study_name))[0] == 0
    after = stored(study_url, study_name)
    assert not any(trial.state == "running" for trial in after.trials)
    begun = [pair for pair in before.pairs if pair.setting == running.setting]
    finished = next(t for t in after.trials if t.is_measured and t.setting == running.setting)
    assert finished.pairs >= max(1, len(begun))
    assert finished.by.endswith(":other")


def test_a_killed_tuner_continues_where_it_was(
    tmp_path: Path, study_url: str, study_name: str
) -> None:
    assert ended(start(tmp_path / "one", study_url, study_name, 300))[0] == -signal.SIGKILL
    before = stored(study_url, study_name).pairs
    assert ended(start(tmp_path / "one", study_url, study_name))[0] == 0
    after = stored(study_url, study_name).pairs
    assert after[: len(before)] == before
    assert len({pair.by for pair in after}) == 1
