"""`hvdtune run --trials` whose run folder is on a disk that gets full."""

import os
import subprocess
import time

import pytest

from hvdtune.tuner.storage.pair_log import read_pairs
from hvdtune.tuner.storage.study_reader import read_study

pytestmark = pytest.mark.slow

_STEPS = """
init()
for _ in range(12000):
    time.sleep(0.001)
    step()
open(f"done-{rank()}", "w").close()
"""


@pytest.fixture
def disk(tmp_path):
    if os.getuid() != 0:
        pytest.skip("mounting a file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=48m", "none", str(folder)]
    mount = subprocess.run(words, capture_output=True, text=True)
    if mount.returncode:
        pytest.skip(f"no file system may be mounted here: {mount.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_ends_the_study_and_not_the_training(hvdtune, script, tmp_path, disk):
    script(_STEPS)
    words = ("run", "-np", "2", "--trials", "9", "--time-budget", "60s", "-o", "disk/run")
    run = hvdtune(*words, "train.py")
    log = disk / "run" / "pairs.jsonl"
    while not log.exists() or log.read_bytes().count(b"\n") < 3:
        assert run.poll() is None
        time.sleep(0.05)
    with (disk / "ballast").open("wb", buffering=0) as ballast:
        while run.poll() is None:
            try:
                ballast.write(bytes(4096))
            except OSError:
                time.sleep(0.02)
    _, err = run.communicate()
    assert {path.name for path in tmp_path.glob("done-*")} == {"done-0", "done-1"}
    assert "Traceback" not in err
    assert run.returncode == 1
    assert "No space left on device" in err or "database or disk is full" in err
    assert len(read_study(disk / "run").pairs) == len(read_pairs(log)) >= 3
