import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

Python = Callable[..., str]


@pytest.fixture
def python(tmp_path: Path) -> Python:
    """Runs a script's text in an empty folder; returns what it prints.

    By this interpreter alone, or `under` a launcher, as in under=("run", "-np", "2").
    """

    def run(body: str, under: Sequence[str] = ()) -> str:
        (tmp_path / "train.py").write_text(body)
        launcher = ("-m", "hvdtune", *under) if under else ()
        done = subprocess.run(
            [sys.executable, *launcher, "train.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=os.environ
            | {
                "PYTHONPATH": str(Path(__file__).parents[2]),
                # On a busy machine four interpreters import torch for long.
                "HVDTUNE_START_TIMEOUT_S": "250",
                "TF_CPP_MIN_LOG_LEVEL": "3",
            },
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture
def installed_horovod(tmp_path: Path) -> str:
    """A folder as site-packages with a Horovod in it; the statement that puts it on sys.path."""
    package = tmp_path / "site-packages" / "horovod"
    (package / "torch").mkdir(parents=True)
    (package / "__init__.py").write_text("from horovod.who import who\n")
    (package / "who.py").write_text("who = 'installed'\n")
    (package / "torch" / "__init__.py").write_text("from horovod.who import who\n")
    return f"import sys; sys.path.append({str(package.parent)!r})\n"
