import pytest
import yaml

from hvdtune.core.config.knobs import default_setting
from hvdtune.workflows.fingerprint import past_winner

_LOG = """\
hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,\
tensor_fusion_threshold,score
0,0,0, 1,5,4,439.25
0,0,0, 1,50,32,401.5
0,0,0, 1,5,4,439.25
"""

_REDUCE = """
import numpy as np
from hvdtune.core.rank.collectives import Reduction, allreduce_request
from hvdtune.core.rank.handles import start, synchronize
init()
weight = np.zeros(10_000, np.float32)
request = allreduce_request("weight", [("float32", weight.shape)], Reduction())
at = [weight.ctypes.data]
steps = 0
while not weight.any():  # both ranks end after the same step
    weight[0] = {ends}
    steps += 1
    synchronize(start(request, at, at, [weight], lambda _: None))
    step()
"""


@pytest.fixture
def imported(call, tmp_path):
    (tmp_path / "autotune.csv").write_text(_LOG)
    code, out, err = call("profile", "import", "autotune.csv")
    assert code == 0, err
    return out


def test_an_imported_log_becomes_a_profile_that_says_it_is_not_verified(imported, tmp_path):
    profile = yaml.safe_load((tmp_path / "autotune.yaml").read_text())
    assert "so noise is unknown" in imported
    assert profile["setting"]["fusion_threshold_bytes"] == 4 << 20
    assert profile["verdict"]["improved"] is False
    assert profile["verdict"]["text"].startswith("not verified: imported from")


def test_a_run_with_a_profile_that_is_not_verified_says_so(imported, hvdtune, script):
    script("init(); print('trained')")
    run = hvdtune("run", "--profile", "autotune.yaml", "train.py")
    out, err = run.communicate()
    assert (run.returncode, out) == (0, "[0]<stdout>:trained\n")
    assert "warning: autotune.yaml is unverified: not verified: imported" in err


def test_an_import_does_not_write_over_a_file_unasked(imported, call, tmp_path):
    code, _, err = call("profile", "import", "autotune.csv")
    assert code == 2
    assert err == "hvdtune: error: autotune.yaml already exists: choose another file with -o\n"
    assert call("profile", "import", "autotune.csv", "-o", "other.yaml")[0] == 0
    assert (tmp_path / "other.yaml").exists()


def test_an_import_replaces_a_profile(imported, call, tmp_path):
    before = (tmp_path / "autotune.yaml").stat().st_ino
    assert call("profile", "import", "autotune.csv", "-o", "autotune.yaml")[0] == 0
    assert (tmp_path / "autotune.yaml").stat().st_ino != before


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ("autotune.csv", "is the log itself"),
        ("link.csv", "is the log itself"),
        ("notes.txt", "already exists and is not a profile"),
        ("kept", "already exists and is not a profile"),
    ],
)
def test_an_import_writes_over_nothing_but_profiles(imported, call, tmp_path, output, problem):
    (tmp_path / "link.csv").symlink_to("autotune.csv")
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "kept").mkdir()
    code, out, err = call("profile", "import", "autotune.csv", "-o", output)
    assert (code, out) == (2, "")
    assert err == f"hvdtune: error: {output} {problem}: choose another file with -o\n"
    assert (tmp_path / "autotune.csv").read_text() == _LOG
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (tmp_path / "link.csv").is_symlink()


def test_an_exported_profile_runs_with_horovods_options(imported, hvdtune, script, tmp_path):
    run = hvdtune("profile", "export", "autotune.yaml", "--to", "horovod-yaml")
    out, err = run.communicate()
    assert run.returncode == 0, err
    (tmp_path / "config.yaml").write_text(out)
    script("init(); print(os.environ['HVDTUNE_FUSION_THRESHOLD_BYTES'])")
    used = hvdtune("run", "--config-file", "config.yaml", "train.py")
    out, err = used.communicate()
    assert (used.returncode, out) == (0, "[0]<stdout>:4194304\n"), err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("export", "none.yaml", "--to", "env"), "cannot read none.yaml"),
        (("export", "none.yaml", "--to", "mpi"), "'mpi' is not one of"),
        (("export", "none.yaml"), "Missing option '--to'"),
        (("import", "none.csv"), "cannot read none.csv"),
    ],
)
def test_what_cannot_be_carried_is_one_line(call, words, message):
    code, out, err = call("profile", *words)
    assert (code, out) == (2, "")
    assert message in err


def write_profile(path, **fingerprint):
    verdict = {
        "improved": True, "gain_percent": 7.0, "ci_percent": [6.0, 8.0], "pairs": 32,
        "launches": 3, "noise_floor_percent": 0.6, "text": "+7.0 %",
    }  # fmt: skip
    setting = default_setting() | {"cycle_time_ms": 0.5}
    document = {
        "version": 1, "setting": setting, "default": default_setting(), "verdict": verdict,
        "fingerprint": fingerprint, "created": "2026-01-02T03:04:05+00:00",
    }  # fmt: skip
    path.write_text(yaml.safe_dump(document))


_LINK = {"latency_us": 0.001, "mb_per_s": 1e9}


@pytest.mark.parametrize(
    ("ranks", "fingerprint", "differing"),
    [
        (
            2,
            {"world": 4, "slots": [2, 2], "transport": "auto", "link": _LINK},
            ["ranks: 4 there, 2 here", "ranks per host: ", "link: "],
        ),
        (1, {"world": 1, "slots": [1], "transport": "auto"}, []),
    ],
    ids=["elsewhere", "here"],
)
def test_a_profile_from_elsewhere_says_what_differs(
    hvdtune, script, tmp_path, ranks, fingerprint, differing
):
    write_profile(tmp_path / "p.yaml", **fingerprint)
    script("init(); print('trained')")
    run = hvdtune("run", "-np", ranks, "--profile", "p.yaml", "train.py")
    out, err = run.communicate()
    assert (run.returncode, out.count("trained")) == (0, ranks)
    for line, what in zip(err.splitlines(), differing, strict=True):
        assert f"measured elsewhere: {what}" in line


def test_the_winner_of_the_nearest_past_study_is_found(tmp_path):
    for name, world in (("near", 2), ("far", 64)):
        (tmp_path / name).mkdir()
        write_profile(tmp_path / name / "profile.yaml", world=world)
    near = past_winner({"world": 4}, tmp_path)
    assert near is not None
    assert near.profile.setting["cycle_time_ms"] == 0.5
    assert near.path.parent == tmp_path / "near"
    assert past_winner({"world": 4}, tmp_path / "none") is None


@pytest.fixture
def reducing(hvdtune, script, tmp_path):
    """Starts two ranks that reduce other tensors than their profile tells of."""
    tensors = {"count": 9, "bytes": 1000, "octaves": {6: 9}}
    write_profile(tmp_path / "p.yaml", world=2, tensors=tensors)

    def start(ends):
        script(_REDUCE.format(ends=ends))
        return hvdtune("run", "-np", "2", "--profile", "p.yaml", "-o", "kept", "train.py")

    return start


_OTHER = (
    "p.yaml was measured elsewhere: tensors: 9 (0.001 MB in total) there, 1 (0.04 MB in total) here"
)


def test_a_recorded_run_says_while_it_goes_that_its_tensors_are_others(reducing, tmp_path):
    run = reducing("os.path.exists('told')")
    assert any(_OTHER in line for line in iter(run.stderr.readline, ""))
    (tmp_path / "told").touch()
    _, err = run.communicate()
    assert run.returncode == 0, err


def test_a_recorded_run_of_few_steps_says_at_its_end_that_its_tensors_are_others(reducing):
    run = reducing("steps == 2")
    _, err = run.communicate()
    assert run.returncode == 0, err
    assert _OTHER in err
