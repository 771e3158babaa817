"""Every reader answers or refuses hostile files within limits of processor time and memory."""

import os
import subprocess
import sys

import pytest

from tests.kit.hostile_files import FORMATS

SMALL, LARGE = 1 << 16, 1 << 20


def read_hostile(folder, size, seconds, *kinds):
    command = [sys.executable, "-m", "tests.kit.hostile_files"]
    done = subprocess.run(
        [*command, str(size), str(seconds), "500", str(folder), *kinds],
        # Its own allocator reserves more than the limit and keeps it.
        env=os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-3000:]
    return done.stdout.splitlines()


def test_small_hostile_files_are_read_or_refused_within_limits(tmp_path):
    assert len(read_hostile(tmp_path, SMALL, 10, *FORMATS)) > 80


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", FORMATS)
def test_hostile_files_of_a_megabyte_take_ten_seconds_and_500_megabytes(kind, tmp_path):
    read_hostile(tmp_path, LARGE, 10, kind)
