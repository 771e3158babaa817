import contextlib
import dataclasses
import fcntl
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from hvdtune.errors import StudyError
from hvdtune.tuner.controller import tune
from hvdtune.tuner.space.search_space import make_space
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.storage.database import parse_url
from hvdtune.tuner.storage.fsck import StudyFault, check
from hvdtune.tuner.storage.leases import LeaseTable
from hvdtune.tuner.storage.pair_log import Pair
from hvdtune.tuner.storage.shared_study import SharedStudy
from hvdtune.tuner.storage.study_list import StudyPlace
from hvdtune.tuner.storage.study_reader import read_study
from hvdtune.tuner.storage.study_store import StudyStore, TrialOutcome
from hvdtune.tuner.study import Study
from tests.kit.simulated_job import DEFAULT, KNOBS, Script, SimulatedCluster

OPTIONS = TuneOptions(trials=6, seed=2)


def faults(folder: Path) -> list[StudyFault]:
    return check(StudyPlace(str(folder), folder=folder), KNOBS)


def the_fault(folder: Path) -> StudyFault:
    (fault,) = faults(folder)
    return fault


def mend_all(folder: Path) -> None:
    for _ in range(10):
        todo = [fault.mend for fault in faults(folder) if fault.mend is not None]
        if not todo:
            return
        todo[0]()


def go_on(folder: Path) -> str:
    """The same study once more, as the same command would continue it."""
    cluster = SimulatedCluster(Script(gain=lambda setting: 0.1 * (setting["cycle_time_ms"] < 1)))
    study = Study(cluster.start, KNOBS, DEFAULT)
    return tune(study, folder, OPTIONS, clock=cluster.clock).verdict.kind


def outcomes(folder: Path) -> list[tuple[str, int, float]]:
    return [
        (str(trial.setting), trial.pairs, round(trial.gain_percent or 0.0, 6))
        for trial in read_study(folder).trials
        if trial.is_measured
    ]


def contents(folder: Path) -> tuple[bytes, object, object, list[tuple[str, int, float]]]:
    """The pairs, the verdict in the file and in the database, and the trials."""
    verdict = json.loads((folder / "verdict.json").read_text())
    view = read_study(folder)
    return (folder / "pairs.jsonl").read_bytes(), verdict, view.verdict, outcomes(folder)


def execute(folder: Path, statement: str, *values: object) -> None:
    with contextlib.closing(sqlite3.connect(folder / "study.db")) as database:
        database.execute(statement, values)
        database.commit()


def test_a_sound_study_has_no_fault(finished_run: Path) -> None:
    assert faults(finished_run) == []


def tear_the_last_line(folder: Path) -> None:
    with (folder / "pairs.jsonl").open("ab") as log:
        log.write(b'{"v": 1, "lau')


def write_nonsense(folder: Path) -> None:
    log = folder / "pairs.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:3], b"\x00\x00nonsense\n", *lines[3:]]))


def lose_the_verdict(folder: Path) -> None:
    (folder / "verdict.json").unlink()


def lose_the_verdict_of_the_database(folder: Path) -> None:
    execute(folder, "DELETE FROM study_user_attributes WHERE key = 'verdict'")


def lose_a_timeline(folder: Path) -> None:
    meta = '{"artifact_id": "a", "filename": "f", "mimetype": "m", "encoding": null}'
    execute(
        folder,
        "INSERT INTO trial_system_attributes (trial_id, key, value_json) VALUES (2, ?, ?)",
        "artifacts:a",
        json.dumps(meta),
    )


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (tear_the_last_line, "pairs.jsonl: the last line is incomplete: the tuner was killed whi"),
        (write_nonsense, "pairs.jsonl:4: not a pair"),
        (lose_the_verdict, "verdict.json is missing"),
        (lose_the_verdict_of_the_database, "lacks the verdict"),
        (lose_a_timeline, "the timeline of trial 1 is missing"),
    ],
    ids=["torn-line", "no-pair", "verdict", "verdict-of-the-database", "timeline"],
)
def test_damage_is_mended_without_loss(
    finished_run: Path, damage: Callable[[Path], None], text: str
) -> None:
    before = contents(finished_run)
    damage(finished_run)
    assert text in the_fault(finished_run).text
    mend_all(finished_run)
    assert faults(finished_run) == []
    assert contents(finished_run) == before


def test_lines_that_are_no_pairs_are_set_aside(finished_run: Path) -> None:
    write_nonsense(finished_run)
    mend_all(finished_run)
    assert (finished_run / "pairs.jsonl.damaged").read_bytes() == b"\x00\x00nonsense\n"


@pytest.mark.parametrize("damage", ["zeros", "truncated", "no database", "missing"])
def test_a_damaged_database_is_made_anew_from_the_log(finished_run: Path, damage: str) -> None:
    before = outcomes(finished_run)
    path = finished_run / "study.db"
    data = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(
            {
                "zeros": data[:8192] + bytes(40960) + data[49152:],
                "truncated": data[: len(data) // 2],
                "no database": b"no database" * 1000,
            }[damage]
        )
    fault = the_fault(finished_run)
    assert fault.text.startswith("study.db is ")
    assert "pairs.jsonl" in fault.advice
    mend_all(finished_run)
    assert faults(finished_run) == []
    assert outcomes(finished_run) == before
    assert (damage == "missing") != bool(list(finished_run.glob("study.db.damaged*")))
    pairs = (finished_run / "pairs.jsonl").read_text()
    assert go_on(finished_run) == "improved"
    assert (finished_run / "pairs.jsonl").read_text() == pairs


def test_a_trial_that_claims_more_than_the_log_has_is_corrected(finished_run: Path) -> None:
    log = finished_run / "pairs.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    last = max(i for i, line in enumerate(lines) if '"phase": "search"' in line)
    log.write_text("".join(lines[:last] + lines[last + 1 :]))
    fault = the_fault(finished_run)
    assert ", pairs.jsonl has" in fault.text
    mend_all(finished_run)
    assert faults(finished_run) == []


def test_a_trial_without_any_pair_in_the_log_is_measured_again(finished_run: Path) -> None:
    log = finished_run / "pairs.jsonl"
    victim = next(trial for trial in read_study(finished_run).trials if trial.setting != DEFAULT)
    pairs = [json.loads(line) for line in log.read_text().splitlines()]
    kept = [p for p in pairs if p["setting"] != victim.setting]
    log.write_text("".join(json.dumps(pair) + "\n" for pair in kept))
    mend_all(finished_run)
    assert "waiting" in [trial.state for trial in read_study(finished_run).trials]
    (finished_run / "verdict.json").unlink()
    go_on(finished_run)
    settings = [t.setting for t in read_study(finished_run).trials if t.is_measured]
    assert victim.setting in settings


def test_pairs_that_no_trial_has_get_one(finished_run: Path) -> None:
    log = finished_run / "pairs.jsonl"
    pair = next(json.loads(line) for line in log.read_text().splitlines() if '"search"' in line)
    pair["setting"] = {**DEFAULT, "cycle_time_ms": 7.7}
    with log.open("a") as file:
        file.write(json.dumps(pair) + "\n")
    assert the_fault(finished_run).text == "pairs.jsonl has 1 pair of settings that no trial has"
    mend_all(finished_run)
    assert faults(finished_run) == []
    assert read_study(finished_run).trials[-1].setting == pair["setting"]


def test_a_trial_that_a_dead_tuner_left_is_queued_again(finished_run: Path) -> None:
    space = make_space(KNOBS, DEFAULT)
    with StudyStore(finished_run, space, OPTIONS) as store:
        number, setting = store.ask()
        assert faults(finished_run) == []  # while it works it is no fault
    fault = the_fault(finished_run)
    assert fault.text == f"trial {number} is marked as running, but no tuner works in this folder"
    mend_all(finished_run)
    with StudyStore(finished_run, space, OPTIONS) as store:
        assert store.ask()[1] == setting


def test_another_default_is_told_and_cannot_be_mended(finished_run: Path) -> None:
    log = finished_run / "pairs.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    pair = json.loads(lines[0])
    pair["reference"]["cycle_time_ms"] = 3.0
    log.write_text(json.dumps(pair) + "\n" + "".join(lines[1:]))
    fault = the_fault(finished_run)
    assert fault.text == "1 pair measured against a default that is not the study's"
    assert fault.mend is None


def test_another_knob_table_is_told(finished_run: Path) -> None:
    narrower = [
        dataclasses.replace(knob, high=10) if knob.name == "cycle_time_ms" else knob
        for knob in KNOBS
    ]
    faults = check(StudyPlace("x", folder=finished_run), narrower)
    assert faults[0].text == "the study's range of cycle_time_ms exceeds the allowed range"
    assert not any(fault.mend for fault in faults)


def test_nothing_is_mended_while_a_tuner_works(finished_run: Path) -> None:
    (finished_run / "verdict.json").unlink()
    fault = the_fault(finished_run)
    assert fault.mend is not None
    with (finished_run / "tuner.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(StudyError, match="another tuner is working in"):
            fault.mend()


def test_a_trial_of_a_dead_tuner_in_a_database_is_queued_again(
    tmp_path: Path, study_url: str, study_name: str
) -> None:
    place = StudyPlace(study_name, url=parse_url(study_url))
    space = make_space(KNOBS, DEFAULT)
    with StudyStore(tmp_path, space, OPTIONS, share=SharedStudy(study_url, study_name)) as store:
        number, _ = store.ask()
        assert check(place, KNOBS) == []
    (fault,) = check(place, KNOBS)
    assert fault.text == f"trial {number} is marked as running, but its tuner is not running"
    assert fault.mend is not None
    fault.mend()
    assert check(place, KNOBS) == []


def test_a_claim_that_nobody_needs_is_freed(
    tmp_path: Path, study_url: str, study_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = StudyPlace(study_name, url=parse_url(study_url))
    space = make_space(KNOBS, DEFAULT)
    with StudyStore(tmp_path, space, OPTIONS, share=SharedStudy(study_url, study_name)) as store:
        monkeypatch.setattr(LeaseTable, "release", lambda *_: None)
        store.tell(store.ask()[0], TrialOutcome("complete", 0.0, 0.01, 8))
    monkeypatch.undo()
    (fault,) = check(place, KNOBS)
    assert fault.text == "trial 0 reserves its setting, but no tuner measures it"
    assert fault.mend is not None
    fault.mend()
    assert check(place, KNOBS) == []


def test_pairs_that_have_not_reached_the_database_are_put_up(
    tmp_path: Path, study_url: str, study_name: str
) -> None:
    share = SharedStudy(study_url, study_name)
    pair = Pair(0, "search", 0, DEFAULT, DEFAULT, 0.1, 9.0, 10.0, 96, "ABBA", 1.5)
    with (
        StudyStore(tmp_path, make_space(KNOBS, DEFAULT), OPTIONS, share=share) as store,
        store.open_pairs() as log,
    ):
        log.append(pair)
    log_path = tmp_path / "pairs.jsonl"
    log_path.write_text(log_path.read_text() * 2)
    fault = the_fault(tmp_path)
    assert fault.text.startswith(f"study {study_name} in ")
    assert fault.text.endswith(" lacks 1 pair")
    mend_all(tmp_path)
    assert faults(tmp_path) == []


def test_a_study_made_anew_from_its_pairs_has_the_same_spreads(finished_run: Path) -> None:
    def spreads() -> dict[str, float | None]:
        trials = [trial for trial in read_study(finished_run).trials if trial.is_measured]
        return {str(trial.setting): trial.stderr_percent for trial in trials}

    before = spreads()
    (finished_run / "study.db").unlink()
    mend_all(finished_run)

    assert str(DEFAULT) in before
    assert spreads() == pytest.approx(before)
