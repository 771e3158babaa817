import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hvdtune.cli import main
from tests.kit import programs

Start = Callable[..., subprocess.Popen[str]]
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def hvdtune(tmp_path: Path) -> Iterator[Start]:
    """Starts `hvdtune ...` in an empty folder."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            programs.hvdtune(*words),
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=programs.environ(),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """Runs `hvdtune ...` in this process and an empty folder: what starts no rank.

    Returns the exit code, stdout and stderr. In a process of its own most of the time is imports.
    """

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        assert isinstance(ended.value.code, int)
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], str]:
    """Writes train.py; `init` and `step` are defined in it."""

    def write(body: str) -> str:
        (tmp_path / "train.py").write_text(
            "import os, sys, time\n"
            "from hvdtune.core.rank.collectives import barrier\n"
            "from hvdtune.core.rank.runtime import init, native, rank\n"
            "def step():\n"
            "    barrier()\n"
            "    native().mark_step()\n" + body
        )
        return "train.py"

    return write
