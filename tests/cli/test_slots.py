"""The number of ranks of a study for which the user gave none."""

import pytest

from hvdtune.cli import app, placement
from hvdtune.cli.options import PlacementOptions
from hvdtune.cli.request import tunes_communication
from hvdtune.core.rank.affinity import usable_processors

_SIZE = "open(os.environ['HOROVOD_SIZE'] + '-' + os.environ['HOROVOD_RANK'], 'w')\nsys.exit(5)\n"
_STUDY = ("--trials", "1", "-o", "study")
_CORES = usable_processors()


def started(monkeypatch, hvdtune, script, tmp_path, environ, *words):
    """Return the job's size by its ranks, and the launcher's first line."""
    for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, environ.get(name, ""))
    _, err = hvdtune("run", *words, script(_SIZE)).communicate()
    sizes = {path.name.partition("-")[0] for path in tmp_path.glob("[0-9]*-[0-9]*")}
    assert len(sizes) == 1, err
    return int(*sizes), err.partition("\n")[0]


def test_a_study_starts_a_rank_per_gpu(monkeypatch):
    monkeypatch.setattr(placement, "visible_gpus", lambda environ: 3)
    found = placement.choose_hosts(PlacementOptions(), tunes=True)
    assert (found.ranks, found.words) == (3, ("-np", "3"))
    assert found.notice == "starting 3 ranks on this host (3 GPUs); -np N starts N ranks"


@pytest.mark.slow
@pytest.mark.skipif(_CORES < 2, reason="a core alone has no threads to share it")
def test_a_study_starts_a_rank_per_share_of_the_cores(monkeypatch, hvdtune, script, tmp_path):
    environ = {"OMP_NUM_THREADS": str(_CORES)}
    size, line = started(monkeypatch, hvdtune, script, tmp_path, environ, *_STUDY)
    assert size == 2
    assert line.startswith("hvdtune: starting 2 ranks on this host (")
    assert f"OMP_NUM_THREADS={_CORES}; a study needs 2 ranks); -np N starts N ranks" in line


@pytest.mark.skipif(_CORES > 8, reason="a rank per core would be many processes")
def test_a_study_starts_a_rank_per_core(monkeypatch, hvdtune, script, tmp_path):
    size, line = started(monkeypatch, hvdtune, script, tmp_path, {}, *_STUDY)
    assert size == max(2, _CORES)
    assert f"({_CORES} usable core" in line


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ((), 1),
        (("-np", "1", *_STUDY), 1),
        pytest.param(("--slots-per-host", "3", *_STUDY), 3, marks=pytest.mark.slow),
    ],
)
def test_otherwise_the_number_is_the_users(monkeypatch, hvdtune, script, tmp_path, words, ranks):
    size, line = started(monkeypatch, hvdtune, script, tmp_path, {}, *words)
    assert size == ranks
    assert "starting" not in line


@pytest.mark.parametrize(
    ("words", "tunes"),
    [
        ("--trials 2", True),
        ("--trials 2 --mode restart --knobs channels", True),
        ("--trials 2 --adapter command --vary A=1,2", False),
        ("--trials 2 --knobs script.batch", False),
        ("--autotune", False),
    ],
)
def test_only_a_study_of_hvdtunes_own_communication_needs_several_ranks(words, tunes):
    assert tunes_communication(app.parse(["run", *words.split(), "train.py"])) == tunes
