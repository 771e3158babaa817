"""A rank that was given up neither writes into the survivors' memory nor reports success."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.parallel import failpoint_native

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def core_with_failpoints():
    failpoint_native.build()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("core_with_failpoints")
@pytest.mark.parametrize("memory", ["private", "shared"])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize(
    ("place", "end"),
    [
        pytest.param("shared/piece", "SIGKILL", id="while-it-writes"),
        pytest.param("arena/await", "RankLostError", id="before-it-writes"),
    ],
)
def test_memory_that_was_used_again_stays_as_it_is(place, end, size, memory):
    command = [sys.executable, "-m", "tests.parallel.stopped_rank_job", place, str(size), memory]
    job = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert job.returncode == 0, job.stderr
    report = json.loads(job.stdout)
    assert report["victim"] == end, job.stderr
    for survivor in report["survivors"]:
        assert survivor["rank"] == 1, survivor
        assert survivor["changed"] == 0
        assert survivor["anew"] == 1.0
    assert len(report["survivors"]) == size - 1
    assert ("was killed: it had stopped in the middle of writing" in job.stderr) == (
        end == "SIGKILL"
    )
