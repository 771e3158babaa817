import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def hvdtune(tmp_path: Path) -> Iterator[Start]:
    """Starts `hvdtune ...` in an empty folder."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "hvdtune", *map(str, words)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """Writes train.py; `init` and `step` are defined in it."""

    def write(body: str) -> str:
        (tmp_path / "train.py").write_text(
            "import os, sys, time\n"
            "from hvdtune.core.collectives import barrier\n"
            "from hvdtune.core.runtime import init, native, rank\n"
            "def step():\n"
            "    barrier()\n"
            "    native().mark_step()\n" + body
        )
        return "train.py"

    return write
