import csv
import json
from dataclasses import replace

import pytest

from hvdtune.tuner.results.profile import read_profile, write_profile
from hvdtune.tuner.storage.pair_log import format_pair, read_pairs

_STEPS = """
init()
for _ in range({steps}):
    time.sleep(0.001)
    step()
print("trained")
"""
_UNTIL_STOPPED = """
init()
while not os.path.exists("stop"):
    time.sleep(0.001)
    step()
"""


def test_a_run_too_short_to_be_tuned_is_a_run(hvdtune, script, tmp_path):
    script(_STEPS.format(steps=5))
    run = hvdtune("run", "--autotune", "-o", "kept", "train.py")
    out, err = run.communicate()
    assert (run.returncode, out) == (0, "[0]<stdout>:trained\n")
    assert "warning: autotune: nothing was tuned: the script " in err
    assert "Traceback" not in err


def test_the_scripts_failure_is_the_runs(hvdtune, script):
    script("init(); step(); sys.exit(7)")
    run = hvdtune("run", "--autotune", "train.py")
    _, err = run.communicate()
    assert run.returncode == 7
    assert err.splitlines()[-1] == "hvdtune: error: rank 0 exited with code 7"


def test_a_log_that_cannot_be_written_is_refused_before_the_script_starts(call, script, tmp_path):
    script("open('started', 'w')")
    words = ("run", "--autotune", "--autotune-log-file", "no/dir/log.csv", "train.py")
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert err.endswith("error: --autotune-log-file no/dir/log.csv: No such file or directory\n")
    assert not (tmp_path / "started").exists()


@pytest.mark.slow
def test_a_live_run_is_tuned_and_ends_by_itself(hvdtune, script, tmp_path, monkeypatch):
    monkeypatch.setenv("HOROVOD_AUTOTUNE", "1")
    monkeypatch.setenv("HOROVOD_AUTOTUNE_LOG", "log.csv")
    script(_STEPS.format(steps=15_000))
    words = ("--autotune-bayes-opt-max-samples", "2", "--cycle-time-ms", "2", "-o", "kept")
    run = hvdtune("run", *words, "train.py")
    out, err = run.communicate()
    assert run.returncode == 0, err
    assert out == "[0]<stdout>:trained\n"
    rows = list(csv.DictReader((tmp_path / "log.csv").read_text().splitlines()))
    # The first trial is the run as it was started; a knob that was named is not searched.
    assert rows[0]["tensor_fusion_threshold"] == "128"
    assert {row["cycle_time_ms"] for row in rows} == {"2.0"}
    verdict = json.loads((tmp_path / "kept" / "verdict.json").read_text())
    assert f"autotune: {verdict['text']}" in err
    launches = [path.name for path in (tmp_path / "kept" / "output").iterdir()]
    assert launches == ["launch-0.log"]
    assert (tmp_path / "kept" / "trace.json").exists()


def test_a_later_run_begins_with_what_an_earlier_one_has_ended_with(hvdtune, script, tmp_path):
    script(_UNTIL_STOPPED)
    words = ("run", "--autotune", "--autotune-bayes-opt-max-samples", "1")
    first = hvdtune(*words, "-o", "runs/first", "train.py")
    profile = tmp_path / "runs" / "first" / "profile.yaml"
    assert any(profile.exists() for _ in first.stderr)
    (tmp_path / "stop").touch()
    assert first.wait() == 0
    has_ended_with(profile.parent, {"cycle_time_ms": 0.5})
    (tmp_path / "stop").unlink()

    later, anew = hvdtune(*words, "train.py"), hvdtune(*words, "--ignore-earlier", "train.py")
    assert told_of_earlier_launches(later) == (
        "1 earlier launch of this job is known (runs/first): cycle_time_ms=0.5 gained +8.3 %; "
        "testing it on 20 pairs; if confirmed, it is used without a search (--ignore-earlier to "
        "search again)"
    )
    assert told_of_earlier_launches(anew) == ""
    (tmp_path / "stop").touch()
    for run in (later, anew):
        run.communicate()
        assert run.returncode == 0


def has_ended_with(folder, values):
    """The study in the folder, as if it had verified this setting in a launch of its own."""
    profile = read_profile(folder / "profile.yaml")
    setting = {**profile.default, **values}
    write_profile(replace(profile, setting=setting), folder / "profile.yaml")
    log = folder / "pairs.jsonl"
    calibration = [pair for pair in read_pairs(log) if pair.phase == "calibrate"]
    quiet = [replace(pair, log_ratio=0.01) for pair in calibration]
    gains = (0.07, 0.08, 0.09, 0.08)
    fresh = replace(quiet[0], launch=1, phase="verify", setting=setting)
    verified = [replace(fresh, log_ratio=gain) for gain in gains]
    log.write_text("".join(f"{format_pair(pair)}\n" for pair in quiet + verified))


def told_of_earlier_launches(run):
    """What is said of them before anything but the default is measured."""
    said = ""
    for line in run.stderr:
        text = line.partition("autotune: calibrate: ")[2].strip()
        if "known" in text:
            said = text
        if "autotune: search: " in line or "autotune: verify: " in line:
            return said
    raise AssertionError("the run has ended")
