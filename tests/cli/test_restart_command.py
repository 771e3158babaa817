"""Studies by restarting, of real processes."""

import json
import os

import pytest
import yaml

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]  # dozens of launches each

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
    out, err = process.communicate(timeout=280)
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
    assert "is not started again" in out


_PACED = _STAND_IN.format(variable="PACE", default="slow", test="== 'slow'")
_COMMAND = ("--", "python", "train.py")
_VARIED = ("--adapter", "command", "--vary", "PACE=fast")


@pytest.mark.parametrize(
    ("body", "words", "fault"),
    [
        (
            _PACED,
            (*_VARIED, "--metric-regex", r"speed: (\S+)", *_COMMAND),
            r"no line of the output matched --metric-regex speed: (\S+) with a number above 0 in "
            "its group; the output is in study/output/launch-0.log",
        ),
        (_PACED, _COMMAND, "The command's processes never called hvd.init()"),
        (
            "print('nothing')",
            ("--adapter", "ddp", "-np", "2", "train.py"),
            "the command made no DistributedDataParallel, so there is nothing to tune; its last "
            "line: nothing",
        ),
    ],
    ids=["regex-that-matches-nothing", "knobs-of-hvdtune-without-a-job", "ddp-without-a-ddp"],
)
def test_what_cannot_be_measured_is_one_line(hvdtune, tmp_path, body, words, fault):
    (tmp_path / "train.py").write_text(body)
    code, out, err = finished(hvdtune(*_RESTART, "-o", "study", *words))
    assert (code, out) == (1, "")
    assert err.splitlines()[-1].startswith(f"hvdtune: error: {fault}")


_UNSTEADY = """
import pathlib, random
launches = pathlib.Path("launches")
number = len(launches.read_text()) if launches.exists() else 0
launches.write_text("." * (number + 1))
for step in range(40):
    print("step_time:", 0.005 * (1 + random.Random(number).choice((0.0, 0.015))), flush=True)
"""


def test_a_floor_of_few_pairs_is_judged_by_what_a_verification_may_take(hvdtune, tmp_path):
    (tmp_path / "unsteady.py").write_text(_UNSTEADY)
    regex = ("--adapter", "command", "--vary", "PACE=fast", "--metric-regex", "step_time: (.+)")
    run = ("--mode", "restart", "--launch-time", "0.05s", "--pairs", "6", "--json", *regex)
    code, out, err = finished(hvdtune("aa", *run, "--", "python", "unsteady.py"))
    floor = json.loads(out)
    assert 6 < floor["pairs_needed"] <= 32, floor
    assert (code, floor["kind"]) == (0, "floor"), err


def test_an_adapter_without_a_mode_runs_the_command_once_with_the_profile(hvdtune, tmp_path):
    command = stand_in(tmp_path, "HOROVOD_CYCLE_TIME", "1.0", "== '9.5'")
    (tmp_path / "standin.py").write_text("import os; print(os.environ.get('HOROVOD_CYCLE_TIME'))")
    fix = ("--fix", "cycle_time_ms=9.5")
    code, out, err = finished(hvdtune("run", "--adapter", "horovod", *fix, *command))
    assert (code, out) == (0, "[0]<stdout>:9.5\n"), err


def test_a_command_without_variables_runs_once(hvdtune):
    code, out, _ = finished(
        hvdtune("run", "--adapter", "command", "--", "sh", "-c", "echo a; exit 9")
    )
    assert (code, out) == (9, "[0]<stdout>:a\n")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--mode", "live", "--adapter", "ddp", "x"), "--mode live tunes hvdtune within one run"),
        (("--vary", "A=1", "--trials", "2", "x"), "--vary needs --mode restart"),
        (
            ("--mode", "restart", "--adapter", "horovod", "-np", "2", "ls"),
            "the command starts its own ranks",
        ),
        (("--mode", "restart", "--adapter", "command", "ls"), "name variables with --vary"),
        (("--mode", "restart", "--knobs", "speed", "ls"), "unknown knob speed"),
        (("--mode", "restart", "--metric-regex", "x", "ls"), "one group must hold"),
        (("--mode", "restart", "--autotune", "ls"), "--autotune tunes hvdtune within one run"),
        (("--adapter", "ddp", "--cycle-time-ms", "2", "ls"), "unknown knob cycle_time_ms"),
    ],
)
def test_what_cannot_be_is_a_usage_error(hvdtune, words, why, tmp_path):
    code, _, err = finished(hvdtune("run", *words))
    assert (code, err.startswith("hvdtune: error: ")) == (2, True)
    assert why in err
    assert os.listdir(tmp_path) == []


_DDP = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 4), bucket_cap_mb=50)
print("made with", model.bucket_bytes_cap / 2**20, model.gradient_as_bucket_view)
dist.destroy_process_group()
"""
_PROFILE = """
version: 1
setting: &setting {ddp_bucket_cap_mb: 25.0, ddp_first_bucket_mb: 0.01,
  ddp_gradient_as_bucket_view: true, NCCL_ALGO: Ring}
default: *setting
verdict: {improved: true, gain_percent: 9.0, ci_percent: [8.0, 10.0], pairs: 12, launches: 12,
  noise_floor_percent: 1.0, text: better}
fingerprint: {mode: restart, adapter: ddp}
created: today
"""


def test_the_profile_of_a_ddp_study_is_given_to_the_unmodified_script(hvdtune, tmp_path):
    (tmp_path / "train.py").write_text(_DDP)
    (tmp_path / "profile.yaml").write_text(_PROFILE)
    code, out, err = finished(hvdtune("run", "--profile", "profile.yaml", "-np", "2", "train.py"))
    assert code == 0, err
    assert out.count("<stdout>:made with 25.0 True") == 2
