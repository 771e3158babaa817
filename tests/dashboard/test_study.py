import json
from dataclasses import replace

import pytest

from hvdtune.dashboard.study import knob_names, open_study
from hvdtune.tuner.storage.pair_log import PairLog

from .studies import VERDICT, verification_pair, write_study


def test_a_folder_without_study_files_has_no_study(tmp_path):
    assert open_study(tmp_path) is None


def test_trials_come_with_state_gain_spread_and_reason(tmp_path):
    write_study(tmp_path)
    trials = open_study(tmp_path).trials.set_index("state")
    assert list(trials.index) == ["complete", "pruned", "failed"]
    assert trials.loc["complete", "gain_percent"] == pytest.approx(5.0)
    assert trials.loc["complete", "spread_percent"] == pytest.approx(0.8)
    assert trials.loc["pruned", "reason"] == "slower than the default"
    assert knob_names(trials) == ["cycle_time_ms"]


def test_only_verification_pairs_are_plotted_and_they_keep_their_launch(tmp_path):
    write_study(tmp_path)
    pairs = open_study(tmp_path).verification
    assert list(pairs["launch"]) == [2, 2, 3, 3]
    assert list(pairs["gain_percent"]) == pytest.approx([7.0, 7.6, 6.8, 8.0])


def test_a_pair_that_was_set_aside_is_not_plotted(tmp_path):
    write_study(tmp_path)
    with PairLog(tmp_path / "pairs.jsonl") as log:
        for letters in ("A", "B"):
            pair = verification_pair(3, 90.0)
            log.append(replace(pair, at_fault=letters, set_aside="the machine was busy"))
    assert len(open_study(tmp_path).verification) == 4


def test_the_verdict_and_what_it_rests_on_are_read(tmp_path):
    write_study(tmp_path)
    study = open_study(tmp_path)
    assert study.verdict.text == VERDICT["text"]
    assert study.verdict.interval_percent == (6.1, 8.4)
    assert study.summary == (
        "3 trials (1 complete, 1 pruned, 1 failed); 4 verification pairs over 2 launches; "
        "A/A noise floor 0.60 %."
    )


def test_a_broken_database_is_a_warning_and_the_stored_verdict_still_shows(tmp_path):
    (tmp_path / "study.db").write_bytes(b"not a database at all" * 50)
    (tmp_path / "verdict.json").write_text(json.dumps(VERDICT))
    study = open_study(tmp_path)
    assert "study.db" in study.warnings[0]
    assert study.verdict.improved
    assert study.trials.empty


def test_a_comparison_without_a_study_shows_its_pairs_and_no_warning(tmp_path):
    write_study(tmp_path)
    (tmp_path / "study.db").unlink()
    study = open_study(tmp_path)
    assert study.warnings == []
    assert list(study.verification["launch"]) == [2, 2, 3, 3]
    assert study.verdict.text == VERDICT["text"]


def test_a_verdict_without_a_database_still_shows(tmp_path):
    (tmp_path / "verdict.json").write_text(json.dumps({"text": "no setting", "ci_percent": None}))
    study = open_study(tmp_path)
    assert study.verdict.text == "no setting"
    assert study.verdict.interval_percent is None
