"""The README's script and commands do what it says."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house import light

README = (Path(__file__).parents[2] / "README.md").read_text()


def block(name):
    return re.search(rf"<!-- docs-test: {name} -->\n```\w+\n(.*?)```", README, re.DOTALL)[1]


COMMANDS = [line for line in block("commands").splitlines() if line.strip()]
# The README's script runs once; importing torch for each command would take most of the time.
TRAINS = "hvdtune run -np 2 train.py"


def test_there_is_a_command_that_runs_the_script():
    assert TRAINS in COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme_works(command, tmp_path):
    script = block("script") if command == TRAINS else light.TRAIN.format(steps=5)
    (tmp_path / "train.py").write_text(script)
    words = shlex.split(command)
    assert words[0] == "hvdtune"
    done = subprocess.run(
        [sys.executable, "-m", "hvdtune", *words[1:]], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    if "train.py" in words:
        ranks = 4 if "-H" in words else 2
        assert f"ranks: {ranks}" in done.stdout
    if "--timeline-filename" in words:
        assert (tmp_path / "trace.json").stat().st_size > 1000
