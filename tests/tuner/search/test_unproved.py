"""What a study says that has verified no setting, because settings failed."""

from pathlib import Path

from hvdtune.core.config.knobs import Setting
from hvdtune.tuner.controller import tune
from hvdtune.tuner.space.tune_options import LimitOptions, TuneOptions
from hvdtune.tuner.stats.verdict import Verdict
from hvdtune.tuner.storage.study_store import read_study
from hvdtune.tuner.study import Study
from tests.kit.simulated_job import DEFAULT, KNOBS, Script, SimulatedCluster

REFUSED = "the last one because the ranks refused the setting"


def study(run_dir: Path, script: Script, trials: int = 8) -> Verdict:
    cluster = SimulatedCluster(script)
    options = TuneOptions(trials=trials)
    study = Study(cluster.start, KNOBS, DEFAULT)
    return tune(study, run_dir, options, clock=cluster.clock).verdict


def test_where_all_settings_fail_the_study_says_how_many_and_why(tmp_path: Path) -> None:
    verdict = study(tmp_path, Script(refuses=lambda setting: setting != DEFAULT))

    failed = [trial for trial in read_study(tmp_path).trials if trial.state == "failed"]
    assert len(failed) == 7
    said = f"every setting failed (7 settings tried, 7 of them failed, {REFUSED}"
    assert verdict.text.startswith(f"nothing is proved: {said}")
    assert (verdict.kind, verdict.setting) == ("default", DEFAULT)


def test_those_that_failed_are_told_from_those_that_are_not_faster(tmp_path: Path) -> None:
    def is_refused(setting: Setting) -> bool:
        return not setting["cache_enabled"]

    verdict = study(tmp_path, Script(gain=lambda setting: -0.3, refuses=is_refused), trials=12)

    trials = [trial for trial in read_study(tmp_path).trials if not trial.is_duplicate]
    failed = sum(trial.state == "failed" for trial in trials)
    assert 0 < failed < 11
    assert f": 11 settings tried, {failed} of them failed, {REFUSED}" in verdict.text
    assert "none of the others likely to be 1 % faster" in verdict.text


def test_a_study_that_is_continued_knows_why_its_candidates_failed(tmp_path: Path) -> None:
    def crashes(setting: Setting) -> bool:
        return setting != DEFAULT and len(cluster.jobs) > 1

    script = Script(gain=lambda setting: 0.08, crashes_with=crashes)
    options = TuneOptions(trials=8, limits=LimitOptions(max_crashes=99))
    said = []
    for _ in range(2):
        cluster = SimulatedCluster(script)
        verdict = tune(
            Study(cluster.start, KNOBS, DEFAULT), tmp_path, options, clock=cluster.clock
        ).verdict
        said.append(verdict.text)

    assert said[0].startswith("nothing is proved: every candidate failed (7 settings tried, ")
    assert all("the last one because rank 1 was killed" in each for each in said)
