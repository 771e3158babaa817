import csv
import json

import pytest

_STEPS = """
init()
for _ in range({steps}):
    time.sleep(0.001)
    step()
print("trained")
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
