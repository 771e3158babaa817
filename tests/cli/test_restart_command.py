"""Studies by restarting, of real processes."""

import json
import os

import pytest
import yaml

pytestmark = pytest.mark.slow

# What a command of another runtime does with a variable: half of them make it slower.
_STAND_IN = """
import os, time
slow = os.environ.get("{variable}", "{default}") {test}
for step in range(40):
    time.sleep(0.005 if slow else 0.003)
    print(f"step_time: {{0.005 if slow else 0.003}}", flush=True)
"""
_RESTART = ("run", "--mode", "restart", "--launch-time", "0.05s", "--time-budget", "5m")


def finished(process):
    out, err = process.communicate(timeout=110)
    return process.returncode, out, err


def stand_in(tmp_path, variable, default, test):
    body = _STAND_IN.format(variable=variable, default=default, test=test)
    (tmp_path / "standin.py").write_text(body)
    return ("--", "python", "standin.py")


def test_horovods_variables_are_tuned_by_the_lines_that_a_command_prints(hvdtune, tmp_path):
    command = stand_in(tmp_path, "HOROVOD_CACHE_CAPACITY", "1024", "== '1024'")
    regex = ("--metric-regex", "step_time: ([0-9.]+)")
    knobs = ("--knobs", "cache_capacity", "--adapter", "horovod", "--trials", "3")
    code, out, err = finished(hvdtune(*_RESTART, *regex, *knobs, "-o", "study", *command))
    assert code == 0, err
    assert "measured by the lines that match step_time: ([0-9.]+): " in err
    profile = yaml.safe_load((tmp_path / "study" / "profile.yaml").read_text())
    assert profile["verdict"]["improved"], out
    assert profile["verdict"]["gain_percent"] == pytest.approx(66.7, abs=1)
    capacity = profile["setting"]["cache_capacity"]
    assert capacity != profile["default"]["cache_capacity"] == 1024
    assert f"HOROVOD_CACHE_CAPACITY={capacity} python standin.py" in out
    assert not (tmp_path / "study" / "trace.json").exists()


def test_any_command_is_tuned_by_its_wall_time(hvdtune, tmp_path):
    command = stand_in(tmp_path, "PACE", "slow", "== 'slow'")
    how = ("--adapter", "command", "--vary", "PACE=fast", "--trials", "2")
    code, out, err = finished(hvdtune(*_RESTART, *how, "-o", "study", *command))
    assert code in (0, 3, 4), err
    assert "measured by the wall time of the command, " in err
    verdict = json.loads((tmp_path / "study" / "verdict.json").read_text())
    assert verdict["candidate"] == {"PACE": "fast"}
    assert "is not started once more" in out


def test_restart_knobs_reach_hvdtunes_ranks_which_report_their_steps(hvdtune, script, tmp_path):
    script(
        "init()\n"
        "print('is', os.environ['HVDTUNE_CACHE_CAPACITY'], os.environ.get('HVDTUNE_TRANSPORT'))\n"
        "for _ in range(4000):\n    time.sleep(0.001)\n    step()\n"
    )
    knobs = ("--knobs", "cache_capacity,transport", "--trials", "2", "--time-budget", "25s")
    code, _, err = finished(hvdtune(*_RESTART, *knobs, "-np", "2", "-o", "study", "train.py"))
    assert code in (0, 3, 4), err
    assert "measured by the optimizer steps of the ranks: " in err
    lines = (tmp_path / "study" / "pairs.jsonl").read_text().splitlines()
    pairs = [json.loads(line) for line in lines]
    assert {pair["order"] for pair in pairs} == {"AB", "BA"}
    logs = [path.read_text() for path in (tmp_path / "study" / "output").iterdir()]
    assert any("]<stdout>:is 1024 auto" in log for log in logs)
    tried = {tuple(pair["setting"][k] for k in ("cache_capacity", "transport")) for pair in pairs}
    assert len(tried) > 1
    for capacity, transport in tried:
        assert any(f"]<stdout>:is {capacity} {transport}" in log for log in logs)


def test_a_command_that_is_no_job_is_told_that_hvdtunes_knobs_are_nothing_to_it(hvdtune, tmp_path):
    command = stand_in(tmp_path, "PACE", "slow", "== 'slow'")
    code, _, err = finished(hvdtune(*_RESTART, *command))
    assert code == 1
    assert "error: the command's processes never called hvd.init()" in err


def test_a_ddp_script_that_makes_no_ddp_is_one_line(hvdtune, tmp_path):
    (tmp_path / "train.py").write_text("print('nothing')")
    code, _, err = finished(hvdtune(*_RESTART, "--adapter", "ddp", "-np", "2", "train.py"))
    assert code == 1
    assert err.splitlines()[-1] == (
        "hvdtune: error: the command made no DistributedDataParallel, so there is nothing to tune; "
        "its last line: nothing"
    )


def test_an_adapter_without_a_mode_runs_the_command_once_with_the_profile(hvdtune, tmp_path):
    command = stand_in(tmp_path, "HOROVOD_CYCLE_TIME", "1.0", "== '9.5'")
    (tmp_path / "standin.py").write_text("import os; print(os.environ.get('HOROVOD_CYCLE_TIME'))")
    fix = ("--fix", "cycle_time_ms=9.5")
    code, out, err = finished(hvdtune("run", "--adapter", "horovod", *fix, *command))
    assert (code, out) == (0, "[0]<stdout>:9.5\n"), err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--mode", "live", "--adapter", "ddp", "x"), "--mode live tunes hvdtune in a run"),
        (("--vary", "A=1", "--trials", "2", "x"), "--vary needs --mode restart"),
        (("--mode", "restart", "--adapter", "horovod", "-np", "2", "ls"), "started by the command"),
        (("--mode", "restart", "--adapter", "command", "ls"), "name variables with --vary"),
        (("--mode", "restart", "--knobs", "speed", "ls"), "unknown knob speed"),
        (("--mode", "restart", "--metric-regex", "x", "ls"), "one group must hold"),
        (("--mode", "restart", "--autotune", "ls"), "--autotune tunes hvdtune in a run"),
        (("--adapter", "ddp", "--cycle-time-ms", "2", "ls"), "unknown knob cycle_time_ms"),
    ],
)
def test_what_cannot_be_is_a_usage_error(hvdtune, words, why, tmp_path):
    code, _, err = finished(hvdtune("run", *words))
    assert (code, err.startswith("hvdtune: error: ")) == (2, True)
    assert why in err
    assert os.listdir(tmp_path) == []
