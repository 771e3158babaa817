"""Programs and libraries of others, each in an environment that `make third-party` sets up."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.kit import programs


def environment(name: str) -> Path:
    """The environment of this program, which may not be there."""
    return Path(__file__).parents[2] / f".venv-{name}"


def is_needed(name: str) -> pytest.MarkDecorator:
    """Skips tests where the environment of this program is not there."""
    missing = not (environment(name) / ".ready").exists()
    return pytest.mark.skipif(missing, reason=f"no .venv-{name}: make third-party")


def python(name: str) -> str:
    return str(environment(name) / "bin/python")


def run(name: str, *words: object, folder: Path, **variables: str) -> str:
    """What `python WORD...` prints with the program's interpreter, in a folder; fails unless it
    succeeds.

    `variables` are added to its environment, in which the program's commands are found first.
    """
    environ = programs.environ(
        PATH=f"{environment(name) / 'bin'}:{os.environ['PATH']}",
        TF_CPP_MIN_LOG_LEVEL="3",
        OMP_NUM_THREADS="1",
        # On a busy machine four interpreters import a framework for long.
        HVDTUNE_START_TIMEOUT_S="250",
        **variables,
    )
    command = [python(name), *map(str, words)]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def furthest(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> float:
    """The largest difference of any variable of two trained models."""
    assert left.keys() == right.keys()
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)
