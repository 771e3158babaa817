"""Tests and the machine: what they leave in /dev/shm, and which paths they take for absent."""

import multiprocessing
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.kit import shm

ROOT = Path(__file__).parents[2]

_MAP = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 1)
print("mapped", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def segment():
    """The path of a new segment; removed at the end."""
    made = []

    def make(name):
        path = shm.FOLDER / name
        path.write_bytes(b"1")
        made.append(path)
        return path

    yield make
    for path in made:
        path.unlink()


def test_a_semaphore_of_another_run_is_none_of_these_tests(segment):
    before = shm.named()
    segment(f"sem.mp-{uuid.uuid4().hex[:8]}")
    assert shm.named() == before


def test_a_semaphore_of_these_tests_is_seen_while_it_has_its_name():
    before = shm.named()
    semaphore = multiprocessing.get_context("forkserver").Semaphore()
    (name,) = shm.named() - before
    assert f"-{os.getpid()}-" in name
    assert shm.abandoned({name}) == set()  # this process maps it
    del semaphore


@pytest.mark.parametrize("of_another_run", [True, False], ids=["another-run", "these-tests"])
def test_a_segment_is_left_behind_unless_a_process_has_it(segment, of_another_run):
    path = segment(f"hvdtune-test-{uuid.uuid4().hex[:8]}")
    assert shm.abandoned({path.name}) == {path.name}
    environ = {name: os.environ[name] for name in os.environ if name != "HVDTUNE_TEST_PROCESS"}
    command = [sys.executable, "-c", _MAP, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environ if of_another_run else None, **pipes) as process:
        assert process.stdout.readline() == b"mapped\n"
        assert shm.abandoned({path.name}) == set()
        process.stdin.close()
    assert shm.abandoned({path.name}) == {path.name}


# Folders of a file system that any user or program may have made. Nobody can make one in /proc.
_MAY_EXIST = re.compile(
    r"""["' =!/]/(?:nowhere|absent|missing|nonexistent[\w-]*|no|not)(?=[/"'\\ :])"""
)
_ROUTES = ("tests/dashboard/", "tests/house/test_leftovers.py")  # addresses of pages, not paths


def test_a_path_that_has_to_be_absent_is_one_that_nobody_can_make():
    found = []
    for path in sorted(ROOT.glob("tests/**/*")):
        name = str(path.relative_to(ROOT))
        if path.suffix in (".py", ".cc", ".h", ".sh") and not name.startswith(_ROUTES):
            lines = path.read_text().splitlines()
            found += [f"{name}:{n}" for n, line in enumerate(lines, 1) if _MAY_EXIST.search(line)]
    assert found == [], "use /proc/absent, or a path below tmp_path"
