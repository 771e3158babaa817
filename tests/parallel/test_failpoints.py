"""The failpoints of the core, and some twenty runs through them; `make soak` does a thousand."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parallel.failpoint_native import places

ROOT = Path(__file__).parents[2]


def test_there_are_failpoints_all_over_the_core_and_each_has_a_name_of_its_own():
    names = places()
    assert len(names) >= 40
    assert len(set(names)) == len(names)
    assert {name.split("/")[0] for name in names} >= {
        "arena",
        "cycle",
        "exchange",
        "executor",
        "frame",
        "handshake",
        "health",
        "mesh",
        "shm",
        "socket",
        "store",
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_rank_hangs_and_every_survivor_names_the_rank_that_failed():
    command = [sys.executable, "-m", "tests.parallel.failpoint_soak", "--runs", "20"]
    soak = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    report = json.loads(soak.stdout.splitlines()[-1])
    assert report["broken"] == []
    assert report["runs"] == 20
    assert soak.returncode == 0
