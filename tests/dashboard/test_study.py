import json
from dataclasses import replace

import pytest
from dash import html

from hvdtune.dashboard.data import RunView, empty_trace
from hvdtune.dashboard.pages import study as study_page
from hvdtune.dashboard.shell import PageAddress
from hvdtune.dashboard.study import describe_study, knob_names, knob_text, open_study
from hvdtune.tuner.storage.pair_log import Pair, PairLog
from hvdtune.tuner.storage.trial import StudyView

from .studies import DEFAULT, VERDICT, verification_pair, write_study


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


@pytest.mark.parametrize(
    ("knob", "value", "text"),
    [
        ("fusion_threshold_bytes", 134217728, "128 MiB"),
        ("chunk_bytes", 262144, "256 KiB"),
        ("fusion_threshold_bytes", 0, "0"),
        ("cache_enabled", True, "true"),
        ("cycle_time_ms", 0.5, "0.5"),
    ],
)
def test_sizes_are_shown_with_their_unit(knob, value, text):
    assert knob_text(knob, value) == text


def set_a_pair_aside(folder):
    with PairLog(folder / "pairs.jsonl") as log:
        for letters in ("A", "B"):
            pair = verification_pair(3, 90.0)
            log.append(replace(pair, at_fault=letters, set_aside="the machine was busy"))


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda folder: None, id="with its trials"),
        pytest.param(set_a_pair_aside, id="without those that were set aside"),
        pytest.param(lambda folder: (folder / "study.db").unlink(), id="without a study"),
    ],
)
def test_only_verification_pairs_are_plotted_and_they_keep_their_launch(tmp_path, happens):
    write_study(tmp_path)
    happens(tmp_path)
    study = open_study(tmp_path)
    assert list(study.verification["launch"]) == [2, 2, 3, 3]
    assert list(study.verification["gain_percent"]) == pytest.approx([7.0, 7.6, 6.8, 8.0])
    assert study.verdict.text == VERDICT["text"]
    assert study.warnings == []


def test_the_verdict_and_what_it_rests_on_are_read(tmp_path):
    write_study(tmp_path)
    study = open_study(tmp_path)
    assert study.verdict.text == VERDICT["text"]
    assert study.verdict.interval_percent == (6.1, 8.4)
    assert study.summary == (
        "3 trials (1 complete, 1 pruned, 1 failed): 1 of the default, 1 of other settings, "
        "1 without a pair; 4 verification pairs over 2 launches; "
        "A/A noise floor 0.60 % over 20 pairs."
    )


NOT_A_DATABASE = b"not a database at all" * 50


@pytest.mark.parametrize(
    ("database", "verdict", "interval_percent", "warned_of"),
    [
        pytest.param(NOT_A_DATABASE, VERDICT, (6.1, 8.4), ["study.db"], id="broken"),
        pytest.param(None, {"text": "no setting", "ci_percent": None}, None, [], id="missing"),
    ],
)
def test_without_a_database_the_stored_verdict_still_shows(
    tmp_path, database, verdict, interval_percent, warned_of
):
    if database:
        (tmp_path / "study.db").write_bytes(database)
    (tmp_path / "verdict.json").write_text(json.dumps(verdict))
    study = open_study(tmp_path)
    assert study.verdict.text == verdict["text"]
    assert study.verdict.interval_percent == interval_percent
    assert study.trials.empty
    assert "no setting was verified" in study.summary
    assert len(study.warnings) == len(warned_of)
    assert all(name in text for name, text in zip(warned_of, study.warnings, strict=True))


def test_a_floor_over_more_pairs_is_told_as_such(tmp_path):
    write_study(tmp_path)
    study = open_study(tmp_path)
    other = replace(study, verdict=replace(study.verdict, floor=(0.25, 100)))
    said = (
        "A/A noise floor 0.60 % over 20 pairs and 0.25 % over 100 (it falls with the number of "
        "pairs)."
    )
    assert other.summary.endswith(said)
    same = replace(study, verdict=replace(study.verdict, floor=(0.6, 20)))
    assert same.summary == study.summary


def test_launches_of_earlier_runs_are_counted(tmp_path):
    write_study(tmp_path)
    study = open_study(tmp_path)
    later = replace(study, verdict=replace(study.verdict, earlier_launches=3))
    said = "4 verification pairs over 2 launches, and 3 launches of earlier runs; "
    assert said in later.summary


def test_trials_above_zero_that_were_not_verified_are_explained(tmp_path):
    write_study(tmp_path)
    study = open_study(tmp_path)
    assert study.unproved.startswith("Trial 0 lies above zero by more than two standard errors")
    assert "by chance, it happens in about 0.0 of 2 trials" in study.unproved
    verified = replace(study, verification=study.verification.assign(trial=0))
    assert verified.unproved == ""


def labels(part):
    """The texts of all buttons of a page."""
    if isinstance(part, list | tuple):
        return [text for each in part for text in labels(each)]
    own = [part.children] if isinstance(part, html.Button) else []
    return own + labels(getattr(part, "children", None) or [])


@pytest.mark.parametrize(
    ("improved", "is_unproved", "offered"), [(True, False, 6), (False, True, 6), (False, False, 0)]
)
def test_only_another_setting_than_the_default_is_offered_for_download(
    tmp_path, improved, is_unproved, offered
):
    write_study(tmp_path)
    study = open_study(tmp_path)
    verdict = replace(study.verdict, improved=improved, is_unproved=is_unproved)
    study = replace(study, verdict=verdict)
    page = study_page.layout(RunView("run", empty_trace([]), study), PageAddress(0, {}))
    exports = [text for text in labels(page) if text.endswith((".yaml", ".env", ".txt"))]
    assert len(exports) == offered
    assert ("Export the unproven setting" in str(page)) == is_unproved


def test_the_page_says_what_is_in_use_beside_what_is_proved(tmp_path):
    write_study(tmp_path)
    said = {
        "text": "too noisy to decide",
        "in_use": "in use: X, expected +1.8 %, not yet proved (95 %: -0.3 to +3.9 %)",
        "expected": {"gain_percent": 1.8, "low_percent": -0.3, "high_percent": 3.9},
    }
    (tmp_path / "study.db").unlink()
    (tmp_path / "verdict.json").write_text(json.dumps(said))
    study = open_study(tmp_path)
    assert study.verdict.is_unproved
    page = str(study_page.layout(RunView("run", empty_trace([]), study), PageAddress(0, {})))
    assert "In use" in page
    assert "X, expected +1.8 %, not yet proved (95 %: -0.3 to +3.9 %)" in page


def test_the_page_says_what_is_in_use_while_the_search_goes_on(tmp_path):
    better = Pair(
        0, "search", 3, {"cycle_time_ms": 2.0}, {"cycle_time_ms": 5.0}, 0.0, 38.0, 38.0, 40, "ABBA",
        0.0, reference_log_ratio=0.1823,
    )  # fmt: skip
    view = StudyView((), (verification_pair(0, 0.1, "search"),), None, DEFAULT, None)
    assert describe_study(view).in_use == ""
    study = describe_study(replace(view, pairs=(*view.pairs, better)))
    words = "cycle_time_ms=5, +20.0 %, not yet proved; trials are compared with it"
    assert study.in_use == words
    page = str(study_page.layout(RunView("run", empty_trace([]), study), PageAddress(0, {})))
    assert "In use" in page
    assert words in page
    assert describe_study(replace(view, pairs=(better,), verdict={"text": "done"})).in_use == ""
