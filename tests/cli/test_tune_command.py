import json
import os
import signal
import time

import psutil
import pytest

pytestmark = pytest.mark.slow

_STEPS = """
init()
for _ in range({steps}):
    time.sleep(0.001)
    step()
print("accuracy 0.97")
"""
_CODES = {"improved": 0, "default": 3, "unstable": 3, "noisy": 4}
_TUNE = ("run", "-np", "1", "--trials", "2", "--time-budget", "12s", "--knobs", "cycle_time_ms")


def test_a_study_leaves_a_verdict_and_all_its_files(hvdtune, script, tmp_path):
    script(_STEPS.format(steps=12_000))
    run = hvdtune(*_TUNE, "-o", "study", "train.py")
    out, err = run.communicate()
    verdict = json.loads((tmp_path / "study" / "verdict.json").read_text())
    assert run.returncode == _CODES[verdict["kind"]], err
    assert f"verdict: {verdict['text']}" in out
    assert "    accuracy 0.97" in out.splitlines()
    for name in ("study.db", "pairs.jsonl", "profile.yaml", "report.md", "trace.json", "output"):
        assert f"study/{name}" in out
        assert (tmp_path / "study" / name).exists()
    last = max((tmp_path / "study" / "output").iterdir(), key=lambda path: path.stat().st_mtime)
    assert "accuracy 0.97" in last.read_text()


def test_a_study_that_was_stopped_is_continued_by_the_same_command(hvdtune, script, tmp_path):
    script(_STEPS.format(steps=10**6))
    run = hvdtune(*_TUNE, "train.py")
    assert any("calibrate" in line for line in iter(run.stderr.readline, ""))
    run.send_signal(signal.SIGINT)
    _, err = run.communicate()
    assert run.returncode == 130
    assert "the same command continues this study in runs/train-" in err
    again = hvdtune(*_TUNE, "train.py")
    assert "continuing the unfinished study in runs/train-" in again.stderr.readline()
    again.send_signal(signal.SIGTERM)
    again.communicate()
    assert again.returncode == 143
    assert len(list((tmp_path / "runs").iterdir())) == 1


def test_a_study_whose_launcher_was_killed_loses_no_pair_and_leaves_no_process(
    hvdtune, script, tmp_path
):
    script(_STEPS.format(steps=11_000))
    run = hvdtune(*_TUNE, "-o", "study", "train.py")
    pairs = tmp_path / "study" / "pairs.jsonl"
    while not pairs.exists() or pairs.read_text().count("\n") < 3:
        assert run.poll() is None
        time.sleep(0.05)
    ranks = psutil.Process(run.pid).children(recursive=True)
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    assert psutil.wait_procs(ranks, timeout=100)[1] == []
    finished = pairs.read_text()
    again = hvdtune(*_TUNE, "-o", "study", "train.py")
    _, err = again.communicate()
    assert again.returncode in _CODES.values(), err
    assert pairs.read_text().startswith(finished)
    assert (tmp_path / "study" / "verdict.json").exists()


def test_a_script_stopped_after_the_verdict_still_leaves_everything(hvdtune, script, tmp_path):
    script(_STEPS.format(steps=10**6))
    run = hvdtune(*_TUNE, "-o", "study", "--verbose", "train.py")
    assert any("continues with this setting" in line for line in iter(run.stderr.readline, ""))
    run.send_signal(signal.SIGINT)
    out, err = run.communicate()
    assert (run.returncode, err.splitlines()[0]) == (130, "hvdtune: error: stopped by SIGINT")
    assert "verdict: " in out
    assert (tmp_path / "study" / "trace.json").exists()


def test_a_script_that_fails_after_the_verdict_keeps_its_code_and_json_has_both(hvdtune, script):
    script(_STEPS.format(steps=11_000) + "sys.exit(9)")
    run = hvdtune(*_TUNE, "--json", "--verbose", "train.py")
    out, err = run.communicate()
    document = json.loads(out)
    assert (run.returncode, document["script_exit_code"]) == (9, 9), err
    assert document["kind"] in _CODES
    assert "accuracy 0.97" in err
    assert "hvdtune: error: the script failed under " in err
