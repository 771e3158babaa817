"""Two jobs on one study, as two users of a cluster start them."""

import collections

import pytest

from hvdtune.tuner.space.search_space import key_of
from hvdtune.tuner.storage.database import parse_url
from hvdtune.tuner.storage.study_list import StudyPlace, open_study
from hvdtune.tuner.storage.study_reader import study_names

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

_STEPS = """
init()
for _ in range(8000):
    time.sleep(0.001)
    step()
"""
_STORAGE = ("--storage", "sqlite:///studies.db")
_TUNE = ("run", "-np", "1", *_STORAGE, "--trials", "3", "--time-budget", "3m")


def test_two_jobs_share_the_trials_of_one_study(hvdtune, script, tmp_path):
    script(_STEPS)
    runs = [hvdtune(*_TUNE, "-o", name, "--knobs", "cycle_time_ms", "train.py") for name in "ab"]
    for run in runs:
        _, err = run.communicate()
        assert "Traceback" not in err
        assert run.returncode in (0, 3, 4), err
    url = parse_url(f"sqlite:///{tmp_path}/studies.db")
    (name,) = study_names(url)
    assert name.startswith("train-")
    view = open_study(StudyPlace(name, url=url)).view
    measured_by = collections.defaultdict(set)
    for pair in view.pairs:
        if pair.phase == "search":
            measured_by[key_of(pair.setting)].add(pair.by)
    assert measured_by
    assert all(len(names) == 1 for names in measured_by.values())
    assert len({pair.by for pair in view.pairs}) == 2
    for run in "ab":
        assert (tmp_path / run / "verdict.json").exists()
        assert oct((tmp_path / run / "storage.json").stat().st_mode)[-3:] == "600"
