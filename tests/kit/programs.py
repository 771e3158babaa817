"""hvdtune's commands, in processes of their own or within the test's."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hvdtune.cli import main


def environ(**more: str) -> dict[str, str]:
    """This process's environment; programs find there what can be imported here."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | more


def hvdtune(*words: object) -> list[str]:
    """The words that start `hvdtune WORD...` with this interpreter."""
    return [sys.executable, "-m", "hvdtune", *map(str, words)]


def run_cli(
    *words: object, folder: Path, codes: tuple[int, ...] = (0,), **variables: str
) -> subprocess.CompletedProcess[str]:
    """The finished `hvdtune WORD...`, run in a folder; fails when its exit code is not in `codes`.

    `variables` are added to its environment.
    """
    options: dict[str, Any] = {"cwd": folder, "env": environ(**variables)}
    done = subprocess.run(hvdtune(*words), capture_output=True, text=True, **options)
    assert done.returncode in codes, done.stderr
    return done


def call_cli(*words: object, folder: Path, codes: tuple[int, ...] = (0,)) -> str:
    """Run `hvdtune WORD...` in `folder` and return its output; fail if its exit code is another.

    It runs in this process, because starting another takes longer than most commands do.
    """
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
        pytest.raises(SystemExit) as ended,
    ):
        main([str(word) for word in words])
    assert ended.value.code in codes, err.getvalue()
    return out.getvalue()
