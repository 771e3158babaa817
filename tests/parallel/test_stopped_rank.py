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


def stop_and_continue(place: str, end: str, size: int, memory: str, transport: str) -> bool:
    """Checks what rank 1 and the survivors report; returns whether rank 1 was killed for it."""
    command = [sys.executable, "-m", "tests.parallel.stopped_rank_job", place, str(size)]
    job = subprocess.run([*command, memory, transport], cwd=ROOT, capture_output=True, text=True)
    assert job.returncode == 0, job.stderr
    report = json.loads(job.stdout)
    assert report["victim"] == end, job.stderr
    for survivor in report["survivors"]:
        assert survivor["rank"] == 1, survivor
        assert survivor["changed"] == 0
        assert survivor["anew"] == 1.0
    assert len(report["survivors"]) == size - 1
    return "was killed because it stopped while it wrote" in job.stderr


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
    assert stop_and_continue(place, end, size, memory, "auto") == (end == "SIGKILL")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("core_with_failpoints")
@pytest.mark.parametrize("transport", ["auto", "tcp"])
@pytest.mark.parametrize("size", [2, 3])
def test_what_it_had_done_when_it_was_given_up_is_no_success(size, transport):
    stop_and_continue("executor/carried_out", "RankLostError", size, "private", transport)
