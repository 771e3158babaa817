import json
import os
from dataclasses import replace

import pytest

from hvdtune.core.config.knobs import default_setting, load_knobs
from hvdtune.tuner.space.search_space import make_space
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.storage.pair_log import PairLog
from hvdtune.tuner.storage.shared_study import SharedStudy
from hvdtune.tuner.storage.study_store import Further, StudyStore, TrialOutcome, lock_study
from tests.cli.stored_study import VERDICT, make_study


@pytest.fixture
def run_dir(tmp_path):
    return make_study(tmp_path / "runs" / "train-1")


@pytest.fixture
def study(call):
    """Runs `hvdtune study ...`; test_study_docs does so in processes."""
    return lambda *words: call("study", *words)


def test_studies_are_listed_with_state_trials_and_verdict(study, run_dir):
    code, out, _ = study("list")
    assert code == 0
    row = next(line for line in out.splitlines() if line.startswith("runs/train-1"))
    assert row.split()[1:4] == ["finished", "2", "8"]
    assert VERDICT["text"] in row


def test_a_damaged_study_is_listed_as_such(study, run_dir):
    (run_dir / "study.db").write_bytes(b"no database" * 1000)
    code, out, _ = study("list", "--json")
    assert code == 0
    (study,) = json.loads(out)
    assert study["state"] == "damaged"
    advice = "to find the faults of the study: hvdtune study fsck runs/train-1"
    assert study["problem"].endswith(f"file is not a database; {advice}")


def test_where_there_are_none_none_are_listed(study):
    assert study("list") == (0, "", "hvdtune: no studies in runs\n")


def test_a_study_is_shown_with_its_trials(study, run_dir):
    code, out, _ = study("show", "train-1")
    assert code == 0
    assert "command: train.py --lr 1" in out
    assert "A/A noise floor, over 20 pairs: 0.60 %" in out
    assert f"verdict: {VERDICT['text']}" in out
    assert sum(line.split()[1:2] == ["complete"] for line in out.splitlines()) == 2
    assert "2 trials (2 complete): 1 of the default, 1 of other settings" in out


def test_what_is_believed_stands_beside_the_reading(study, run_dir):
    belief = {"gain_percent": 1.2, "low_percent": -0.4, "high_percent": 2.8}
    space = make_space(load_knobs(), default_setting(), tunable=("cycle_time_ms",))
    with StudyStore(run_dir, space, TuneOptions(trials=2)) as store:
        store.set("beliefs", {"1": belief})
        store.set("verdict", json.dumps({**VERDICT, "in_use": "in use: X", "advice": "Use X."}))
    _, out, _ = study("show", "train-1")
    lines = out.splitlines()
    head = next(index for index, line in enumerate(lines) if line.startswith("trial"))
    assert lines[head].split()[2:8] == ["estimate", "95", "%", "over", "launches", "measured"]
    assert lines[head + 1].split()[2:6] == ["0", "%", "by", "definition"]
    assert lines[head + 2].split()[2:9] == ["+1.2", "%", "-0.4", "to", "+2.8", "+5.1", "%"]
    assert f"verdict: {VERDICT['text']}\nin use: X\nUse X.\n" in out
    _, out, _ = study("show", "train-1", "--json")
    assert [trial["belief"] for trial in json.loads(out)["trials"]] == [
        None,
        {**belief, "scope": "over launches", "others_percent": None},
    ]


def test_each_further_objective_has_a_column(study, tmp_path):
    folder = tmp_path / "runs" / "train-2"
    folder.mkdir(parents=True)
    space = make_space(load_knobs(), default_setting(), tunable=("cycle_time_ms",))
    options = TuneOptions(trials=1, objectives=("step_time", "cpu_time"), sampler="tpe")
    with StudyStore(folder, space, options) as store:
        further = {"cpu_time": Further(0.02, 0.01)}
        store.tell(store.ask()[0], TrialOutcome("complete", 0.05, 0.01, 4, further=further))
    code, out, _ = study("show", "train-2")
    lines = out.splitlines()
    head = next(index for index, line in enumerate(lines) if line.startswith("trial"))
    assert code == 0
    columns = ["trial", "state", "measured", "+-", "cpu_time", "pairs", "setting", "why"]
    assert lines[head].split() == columns
    assert lines[head + 1].split()[:7] == ["0", "complete", "+5.1", "%", "2.0", "+2.0", "%"]


def test_a_study_whose_script_failed_says_so(study, hvdtune, script):
    code = hvdtune(
        "run", "-np", "1", "--trials", "2", "-o", "runs/t", script("sys.exit('no data')")
    ).wait()
    assert code == 1
    _, out, _ = study("show", "t")
    assert "verdict: none yet\nended before it was complete: rank 0 exited with code 1" in out
    _, out, _ = study("list", "--json")
    (listed,) = json.loads(out)
    assert listed["verdict"] is None and "exited with code 1" in listed["failure"]


def test_the_verification_is_shown_without_pairs_that_were_set_aside(study, run_dir):
    with PairLog(run_dir / "pairs.jsonl") as log:
        pair = replace(log.pairs[-1], phase="verify", log_ratio=0.02)
        for launch in (3, 5):
            log.append(replace(pair, launch=launch))
            aside = replace(pair, launch=launch, log_ratio=0.9, set_aside="the machine was busy")
            log.append(replace(aside, at_fault="A" if launch == 3 else "B"))
    code, out, _ = study("show", "train-1")
    rows = out[out.index("verified in launch") :].splitlines()[1:3]
    assert code == 0
    assert [row.split() for row in rows] == [["3", "1", "+2.0", "%"], ["5", "1", "+2.0", "%"]]


def test_a_study_is_shown_to_programs(study, run_dir):
    code, out, _ = study("show", "--json")
    document = json.loads(out)
    assert (code, document["state"], document["measured_trials"]) == (0, "finished", 2)
    assert document["verdict"] == VERDICT
    assert [trial["pairs"] for trial in document["trials"]] == [4, 4]


def test_trials_and_pairs_are_exported(study, run_dir, tmp_path):
    code, out, _ = study("export", "--format", "csv")
    assert (code, out.split()) == (0, ["train-1-trials.csv", "train-1-pairs.csv"])
    assert (tmp_path / "train-1-pairs.csv").read_text().count("\n") == 9


def test_deleting_asks_where_somebody_can_answer(study, run_dir):
    code, _, err = study("delete", "train-1")
    assert code == 2
    assert "was not deleted: there is no terminal to confirm it; add --yes" in err
    assert run_dir.exists()


def test_a_deleted_study_leaves_what_is_not_its_own(study, run_dir):
    (run_dir / "notes.txt").touch()
    code, _, err = study("delete", "train-1", "--yes")
    assert code == 0
    assert err == "hvdtune: runs/train-1 still contains other files: notes.txt\n"
    assert [path.name for path in run_dir.iterdir()] == ["notes.txt"]


def test_a_study_in_use_is_not_deleted(study, run_dir):
    lock_fd = lock_study(run_dir)
    try:
        code, _, err = study("delete", "train-1", "--yes")
    finally:
        os.close(lock_fd)
    assert (code, err) == (1, "hvdtune: error: another tuner is working in runs/train-1\n")


def test_a_sound_study_passes(study, run_dir):
    assert study("fsck") == (0, "runs/train-1: no fault\n", "")


def test_a_fault_is_one_line_and_is_mended_on_demand(study, run_dir):
    log = run_dir / "pairs.jsonl"
    log.write_text(log.read_text() + '{"v": 1, ')
    what = "runs/train-1: pairs.jsonl: the last line is incomplete: the tuner was killed while "
    what += "writing it"
    code, out, _ = study("fsck")
    assert (code, out) == (1, f"{what}: --repair removes it, and so does the next run\n")
    assert study("fsck", "--repair")[:2] == (0, f"{what}: repaired\n")
    assert study("fsck")[0] == 0


def test_a_destroyed_database_is_made_anew(study, run_dir):
    (run_dir / "study.db").write_bytes(b"no database" * 1000)
    code, out, _ = study("fsck", "--repair", "train-1")
    assert (code, out.count("\n")) == (0, 1)
    assert json.loads(study("show", "--json")[1])["measured_trials"] == 2


def test_a_database_of_studies_is_used_like_a_folder_of_runs(study, tmp_path):
    url = "sqlite:///studies.db"
    make_study(tmp_path / "one", SharedStudy(f"sqlite:///{tmp_path}/studies.db", "mine"))
    assert study("fsck", "--storage", url)[:2] == (0, f"mine in {url}: no fault\n")
    (listed,) = json.loads(study("list", "--storage", url, "--json")[1])
    assert (listed["study"], listed["storage"], listed["measured_pairs"]) == ("mine", url, 8)
    assert f"mine in {url}: finished" in study("show", "mine", "--storage", url)[1]
    assert study("delete", "mine", "--storage", url, "--yes")[0] == 0
    assert json.loads(study("list", "--storage", url, "--json")[1]) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("show", "nothing"), "nothing is not a folder with a study"),
        (("show",), "there is no study in runs"),
        (("list", "--runs", "nowhere"), "--runs nowhere does not exist"),
        (("fsck", "--runs", "nowhere"), "--runs nowhere does not exist"),
        (("list", "--runs", "train.py"), "--runs train.py is not a folder"),
        (("fsck", "--runs", "train.py"), "--runs train.py is not a folder"),
        (("list", "--storage", "studies.db"), "The storage is not a URL such as"),
        (("list", "--storage", "redis://host"), "hvdtune cannot store studies in redis"),
        (("list", "--storage", "sqlite://"), "a study in memory is lost with its tuner"),
    ],
)
def test_what_cannot_be_is_a_usage_error(study, tmp_path, words, message):
    (tmp_path / "train.py").touch()
    code, _, err = study(*words)
    assert code == 2
    assert err.startswith(f"hvdtune: error: {message}")


def test_a_storage_needs_trials(call, script):
    code, _, err = call("run", "--storage", "sqlite:///x.db", script(""))
    assert (code, err) == (2, "hvdtune: error: --storage needs --trials\n")
