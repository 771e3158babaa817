"""A real file system that is full: the study stays readable, training goes on."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hvdtune.errors import StudyError
from hvdtune.tuner.controller import tune
from hvdtune.tuner.measure.progress import StudyProgress
from hvdtune.tuner.space.tune_options import TuneOptions
from hvdtune.tuner.storage.fsck import check
from hvdtune.tuner.storage.pair_log import read_pairs
from hvdtune.tuner.storage.study_list import StudyPlace
from hvdtune.tuner.storage.study_reader import read_study
from hvdtune.tuner.study import Study
from tests.kit.simulated_job import DEFAULT, KNOBS, Script, SimulatedCluster

OPTIONS = TuneOptions(trials=8, seed=1)
BALLAST = "ballast"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.getuid() != 0:
        pytest.skip("mounting a file system needs root")
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(disk)], capture_output=True, text=True
    )
    if mount.returncode:
        pytest.skip(f"no file system may be mounted here: {mount.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> None:
    """Leaves no byte free."""
    with (disk / BALLAST).open("ab", buffering=0) as file:
        for size in (4096, 512, 1):
            while True:
                try:
                    if file.write(bytes(size)) < size:
                        break
                except OSError:
                    break


@pytest.mark.parametrize("phase", ["calibrate", "search", "race", "verify", "done"])
def test_training_goes_on_and_the_study_stays_readable(small_disk: Path, phase: str) -> None:
    run = small_disk / "run"
    cluster = SimulatedCluster(
        Script(steps_per_launch=30_000, gain=lambda setting: 0.1 * (setting["cycle_time_ms"] < 1))
    )
    study = Study(cluster.start, KNOBS, DEFAULT)
    moments: list[StudyProgress] = []

    def fill_in(progress: StudyProgress) -> None:
        if progress.phase == phase and not moments:
            moments.append(progress)
            fill(small_disk)

    failed = False
    try:
        tune(study, run, OPTIONS, fill_in, cluster.clock)
    except StudyError as error:
        failed = True
        assert "\n" not in str(error)
        assert "No space left" in str(error) or "full" in str(error)
        assert cluster.jobs[-1].setting == DEFAULT
    assert moments
    assert failed == (phase != "done")
    assert not cluster.jobs[-1].terminated

    pairs = read_pairs(run / "pairs.jsonl")
    assert read_study(run).pairs == pairs

    (small_disk / BALLAST).unlink()
    result = tune(study, run, OPTIONS, clock=cluster.clock)
    assert result.verdict.improved
    assert read_pairs(run / "pairs.jsonl")[: len(pairs)] == pairs
    assert check(StudyPlace("run", folder=run), KNOBS) == []
