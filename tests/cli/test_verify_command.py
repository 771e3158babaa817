import json
import signal
import sys

import pytest

_STEPS = """
init()
for _ in range({steps}):
    time.sleep(0.001)
    step()
"""
_CODES = {"improved": 0, "default": 3, "unstable": 3, "noisy": 4}


def write_b(tmp_path, text="cycle_time_ms: 0.2\n"):
    (tmp_path / "b.yaml").write_text(text)


@pytest.mark.slow
def test_a_verification_leaves_its_verdict_as_json_and_in_its_folder(hvdtune, script, tmp_path):
    script(_STEPS.format(steps=10**6))
    write_b(tmp_path)
    words = ("--b", "b.yaml", "--pairs", "6", "--json", "-o", "kept", "--verbose", "train.py")
    run = hvdtune("verify", *words)
    out, err = run.communicate()
    verdict = json.loads(out)
    assert run.returncode == _CODES[verdict["kind"]], err
    assert (verdict["pairs"], verdict["run"]) == (6, "kept")
    assert verdict["launches"] >= 3
    assert f"verdict: {verdict['text']}" in err
    assert "did not close it" not in err
    for name in ("pairs.jsonl", "verdict.json", "report.md", "profile.yaml", "trace.json"):
        assert (tmp_path / "kept" / name).exists()


@pytest.mark.slow
def test_an_interrupted_verification_is_continued_by_the_same_command(hvdtune, script, tmp_path):
    script(_STEPS.format(steps=10**6))
    write_b(tmp_path)
    run = hvdtune("verify", "--b", "b.yaml", "--pairs", "500", "train.py")
    assert any("verify" in line for line in iter(run.stderr.readline, ""))
    run.send_signal(signal.SIGINT)
    _, err = run.communicate()
    assert run.returncode == 130
    assert "the same command continues this study in runs/train-" in err
    (pairs,) = tmp_path.glob("runs/*/pairs.jsonl")
    before = pairs.read_text()
    again = hvdtune("verify", "--b", "b.yaml", "--pairs", "6", "train.py")
    _, err = again.communicate()
    assert again.returncode in _CODES.values(), err
    assert pairs.read_text().startswith(before)
    assert len(list((tmp_path / "runs").iterdir())) == 1


@pytest.mark.slow
def test_a_script_against_itself_has_a_floor(hvdtune, script, tmp_path):
    script(_STEPS.format(steps=10**6))
    run = hvdtune("aa", "--pairs", "6", "--json", "train.py")
    out, err = run.communicate()
    floor = json.loads(out)
    assert run.returncode == {"floor": 0, "noisy": 4}[floor["kind"]], err
    assert (floor["pairs"], floor["launches"]) == (6, 3)
    assert floor["noise_floor_percent"] > 0
    assert floor["text"] in (tmp_path / floor["run"] / "report.md").read_text()


@pytest.mark.parametrize(
    "words",
    [
        ("verify", "--b", "b.yaml"),
        pytest.param(("aa",), marks=pytest.mark.slow),  # as verify
        pytest.param(("run", "-np", "1", "--trials", "2"), marks=pytest.mark.slow),
    ],
)
def test_a_script_that_fails_keeps_its_own_code(hvdtune, script, tmp_path, words):
    script("init(); step(); sys.exit(7)")
    write_b(tmp_path)
    run = hvdtune(*words, "train.py")
    _, err = run.communicate()
    assert run.returncode == 7, err
    assert err.splitlines()[-1].startswith("hvdtune: error: rank 0 exited with code 7")


@pytest.mark.parametrize(
    "words",
    [("aa", "--json"), pytest.param(("run", "-np", "1", "--trials", "2"), marks=pytest.mark.slow)],
)
def test_a_script_without_steps_is_one_line(hvdtune, script, words):
    script("init(); print('nothing to do')")
    run = hvdtune(*words, "train.py")
    out, err = run.communicate()
    assert (run.returncode, out) == (1, "")
    assert err.splitlines()[-1] == "hvdtune: error: the script ended without an optimizer step"
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "text", "message"),
    [
        (("verify",), "", "Missing option '--b'"),
        (("verify", "--b", "none.yaml"), "", "cannot read none.yaml: No such file"),
        (("verify", "--b", "b.yaml"), "cycle_time: 1", "b.yaml: unknown knob cycle_time"),
        (("verify", "--b", "b.yaml"), "cycle_time_ms: 99", "b.yaml: cycle_time_ms = 99 is out"),
        (("verify", "--b", "b.yaml"), "- 1", "neither a profile nor lines of 'knob: value'"),
        (("verify", "--b", "b.yaml"), "{}", "b.yaml: contains no setting"),
        (("verify", "--b", "b.yaml"), "channels: 2", "A and B differ in channels, which cannot"),
        (("verify", "--b", "b.yaml", "--mpi"), "cycle_time_ms: 1", "leave out --mpi"),
        (("verify", "--b", "b.yaml", "--trials", "3"), "cycle_time_ms: 1", "No such option"),
        (("aa", "--pairs", "2"), "", "'--pairs': it must be at least 6, not 2"),
        (("run", "--json"), "", "--json needs --trials"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(
    call, script, tmp_path, words, text, message
):
    script("init()")
    write_b(tmp_path, text)
    code, out, err = call(*words, "train.py")
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "runs").exists()


def test_a_folder_of_other_settings_is_refused(hvdtune, call, script, tmp_path):
    script("init()")
    words = ("verify", "--b", "b.yaml", "-o", "kept", "train.py")
    write_b(tmp_path, "cycle_time_ms: 0.2\n")
    _, first = hvdtune(*words).communicate()
    assert (tmp_path / "kept" / "run.json").exists(), first
    write_b(tmp_path, "cycle_time_ms: 0.3\n")
    code, _, err = call(*words)
    assert code == 2
    assert "-o kept: the folder contains the run of a different command" in err


@pytest.mark.parametrize("command", ["verify", "aa"])
def test_the_help_leaves_out_what_only_a_search_has(call, command):
    _, out, _ = call(command, "--help")
    assert "--pairs" in out
    of_a_search = ("--sampler", "--space", "--step-budget", "--train-steps")
    assert not [option for option in of_a_search if option in out]


@pytest.mark.parametrize(
    ("words", "others"),
    [
        ((), [("--objective", "cpu_time"), ("--mode", "restart", "--launch-time", "0.1s")]),
        pytest.param(
            ("--mode", "restart"),
            [("--launch-time", "0.1s"), ("--metric-regex", "loss ([0-9.]+)")],
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ("--adapter", "command", "--vary", "PACE=fast"),
            [("--metric-regex", "([0-9.]+)"), ("--vary", "OTHER=x")],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_folder_of_a_study_that_measures_something_else_is_refused(
    hvdtune, call, tmp_path, words, others
):
    (tmp_path / "train.py").write_text("raise SystemExit(7)")
    tune = ("run", "--trials", "2", "-o", "kept", *words)
    command = ("--", sys.executable, "train.py")
    _, first = hvdtune(*tune, *command).communicate()
    assert (tmp_path / "kept" / "run.json").exists(), first
    for other in others:
        code, _, err = call(*tune, *other, *command)
        assert code == 2
        assert "-o kept: the folder contains the run of a different command" in err
