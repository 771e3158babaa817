"""`hvdtune compare`, and a study of a knob that the script declares, on real ranks."""

import json

import pytest

from hvdtune.core.config.knobs import load_knobs
from hvdtune.tuner.results.profile import read_profile
from hvdtune.tuner.storage.study_store import read_study

_STEPS = """
from hvdtune.core.rank.script_knobs import knob, variant
init()
for _ in range({steps}):
    time.sleep(0.001 if variant("quick") else 0.004)
    knob("chunks", [1, 2, 4])
    step()
"""


@pytest.mark.parametrize(
    "words",
    [
        ("--variant", "quick"),
        pytest.param(("--variant=quick=true",), marks=pytest.mark.slow),  # as without a value
    ],
)
def test_a_variant_is_compared_within_one_run(hvdtune, script, tmp_path, words):
    script(_STEPS.format(steps=10**6))
    run = hvdtune("compare", "-np", "2", "--pairs", "6", "--json", "-o", "kept", "train.py", *words)
    out, err = run.communicate()
    verdict = json.loads(out)
    assert (run.returncode, verdict["kind"], verdict["launches"]) == (0, "improved", 1), err
    assert "faster with quick than without quick" in verdict["text"]
    assert verdict["candidate"]["script.quick"] is True
    default = {knob.name for knob in load_knobs()} | {"script.quick", "script.chunks"}
    profile = read_profile(tmp_path / "kept" / "profile.yaml")
    assert set(profile.setting) == default
    assert profile.setting["script.quick"] is True


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--variant", "quack"), "the script has no knob quack; it has quick: False, True; chunks"),
        (("--variant", "chunks"), "chunks has the values 1, 2, 4: name the one"),
    ],
)
def test_a_variant_that_the_script_does_not_have_is_refused(hvdtune, script, words, error):
    script(_STEPS.format(steps=10**6))
    run = hvdtune("compare", "train.py", *words)
    _, err = run.communicate()
    assert run.returncode == 2
    assert error in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("compare", "train.py"), "--variant"),
        (("compare", "--variant", "a b", "train.py"), "'a b' is not a valid name of a knob"),
        (("compare", "--mode", "restart", "--variant", "a", "train.py"), "No such option: --mode"),
        (("run", "--trials", "2", "--knobs", "scrip.a", "train.py"), "unknown knob scrip.a"),
        (("run", "--fix", "script.a b=1", "train.py"), "'a b' is not a valid name of a knob"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(call, script, words, error):
    script("sys.exit(9)")
    code, _, err = call(*words)
    assert code == 2
    assert error in err


# Takes a whole study.
@pytest.mark.slow
def test_a_study_finds_the_faster_version_and_the_script_goes_on_with_it(hvdtune, script, tmp_path):
    tell = "print('quick', variant('quick'))\n"
    script(_STEPS.format(steps=8000) + tell)
    words = ("--trials", "4", "--time-budget", "60s", "--knobs", "script.quick,script.chunks")
    run = hvdtune("run", "-np", "2", *words, "-o", "study", "--verbose", "train.py")
    out, err = run.communicate()
    assert run.returncode == 0, err
    assert "quick True" in out + err
    verdict = read_study(tmp_path / "study").verdict
    assert verdict is not None
    assert verdict["setting"]["script.quick"] is True
    again = hvdtune("run", "--profile", "study/profile.yaml", script("from hvdtune.core.rank."
        "script_knobs import variant\ninit()\n" + tell))  # fmt: skip
    out, err = again.communicate()
    assert "quick True" in out, err
