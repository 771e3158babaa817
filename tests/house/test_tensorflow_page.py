"""The scripts and commands of docs/tensorflow.md work."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tensorflow.md").read_text()


def block(name):
    return re.search(rf"<!-- docs-test: {name} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)[1]


def run(folder, *words):
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "HVDTUNE_START_TIMEOUT_S": "100",
    }
    done = subprocess.run(
        [sys.executable, "-m", "hvdtune", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["tape", "fit"])
def test_a_script_of_the_page_trains_on_two_ranks(tmp_path, name):
    (tmp_path / "train.py").write_text(block(name))
    assert "[0]<stdout>:ranks: 2" in run(tmp_path, "run", "-np", "2", "train.py")


def test_the_commands_of_the_page_say_where_the_library_is(tmp_path):
    first, second = (run(tmp_path, *line.split()[1:]) for line in block("build").splitlines())
    assert first == second
    assert Path(first.split()[-1]).is_file()
